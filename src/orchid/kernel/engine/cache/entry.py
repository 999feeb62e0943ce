"""Entry: one object at one revision, as the bytes that will be sent.

The resourceVersion is inserted into the stored JSON once, when the change arrives. The entry is
decoded on first access to `.object`; the decoded object is cached while the entry is recently used.

A stored value may have one more member than the object, before its metadata: notes of the server
(`Kind.note`). It is not among the bytes that are sent, so no response can show it.

    {"kind":…,"apiVersion":…,"note":{"approver":"alice"},"metadata":{…},…}
"""

from collections import deque
from collections.abc import Mapping
from threading import Lock
from typing import Any, Final, Generic, TypeVar

import msgspec

from orchid.kernel.engine.kind import Kind
from orchid.kernel.store.interface import Revision
from orchid.kernel.wire.codec.documents import encode
from orchid.kernel.wire.meta import Object, ObjectMeta, Time
from orchid.kernel.wire.struct import Wire, replace

T = TypeVar("T", bound=Object)

DECODED_BYTES: Final = 2 << 20  # of entries that are cached in another form besides their bytes


class UnreadableBytes(ValueError):
    """The stored bytes are not an object of the kind: damaged, or written by another program."""


class _Meta(Wire):
    metadata: ObjectMeta


class ObjectIdentity(Wire):
    """Identity of an object, and whether it is being deleted."""

    uid: str = ""
    deletion_timestamp: Time | None = None


class _Identified(Wire):
    metadata: ObjectIdentity


_decode_meta = msgspec.json.Decoder(_Meta).decode
_decode_identity = msgspec.json.Decoder(_Identified).decode
_decode_note = msgspec.json.Decoder(dict[str, str]).decode
_METADATA, _NOTE = b'"metadata":', b'"note":'


class Entry(msgspec.Struct, Generic[T], eq=False, gc=False):
    """One object at one revision; immutable.

    Nothing in an entry refers back to it, so that the garbage collector need not track millions.
    """

    kind: Kind[T]
    key: str
    tail: bytes  # the bytes after kind and apiVersion
    revision: Revision
    note: bytes = b""  # notes of the server, as JSON; never sent
    _meta: ObjectMeta | None = None
    _object: T | None = None
    forms: dict[Any, bytes] | None = None  # other encodings of it, created once

    @classmethod
    def stored(cls, kind: Kind[T], key: str, value: bytes, revision: Revision) -> "Entry[T]":
        """The entry of bytes that this server has written.

        The resourceVersion is inserted after the uid, which every stored object has. Inside a JSON
        string every quote is escaped, so the first bare `"uid":"` is the key itself.
        """
        start, note = len(kind.head), b""
        if not value.startswith(kind.stored_head):
            # The kind of another naming or version, or a note. In a string a quote is escaped.
            start = value.index(_METADATA)
            note = value[:start].partition(_NOTE)[2][:-1]
        end = value.index(b'"', value.index(b'"uid":"', start) + 7) + 1
        tail = b'%b,"resourceVersion":"%d"%b' % (value[start:end], revision, value[end:])
        return cls(kind, key, tail, revision, note)

    @classmethod
    def read(cls, kind: Kind[T], key: str, value: bytes, revision: Revision) -> "Entry[T]":
        """The entry of bytes that another program may have written; raises UnreadableBytes."""
        try:
            entry = cls.stored(kind, key, value, revision)
            kind.decoder.stored(kind.head + entry.tail)
            if entry.note:
                entry.notes()
        except (ValueError, RecursionError) as problem:
            raise UnreadableBytes(key) from problem
        return entry

    @classmethod
    def unsaved(cls, kind: Kind[T], new: T) -> "Entry[T]":
        """An object that is returned but not stored: a dry run, or an acting kind."""
        return cls(kind, "", encode(new)[len(kind.head) :], 0, b"", None, new)

    def at(self, revision: Revision) -> "Entry[T]":
        """The same content at another revision, for a DELETED event."""
        tail = self.tail.replace(
            b'"resourceVersion":"%d"' % self.revision, b'"resourceVersion":"%d"' % revision, 1
        )
        return Entry(self.kind, self.key, tail, revision)

    def served_as(self, kind: Kind[T]) -> "Entry[T]":
        """The same object in another version of its kind; shares the bytes if possible."""
        if kind is self.kind:
            return self
        if kind.type is not self.kind.type:
            renamed = Entry.unsaved(kind, as_kind(kind, self.object))
            renamed.key, renamed.revision, renamed.note = self.key, self.revision, self.note
            return renamed
        forms = self.shared_forms()
        return Entry(kind, self.key, self.tail, self.revision, self.note, self._meta, None, forms)

    @property
    def data(self) -> bytes:
        """The whole object as it is sent."""
        return self.kind.head + self.tail

    @property
    def object(self) -> T:
        decoded = self._object
        if decoded is None:
            decoded = self._object = self.kind.decoder.stored(self.kind.head + self.tail)
            _lately_used.keep(self)
        return decoded

    @property
    def meta(self) -> ObjectMeta:
        """Its metadata alone, which is cheaper to decode than the object."""
        whole = self._object
        if whole is not None:
            return whole.metadata
        decoded = self._meta
        if decoded is None:
            decoded = self._meta = _decode_meta(self.kind.head + self.tail).metadata
            _lately_used.keep(self)
        return decoded

    @property
    def identity(self) -> ObjectIdentity | ObjectMeta:
        """Identity for credential checks: fast to decode, and too small to cache."""
        if self._object is not None:
            return self._object.metadata
        return self._meta or _decode_identity(self.kind.head + self.tail).metadata

    def notes(self) -> Mapping[str, str]:
        """The server's notes about the object."""
        return _decode_note(self.note) if self.note else {}

    def shared_forms(self) -> dict[Any, bytes]:
        """The cache of its other encodings."""
        forms = self.forms
        if forms is None:
            forms = self.forms = {}
            _lately_used.keep(self)
        return forms

    def shrink(self) -> None:
        """Drop everything but the bytes, which the rest can be rebuilt from."""
        self._meta = self._object = self.forms = None


class LatelyUsed:
    """The recently used entries, whose decoded or encoded forms are cached.

    An object that was read once must not stay decoded for ever.
    """

    def __init__(self, most: int = DECODED_BYTES) -> None:
        self._most = most
        self._entries: deque[Entry[Any]] = deque()
        self._lock = Lock()  # long lists are encoded in a thread
        self.kept_bytes = 0

    def keep(self, entry: Entry[Any]) -> None:
        if not entry.revision:
            return  # it is not stored, and dropped when the response is sent
        with self._lock:
            self._entries.append(entry)
            self.kept_bytes += len(entry.tail)
            while self.kept_bytes > self._most:
                oldest = self._entries.popleft()
                self.kept_bytes -= len(oldest.tail)
                oldest.shrink()


# One per process: it limits memory, and affects only speed.
_lately_used = LatelyUsed()


def as_kind(kind: Kind[T], one: Object) -> T:
    """An object converted to another kind that serves the same objects."""
    if not isinstance(one, kind.type):
        one = msgspec.convert(one, kind.type, from_attributes=True)
    return replace(one, kind=kind.name, api_version=kind.api_version)


def with_note(kind: Kind[Any], value: bytes, note: bytes) -> bytes:
    """A value to be stored, with a note in it."""
    start = len(kind.head)
    return b"%b%b%b,%b" % (value[:start], _NOTE, note, value[start:]) if note else value
