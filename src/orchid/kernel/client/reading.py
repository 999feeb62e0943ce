"""What a server answered: pages of lists, events of watches, and errors.

`AnswerLimits` bounds it. A server of Orchid is trusted (`OWN`). The API server of a cluster that
somebody else operates is not (`FOREIGN`): it could answer a list with millions of empty objects, or
a watch with a line that has no end. Its values are counted before anything is decoded, and large
pages are decoded beside the event loop.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Generic, TypeVar

import msgspec

from orchid.kernel.client.transport import Events
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.outbound.answer import Answer
from orchid.kernel.outbound.failures import AnswerOverLimit, AnswerRefused
from orchid.kernel.outbound.foreign import require_few_marks
from orchid.kernel.wire import errors
from orchid.kernel.wire.errors import ApiError, Expired
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.status import ListMeta, Status

T = TypeVar("T", bound=Object)
V = TypeVar("V")

LARGE: Final = 64 << 10  # bytes that are decoded beside the event loop
LONGEST_POSITION: Final = 16 << 10  # characters of a revision, or of a continue token


class AnswerLimits(msgspec.Struct, frozen=True):
    """What a server may answer with."""

    page: int  # objects on a page, which are asked for
    line: int  # bytes of one event of a watch
    listed: int | None = None  # objects of a list
    values: int | None = None  # JSON values of a page, or of an event


Decode = Callable[[bytes | msgspec.Raw], V]

OWN: Final = AnswerLimits(page=2000, line=64 << 20)
FOREIGN: Final = AnswerLimits(page=50, line=3 << 20, listed=100_000, values=100_000)


class WatchedChange(msgspec.Struct, Generic[T], eq=False):
    """A watch event. Its object is decoded on first access."""

    type: str
    data: msgspec.Raw | bytes
    _decoder: Any
    _entry: Entry[T] | None = None  # may be decoded already
    _object: T | None = None

    @property
    def object(self) -> T:
        decoded = self._object
        if decoded is None:
            entry = self._entry
            decoded = self._decoder.decode(self.data) if entry is None else entry.object
            self._object = decoded
        return decoded


class RawList(msgspec.Struct):
    metadata: ListMeta
    items: list[msgspec.Raw] = []


class _RawEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


_event: Decode[_RawEvent] = msgspec.json.Decoder(_RawEvent).decode
_list: Decode[RawList] = msgspec.json.Decoder(RawList).decode
_status: Decode[Status] = msgspec.json.Decoder(Status).decode


async def read_page(body: bytes, limit: int, limits: AnswerLimits) -> RawList:
    """The page of a list; raises AnswerOverLimit."""
    if limits.values is None:
        return _list(body)
    if len(body) > LARGE:
        page = await asyncio.to_thread(_counted, _list, body, limits)
    else:
        page = _counted(_list, body, limits)
    if len(page.items) > limit:
        raise AnswerOverLimit(f"the page has {len(page.items)} objects, not at most {limit}")
    for position in page.metadata.continue_, page.metadata.resource_version:
        require_short(position)
    return page


def _counted(decode: Decode[V], data: bytes, limits: AnswerLimits) -> V:
    """Decode what may be anything; raises AnswerRefused."""
    if limits.values is None:
        return decode(data)
    require_few_marks(data, limits.values)
    try:
        return decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise AnswerRefused("the answer is not valid JSON") from None


def require_short(position: str) -> None:
    """Refuse a position that would not fit into the head of the next request."""
    if len(position) > LONGEST_POSITION:
        raise AnswerRefused("the position in the list is too long")


async def batches(
    pieces: AsyncIterator[bytes | Events], decoder: msgspec.json.Decoder[T], limits: AnswerLimits
) -> AsyncIterator[list[WatchedChange[T]]]:
    """The events of a watch in batches: each a line, or an object of the server."""
    lines = Lines(limits.line)
    async for piece in pieces:
        if isinstance(piece, bytes):
            batch = [_change(line, decoder, limits) for line in lines.feed(piece)]
        else:
            is_whole = piece[0][1].kind.type is decoder.type  # they are all of one kind
            batch = [
                WatchedChange(
                    type_, entry.kind.head + entry.tail, decoder, entry if is_whole else None
                )
                for type_, entry in piece
            ]
        if batch:
            yield batch


def _change(
    line: bytes, decoder: msgspec.json.Decoder[T], limits: AnswerLimits
) -> WatchedChange[T]:
    event = _counted(_event, line, limits)
    if event.type == "ERROR":
        raise from_status(_counted(_status, bytes(event.object), limits))
    return WatchedChange(event.type, event.object, decoder)


class Lines:
    """Lines that arrive in pieces of any size. None is copied with every piece that follows."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._bytes = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that end in a piece; raises AnswerOverLimit."""
        *lines, rest = piece.split(b"\n")
        if lines:
            lines[0] = b"".join((*self._parts, lines[0]))
            self._parts, self._bytes = [], 0
        self._parts.append(rest)
        self._bytes += len(rest)
        if max((self._bytes, *map(len, lines))) > self._longest:
            raise AnswerOverLimit(f"an event has more than {self._longest} bytes")
        return lines


_BY_REASON: dict[tuple[int, str], type[ApiError]] = {
    (one.code, one.reason): one
    for one in (
        errors.BadRequest, errors.Unauthorized, errors.Forbidden, errors.NotFound,
        errors.MethodNotAllowed, errors.NotAcceptable, errors.AlreadyExists, errors.Conflict,
        errors.Expired, errors.TooLarge, errors.UnsupportedMedia, errors.Invalid,
        errors.TooManyRequests, errors.InternalError, errors.Unavailable, errors.Timeout,
    )
}  # fmt: skip


def error_of(answer: Answer, limits: AnswerLimits) -> ApiError:
    """The error in an answer that is no success."""
    try:
        return from_status(_counted(_status, answer.body, limits))
    except (msgspec.DecodeError, AnswerRefused):
        return from_status(Status(code=answer.status, message="the response is not a Status"))


def from_status(status: Status) -> ApiError:
    """The error of the server, rebuilt from its Status."""
    class_ = _BY_REASON.get((status.code, status.reason))
    if class_ is None and status.code == Expired.code:
        class_ = Expired
    error = ApiError.__new__(class_ or ApiError)
    ApiError.__init__(error, status.message, status.details)
    if class_ is None:
        error.code, error.reason = status.code, status.reason
    return error
