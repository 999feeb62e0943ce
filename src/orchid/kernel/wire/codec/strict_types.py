"""Strict msgspec types: a document that fits one needs no further field validation.

`strict_type_of(schema)` generates a type with the same fields as a kind. All fields are optional,
unknown fields are refused, and integers, lists, maps and times have the limits of the schema.
Decoding into it is one call into C. A document that does not fit is either invalid or needs work
(nulls to drop, times to normalise): field_validation.py does that and reports why.

A decoded strict value contains exactly the fields of the document. Written again it has as many
keys, so repeated keys are found by comparing two numbers: see documents.py.

Parts without a type of their own are checked by `decode_part`: any JSON, open records, and times
that are stored as text.
"""

import datetime
import functools
import math
import re
from types import GenericAlias
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from orchid.kernel.wire.codec.field_validation import (
    INT32,
    INT32_RANGE,
    INT64_RANGE,
    MAX_DEPTH,
    MICRO_TEXT,
    MICRO_TIME,
    MICRO_TIME_TEXT,
    WHOLE_TIME,
    encoding_of,
)
from orchid.kernel.wire.schema import Anything, Field, Fields, Leaf, Mapping, Node, Scalar, Sequence


class Part:
    """A part of a document that `check` has accepted. This one accepts nothing."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    @staticmethod
    def check(value: Any) -> None:
        """Raise ValueError if the value needs the full validation."""
        raise ValueError


def decode_part(type_: type[Part], value: Any) -> Part:
    """The `dec_hook` of decoders for strict types."""
    type_.check(value)
    return type_(value)


def encode_part(part: Part) -> Any:
    """The `enc_hook` of encoders for strict types."""
    return part.value


def strict_type_of(schema: Fields) -> type:
    """The strict type of a kind."""
    return _open_type(schema) if schema.open else _record_type(schema, False)


@functools.cache
def _record_type(node: Fields, raw: bool) -> type[msgspec.Struct]:
    """`raw` parts are stored as plain dicts: nothing else checks the types in them."""
    fields = list(node.fields.values())
    return msgspec.defstruct(
        node.type.__name__,
        [(f"f{index}", _field_type(field, raw), UNSET) for index, field in enumerate(fields)],
        rename={f"f{index}": field.wire_name for index, field in enumerate(fields)},
        forbid_unknown_fields=True,
    )


def _field_type(field: Field, raw: bool) -> Any:
    type_ = _type(field.node, raw, encoding_of(field)) | UnsetType
    return type_ | None if field.nullable and not raw else type_


def _type(node: Node, raw: bool, encoding: str = "") -> Any:
    match node:
        case Leaf(scalar=scalar):
            return _scalar_type(scalar, raw, encoding)
        case Anything():
            return AnyValue
        case Fields():
            return _open_type(node) if node.open else _record_type(node, raw)
        case Mapping(values=values, most=most):
            return _limited(GenericAlias(dict, (str, _type(values, raw))), most)
        case Sequence(items=items, most=most):
            return _limited(GenericAlias(list, (_type(items, raw),)), most)


def _limited(type_: Any, most: int | None) -> Any:
    return type_ if most is None else Annotated[type_, Meta(max_length=most)]


def _range(values: range) -> Any:
    return Annotated[int, Meta(ge=values.start, le=values.stop - 1)]


def _scalar_type(scalar: Scalar, raw: bool, encoding: str) -> Any:
    if scalar is Scalar.INTEGER:
        return _range(INT32_RANGE if encoding == INT32 else INT64_RANGE)
    if scalar is Scalar.TIME:
        pattern = MICRO_TIME_TEXT if encoding == MICRO_TIME else WHOLE_TIME
        return (
            _time_type(pattern) if raw else Annotated[str, Meta(pattern=rf"^{pattern.pattern}\Z")]
        )
    if scalar is Scalar.STRING and encoding == MICRO_TIME:
        return _time_type(re.compile(MICRO_TEXT.pattern.partition("(?:Z|")[0] + "Z", re.ASCII))
    if scalar is Scalar.BYTES and raw:
        return Part  # only the full validation reads base64 inside a plain dict
    return _SCALARS[scalar]


_SCALARS: dict[Scalar, Any] = {
    Scalar.STRING: str,
    Scalar.BYTES: str,
    Scalar.BOOLEAN: bool,
    Scalar.NUMBER: _range(INT64_RANGE) | float,
}


class AnyValue(Part):
    """Any JSON value of limited depth, with integers of 64 bits."""

    @staticmethod
    def check(value: Any) -> None:
        _check_any(value, 1)


def _check_any(value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError
    kind = type(value)
    if kind is dict:
        value = value.values()
    elif kind is not list:
        if (kind is int and value not in INT64_RANGE) or (
            kind is float and not math.isfinite(value)
        ):
            raise ValueError
        return
    for item in value:
        if item and type(item) is not str:  # empty and zero values need no check
            _check_any(item, depth + 1)


@functools.cache
def _open_type(node: Fields) -> type[Part]:
    """A record that also stores undeclared fields; it is always raw."""
    declared = node.fields.keys()
    record = _record_type(node, True)

    def check(value: Any) -> None:
        if type(value) is not dict:
            raise ValueError
        others = value.keys() - declared
        declared_members = (
            {key: item for key, item in value.items() if key in declared} if others else value
        )
        msgspec.convert(declared_members, record, dec_hook=decode_part)
        for key in others:
            _check_any(value[key], 1)

    return type(node.type.__name__, (Part,), {"__slots__": (), "check": staticmethod(check)})


@functools.cache
def _time_type(pattern: re.Pattern[str]) -> type[Part]:
    """A time that stays text: nothing else finds out whether the day exists."""

    def check(value: Any) -> None:
        if type(value) is not str or not pattern.fullmatch(value):
            raise ValueError
        datetime.datetime.fromisoformat(value)

    return type("TimeText", (Part,), {"__slots__": (), "check": staticmethod(check)})
