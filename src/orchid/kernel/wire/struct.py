"""The base class of all API types, and annotations for their fields.

A kind's fields are declared once, as a frozen `Wire`; annotations describe them for patch, apply,
field validation, protobuf and OpenAPI:

    secrets: Annotated[tuple[ObjectReference, ...], merge_key("name")] = ()
    token: Annotated[str, confidential()] = ""

Lists without an annotation are atomic: replaced as a whole. `schema.py` reads the annotations.

Defaults decide what is encoded. A field equal to its default is omitted; to encode a field always,
give it `field(default_factory=str)` (or any factory other than list, dict and set).
"""

import functools
import typing
from collections.abc import Callable
from typing import Any, ClassVar, dataclass_transform

import msgspec


@dataclass_transform(frozen_default=True, kw_only_default=False, field_specifiers=(msgspec.field,))
class Wire(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An API value: immutable, camelCase on the wire, empty fields omitted."""

    # `core.v1.PodSpec`: the OpenAPI name of the definition, if it does not follow from the kind and
    # the class.
    published_as: ClassVar[str] = ""
    # Whether it has one owner and is replaced as a whole under apply.
    atomic: ClassVar[bool] = False

    def __repr__(self) -> str:
        """All fields; a type with a confidential field shows none, because values may repeat it."""
        if confidential_fields(type(self)):
            return f"{type(self).__name__}(***)"
        values = (f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__)
        return f"{type(self).__name__}({', '.join(values)})"


class MergeKey(msgspec.Struct, frozen=True):
    """A list whose elements are identified by these fields.

    A strategic merge puts new elements first, unless the list `appends`.
    """

    names: tuple[str, ...]
    appends: bool = False


class AtMost(msgspec.Struct, frozen=True):
    """A list or map with a limit of items; a body with more is refused."""

    items: int


class SetOfScalars(msgspec.Struct, frozen=True):
    """A list without order and duplicates."""


class AtomicMap(msgspec.Struct, frozen=True):
    """An object that is owned and replaced as a whole under apply."""


class Confidential(msgspec.Struct, frozen=True):
    """A field whose value appears in no log, error or audit record."""


class ShapedLike(msgspec.Struct, frozen=True):
    """A plain dict that stores any field; the fields of `type` are validated."""

    type: type


class Proto(msgspec.Struct, frozen=True):
    """The protobuf number of a field, and its encoding if the type leaves a choice.

    An `embedded` time is not a pointer in Kubernetes: unset, it is an empty message. A field
    `inside` a number is in a message of its own under that number, which JSON does not show.
    """

    number: int
    encoding: str = ""
    embedded: bool = False
    inside: int = 0


class Described(msgspec.Struct, frozen=True):
    """Description of a field for the API documentation; `required` if the type leaves it open."""

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
    """Python names of the fields of a type that are confidential themselves."""
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
    """Describe a field. Fields that are always written and never null are required by default."""
    return Described(text, required)


def always(default: Callable[[], Any], *, name: str | None = None) -> Any:
    """Declare a field that is written even when it is empty: `token: str = always(str)`.

    `name` is its name on the wire.
    """
    return msgspec.field(default_factory=default, name=name)


# Default of a field that is written as `null` when unset: `always(null)`. It returns None.
null = type(None)


replace = msgspec.structs.replace
