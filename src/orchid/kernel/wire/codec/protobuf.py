"""Protobuf: messages, and the envelope around them.

    message_of(ServiceAccount).encode(obj)          the message alone, as in a list
    sealed("v1", "ServiceAccount", message)         a body: four bytes, type, message
    opened(body)                                    the reverse: type, message
    list_message(ListMeta(...), messages)           a list of messages
    watch_frame("ADDED", body)                      one event of a stream

Field numbers are declared beside the fields of the kinds; protobuf_writer.py and protobuf_reader.py
compile them. Objects are stored as JSON; protobuf is for transport only.
docs/decisions/0010-protobuf.md explains why no library does this.
"""

from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Annotated, Any, Generic, TypeVar

from msgspec import field

from orchid.kernel.wire.codec.field_validation import Malformed, Undecodable
from orchid.kernel.wire.codec.protobuf_content import Make
from orchid.kernel.wire.codec.protobuf_reader import reader_of
from orchid.kernel.wire.codec.protobuf_scalars import LENGTH, read_varint, varint
from orchid.kernel.wire.codec.protobuf_writer import Writer, tag, writer_of
from orchid.kernel.wire.naming import PROTOBUF_MAGIC as MAGIC
from orchid.kernel.wire.schema import schema_of
from orchid.kernel.wire.status import ListMeta, Status
from orchid.kernel.wire.struct import Wire, proto

T = TypeVar("T", bound=Wire)

_FIRST, _SECOND = tag(1, LENGTH), tag(2, LENGTH)
_ONE_BYTE = 127  # the largest length that fits one byte
_NO_CONTENT_TYPE = tag(3, LENGTH) + b"\0" + tag(4, LENGTH) + b"\0"


class Message(Generic[T]):
    """Protobuf codec of a type. Create it with `message_of`: compiling is expensive."""

    def __init__(self, type_: type[T]) -> None:
        schema = schema_of(type_)
        self.encode: Writer = writer_of(schema)
        self._read: Make = reader_of(schema)

    def decode(self, message: bytes, **given: Any) -> T:
        """The object in a message; `given` are fields outside of the message (kind, apiVersion)."""
        made: T = self._read(message, **given)
        return made


_made_once = cache(Message)


def message_of(type_: type[T]) -> Message[T]:
    """The protobuf codec of a type, created once."""
    message: Message[T] = _made_once(type_)
    return message


# --- bodies ---------------------------------------------------------------------------------------


class SealedType(Wire):
    """apiVersion and kind of a body."""

    api_version: Annotated[str, proto(1)] = ""
    kind: Annotated[str, proto(2)] = ""


class _Sealed(Wire):
    type_meta: Annotated[SealedType, proto(1)] = field(default_factory=SealedType)
    raw: Annotated[bytes, proto(2)] = b""
    content_encoding: Annotated[str, proto(3)] = ""
    content_type: Annotated[str, proto(4)] = ""


def sealed(api_version: str, kind: str, message: bytes) -> bytes:
    """A body as it is sent."""
    start = _start(api_version, kind)
    return b"%b%b%b%b" % (start, varint(len(message)), message, _NO_CONTENT_TYPE)


@lru_cache(maxsize=256)
def _start(api_version: str, kind: str) -> bytes:
    said = message_of(SealedType).encode(SealedType(api_version=api_version, kind=kind))
    return MAGIC + _part(_FIRST, said) + _SECOND


def opened(body: bytes) -> tuple[SealedType, bytes]:
    """apiVersion and kind of a body, and the message; raises Malformed for other bodies."""
    if not body:
        raise Malformed("empty data")
    if not body.startswith(MAGIC):
        first = " ".join(map(str, MAGIC))
        raise Malformed(
            f"provided data does not appear to be a protobuf message, expected prefix [{first}]"
        )
    try:
        message = _opened_as_sealed(body) or message_of(_Sealed).decode(body[len(MAGIC) :])
    except Undecodable as fault:
        raise Malformed(str(fault)) from None
    if message.content_encoding:
        raise Malformed("the message is in a content encoding")
    return message.type_meta, message.raw


def _opened_as_sealed(body: bytes) -> _Sealed | None:
    """Fast path: open a body with the layout of `sealed`; None for any other."""
    if not body.endswith(_NO_CONTENT_TYPE):
        return None
    said_size = body[len(MAGIC) + 1]
    if said_size > _ONE_BYTE:
        return None
    message = len(MAGIC) + 2 + said_size
    try:
        size, start = read_varint(body, message + 1)
    except IndexError:
        return None
    if body[message : message + 1] != _SECOND or start + size + len(_NO_CONTENT_TYPE) != len(body):
        return None
    said = _said(body[len(MAGIC) : message])
    return _Sealed(type_meta=said, raw=body[start : start + size]) if said else None


@lru_cache(maxsize=256)
def _said(start: bytes) -> SealedType | None:
    """The type of a body, from its first part. Cached, because clients repeat few types."""
    return message_of(_Sealed).decode(start).type_meta if start.startswith(_FIRST) else None


def sealed_status(status: Status) -> bytes:
    return sealed(status.api_version, status.kind, message_of(Status).encode(status))


# --- lists and streams ----------------------------------------------------------------------------


def list_message(meta: ListMeta, items: Iterable[bytes]) -> bytes:
    """The message of a list; `items` are encoded messages."""
    parts = [_part(_FIRST, message_of(ListMeta).encode(meta))]
    for item in items:
        parts += (_SECOND, varint(len(item)), item)
    return b"".join(parts)


def metadata_message(metadata: bytes) -> bytes:
    """An object with only metadata, as a message."""
    return _part(_FIRST, metadata)


def watch_frame(type_: str, body: bytes) -> bytes:
    """An event with its length in front; the object in it is a full body."""
    event = _part(_FIRST, type_.encode()) + _part(_SECOND, _part(_FIRST, body))
    return len(event).to_bytes(4, "big") + event


def _part(start: bytes, content: bytes) -> bytes:
    return start + varint(len(content)) + content
