"""Entry: one object at one revision, as the bytes that will be sent.

The stored JSON gets its resourceVersion put in once, when the change arrived. It is decoded only
when somebody asks for `.object`, and then only once.
"""

from typing import Any, Generic, TypeVar

import msgspec

from orchid.engine.kind import Kind
from orchid.store.interface import Revision
from orchid.wire.codec.documents import encode
from orchid.wire.meta import Object, ObjectMeta
from orchid.wire.struct import Wire, replace

T = TypeVar("T", bound=Object)


class UnreadableBytes(ValueError):
    """What is stored is no object of its kind: written by other hands, or damaged."""


class _Meta(Wire):
    metadata: ObjectMeta


_decode_meta = msgspec.json.Decoder(_Meta).decode


class Entry(Generic[T]):
    """One object at one revision. Immutable; a change makes a new entry."""

    __slots__ = ("_meta", "_object", "forms", "key", "kind", "revision", "tail")

    def __init__(self, kind: Kind[T], key: str, value: bytes, revision: Revision) -> None:
        self.kind = kind
        self.key = key
        self.revision = revision
        self.tail = with_revision(_behind_head(kind, value), revision)
        self._meta: ObjectMeta | None = None
        self._object: T | None = None
        self.forms: dict[Any, bytes] | None = None  # other encodings of it, made once

    @classmethod
    def read(cls, kind: Kind[T], key: str, value: bytes, revision: Revision) -> "Entry[T]":
        """The entry of bytes that somebody else may have written; raises UnreadableBytes."""
        try:
            entry = cls(kind, key, value, revision)
            kind.decoder.stored(entry.data)
        except (ValueError, RecursionError) as problem:
            raise UnreadableBytes(key) from problem
        return entry

    @classmethod
    def unsaved(cls, kind: Kind[T], new: T) -> "Entry[T]":
        """An object that is answered but not stored: a dry run, or a kind that acts."""
        entry = cls.__new__(cls)
        entry.kind, entry.key, entry.revision = kind, "", 0
        entry.tail = encode(new)[len(kind.head) :]
        entry._meta, entry._object, entry.forms = None, new, None
        return entry

    def at(self, revision: Revision) -> "Entry[T]":
        """The same content at another revision: what a deletion shows."""
        other = Entry.__new__(Entry)
        other.kind, other.key, other.revision = self.kind, self.key, revision
        other.tail = self.tail.replace(
            b'"resourceVersion":"%d"' % self.revision, b'"resourceVersion":"%d"' % revision, 1
        )
        other._meta = other._object = other.forms = None
        return other

    def served_as(self, kind: Kind[T]) -> "Entry[T]":
        """The same object in one of the versions of its kind; its bytes are shared if they fit."""
        if kind is self.kind:
            return self
        if kind.type is not self.kind.type:
            renamed = Entry.unsaved(kind, as_kind(kind, self.object))
            renamed.key, renamed.revision = self.key, self.revision
            return renamed
        if self.forms is None:
            self.forms = {}
        other = Entry.__new__(Entry)
        other.kind, other.key, other.revision = kind, self.key, self.revision
        other.tail, other.forms = self.tail, self.forms
        other._meta, other._object = self._meta, None
        return other

    @property
    def data(self) -> bytes:
        """The whole object as it is sent."""
        return self.kind.head + self.tail

    @property
    def object(self) -> T:
        found = self._object
        if found is None:
            found = self._object = self.kind.decoder.stored(self.data)
        return found

    @property
    def meta(self) -> ObjectMeta:
        """Its metadata alone, which is cheaper to decode than the object."""
        if self._object is not None:
            return self._object.metadata
        found = self._meta
        if found is None:
            found = self._meta = _decode_meta(self.data).metadata
        return found


def as_kind(kind: Kind[T], one: Object) -> T:
    """An object in the words of another kind that serves the same objects."""
    if not isinstance(one, kind.type):
        one = msgspec.convert(one, kind.type, from_attributes=True)
    return replace(one, kind=kind.name, api_version=kind.api_version)


def _behind_head(kind: Kind[Any], value: bytes) -> bytes:
    """What follows kind and apiVersion, which may be those of another naming or version."""
    if value.startswith(kind.head):
        return value[len(kind.head) :]
    return value[value.index(b'"metadata":') :]


def with_revision(tail: bytes, revision: Revision) -> bytes:
    """Put the resourceVersion in its place, behind the uid, which every stored object has.

    Inside a JSON string every quote is escaped, so the first bare `"uid":"` is the key itself.
    """
    end = tail.index(b'"', tail.index(b'"uid":"') + 7) + 1
    return b'%b,"resourceVersion":"%d"%b' % (tail[:end], revision, tail[end:])
