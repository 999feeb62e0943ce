"""The base of everything that travels, and the words that stand beside a field.

A kind's fields are declared once, as a frozen `Wire`; what patch, apply, field validation, protobuf
and OpenAPI need to know of a field stands beside it:

    secrets: Annotated[tuple[ObjectReference, ...], merge_key("name")] = ()
    token: Annotated[str, confidential()] = ""

Lists without a word beside them are atomic: replaced as a whole. `schema.py` reads these words.

Defaults decide what is written. A field equal to its default is left out; to write a field always,
give it `field(default_factory=str)` (or any factory other than list, dict and set).
"""

import functools
import typing
from collections.abc import Callable
from typing import Any, ClassVar, dataclass_transform

import msgspec


@dataclass_transform(frozen_default=True, kw_only_default=False, field_specifiers=(msgspec.field,))
class Wire(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A value that travels: immutable, camelCase on the wire, empty fields left out."""

    # `core.v1.PodSpec`: the name of its definition in OpenAPI, where the kind that holds it and the
    # name of the class do not say so already.
    published_as: ClassVar[str] = ""
    # Whether it has one owner and is replaced as a whole under apply.
    atomic: ClassVar[bool] = False

    def __repr__(self) -> str:
        """Every field; but nothing of what has a confidential one, whose value may be repeated."""
        if confidential_fields(type(self)):
            return f"{type(self).__name__}(***)"
        values = (f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__)
        return f"{type(self).__name__}({', '.join(values)})"


class MergeKey(msgspec.Struct, frozen=True):
    """A list whose elements are told apart by these fields.

    A strategic merge puts new elements first, unless the list `appends`.
    """

    names: tuple[str, ...]
    appends: bool = False


class AtMost(msgspec.Struct, frozen=True):
    """A list or map with no more items than this; a body with more is refused before it is used."""

    items: int


class SetOfScalars(msgspec.Struct, frozen=True):
    """A list in which order does not matter and nothing stands twice."""


class AtomicMap(msgspec.Struct, frozen=True):
    """An object that is owned and replaced as a whole under apply."""


class Confidential(msgspec.Struct, frozen=True):
    """A field whose value appears in no log, error or audit record."""


class ShapedLike(msgspec.Struct, frozen=True):
    """A plain dict that keeps any field it is given; the fields of `type` are known and checked."""

    type: type


class Proto(msgspec.Struct, frozen=True):
    """The number of a field in the protobuf form, and its encoding where the type leaves a choice.

    An `embedded` time is no pointer in the reference: unset, it is written as an empty message.
    A field `inside` a number stands in a message of its own under that number, which JSON does not
    show.
    """

    number: int
    encoding: str = ""
    embedded: bool = False
    inside: int = 0


class Described(msgspec.Struct, frozen=True):
    """What a field means, for those who read the API; `required` where the type does not tell."""

    text: str
    required: bool | None = None


def merge_key(*names: str, appends: bool = False) -> MergeKey:
    return MergeKey(names, appends)


def at_most(items: int) -> AtMost:
    return AtMost(items)


def as_set() -> SetOfScalars:
    return SetOfScalars()


def atomic_map() -> AtomicMap:
    return AtomicMap()


def confidential() -> Confidential:
    return Confidential()


@functools.cache
def confidential_fields(type_: type) -> tuple[str, ...]:
    """The Python names of those fields of a type that have the mark themselves."""
    hints = typing.get_type_hints(type_, include_extras=True)
    return tuple(
        name
        for name, hint in hints.items()
        if any(isinstance(word, Confidential) for word in getattr(hint, "__metadata__", ()))
    )


def shaped_like(type_: type) -> ShapedLike:
    return ShapedLike(type_)


def proto(number: int, encoding: str = "", *, embedded: bool = False, inside: int = 0) -> Proto:
    return Proto(number, encoding, embedded, inside)


def describe(text: str, *, required: bool | None = None) -> Described:
    """Say what a field means. One that is always written, and never null, counts as required."""
    return Described(text, required)


def always(default: Callable[[], Any], *, name: str | None = None) -> Any:
    """Declare a field that is written even when it is empty: `token: str = always(str)`.

    With `name` it travels under that name.
    """
    return msgspec.field(default_factory=default, name=name)


# The default of a field that is written as `null` when unset: `always(null)`. It makes None.
null = type(None)


replace = msgspec.structs.replace
