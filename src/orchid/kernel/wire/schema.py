"""The declared types as a tree for generic code.

`schema_of(ServiceAccount)` is the tree of a kind: its fields, lists that merge by a key, sets, and
untyped parts. Field validation, patches, apply, OpenAPI and protobuf use this tree; none of them
reads a type annotation itself.
"""

from __future__ import annotations

import datetime
import functools
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec

from orchid.kernel.wire.struct import (
    AtMost,
    AtomicMap,
    Confidential,
    Described,
    MergeKey,
    Proto,
    SetOfScalars,
    ShapedLike,
    Wire,
)


class Scalar(StrEnum):
    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    BYTES = "bytes"
    TIME = "time"


class Leaf(msgspec.Struct, frozen=True):
    """A scalar."""

    scalar: Scalar
    choices: tuple[str, ...] = ()


class Anything(msgspec.Struct, frozen=True):
    """Any JSON value. Its maps are granular, its lists atomic."""


class Field(msgspec.Struct, frozen=True):
    """A field of a record: its node, its Python and wire names, and its annotations."""

    wire_name: str
    python_name: str
    node: Node
    proto: Proto | None
    nullable: bool
    always_written: bool
    described: Described | None = None
    confidential: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Fields:
    """An object with declared fields; an `open` one also stores undeclared fields."""

    type: type
    fields: dict[str, Field] = field(repr=False)
    open: bool = False
    atomic: bool = False

    def get(self, name: str) -> Node | None:
        known = self.fields.get(name)
        if known is not None:
            return known.node
        return ANYTHING if self.open else None


class Mapping(msgspec.Struct, frozen=True):
    """An object with free keys and values of one type."""

    values: Node
    atomic: bool = False
    most: int | None = None  # limit of keys in a body


class Sequence(msgspec.Struct, frozen=True):
    """A list: atomic unless it has `keys` (elements merge by them) or is a set of scalars."""

    items: Node
    keys: tuple[str, ...] = ()
    is_set: bool = False
    appends: bool = False  # a strategic merge puts new elements last
    most: int | None = None  # limit of items in a body

    @property
    def atomic(self) -> bool:
        return not self.keys and not self.is_set


Node = Leaf | Anything | Fields | Mapping | Sequence
ANYTHING = Anything()

_SCALARS: dict[Any, Scalar] = {
    str: Scalar.STRING,
    int: Scalar.INTEGER,
    float: Scalar.NUMBER,
    bool: Scalar.BOOLEAN,
    bytes: Scalar.BYTES,
    datetime.datetime: Scalar.TIME,
}


@functools.cache
def schema_of(type_: type[Wire]) -> Fields:
    """The tree of a declared type, created on first use."""
    return _record(type_)


@functools.cache
def _record(type_: type, *, is_open: bool = False) -> Fields:
    tree = Fields(type_, {}, open=is_open, atomic=getattr(type_, "atomic", False))
    for info in msgspec.structs.fields(type_):
        words = _words(info.type)
        tree.fields[info.encode_name] = Field(
            wire_name=info.encode_name,
            python_name=info.name,
            node=_node(info.type),
            proto=next((word for word in words if isinstance(word, Proto)), None),
            nullable=_is_optional(info.type),
            always_written=info.default_factory not in (msgspec.NODEFAULT, list, dict, set),
            described=next((word for word in words if isinstance(word, Described)), None),
            confidential=any(isinstance(word, Confidential) for word in words),
        )
    return tree


def confidential_paths(node: Node) -> Iterator[str]:
    """Paths of the confidential fields of a tree: `data`, `spec.token`."""
    if isinstance(node, Mapping):
        yield from confidential_paths(node.values)
    elif isinstance(node, Sequence):
        yield from confidential_paths(node.items)
    elif isinstance(node, Fields):
        for name, field in node.fields.items():
            if field.confidential:
                yield name
            else:
                yield from (f"{name}.{rest}" for rest in confidential_paths(field.node))


def _words(hint: Any) -> tuple[Any, ...]:
    return hint.__metadata__ if typing.get_origin(hint) is Annotated else ()


def _is_optional(hint: Any) -> bool:
    if typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    return type(None) in typing.get_args(hint) or hint is Any


def _node(hint: Any) -> Node:
    words = _words(hint)
    if words:
        hint = typing.get_args(hint)[0]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return _node(Annotated[(inner, *words)] if words else inner)
    shaped = next((word for word in words if isinstance(word, ShapedLike)), None)
    if shaped:
        return _record(shaped.type, is_open=True)
    if origin is Literal:
        return Leaf(Scalar.STRING, tuple(arguments))
    if origin in (tuple, list):
        return _sequence(arguments[0], words)
    if origin is dict:
        atomic = any(isinstance(word, AtomicMap) for word in words)
        return Mapping(_node(arguments[1]), atomic, _most(words))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _record(hint)
    if hint in _SCALARS:
        return Leaf(_SCALARS[hint])
    if hint is Any or hint is dict:
        return ANYTHING
    raise TypeError(f"no wire form for {hint!r}")


def _sequence(item: Any, words: tuple[Any, ...]) -> Sequence:
    key = next((word for word in words if isinstance(word, MergeKey)), None)
    is_set = any(isinstance(word, SetOfScalars) for word in words)
    items = _node(item)
    appends = bool(key and key.appends)
    return Sequence(items, key.names if key else (), is_set, appends, _most(words))


def _most(words: tuple[Any, ...]) -> int | None:
    return next((word.items for word in words if isinstance(word, AtMost)), None)
