"""The messages between a worker and its parent, and the encoding of store errors.

A worker sends requests (`Commits`, `Read`, `Replay`, `Compact`, `Gather`, each with a number that
the response repeats) and reports (`Ready`, `UnfitMessage`, `Alive`, `Counted`, `ResetCounts`). The
parent sends responses (`Outcomes`, `FoundMessage`, `HistoryMessage`, `Done`, `Gathered`,
`RefusedMessage`), notifications (`Happened`, `Moved`, `Forgotten`) and commands (`Begin`, `Open`,
`Alive`, `Count`, `ResetCounts`). All go over one stream, so their order matters: `Happened` comes
before the `Outcomes` of its commits.

Every message is a msgpack array with a leading number; framing.py adds its length.
"""

from typing import Any, Final, TypeVar

import msgspec

from orchid.kernel.store.interface import (
    Change,
    Compacted,
    DeleteRange,
    FutureRevision,
    Outcome,
    Record,
    Revision,
    RevisionConflict,
    StoreError,
    StoreEvent,
    StoreFull,
    StoreUnavailable,
    ValueTooLarge,
)
from orchid.kernel.workers.framing import Astray, Buffer, framed

LARGEST_COMMIT: Final = 64 << 20
"""Bytes of values in one commit; ten times the limit of a request."""


class WorkerMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message of either end."""


# Requests of a worker


class Commits(WorkerMessage, frozen=True, tag=1):
    """All commits of a worker in one turn of its loop; each is independent.

    One that deletes a range comes alone.
    """

    number: int
    commits: list[tuple[Change, ...]]
    delete: DeleteRange | None = None


class Read(WorkerMessage, frozen=True, tag=2):
    number: int
    start: str
    end: str
    at: Revision
    limit: int


class Replay(WorkerMessage, frozen=True, tag=3):
    """Request the next part of the history after a revision."""

    number: int
    start: str
    end: str
    after: Revision


class Compact(WorkerMessage, frozen=True, tag=4):
    number: int
    before: Revision


class Gather(WorkerMessage, frozen=True, tag=5):
    """Request the counts of the others, with this worker's own, as kernel/base/metrics.py packs
    them.
    """

    number: int
    counts: bytes


# Reports of a worker


class Ready(WorkerMessage, frozen=True, tag=10):
    """Everything is loaded (and, by the first worker, prepared): this one can serve."""


class UnfitMessage(WorkerMessage, frozen=True, tag=11):
    """A setting keeps this worker from starting; the message is for the operator.

    Nothing follows: the parent closes the connection.
    """

    problem: str


class Alive(WorkerMessage, frozen=True, tag=12):
    """A heartbeat: sent by a worker every second, and sent back by the parent."""


class Counted(WorkerMessage, frozen=True, tag=13):
    """The counts of this worker, requested by the parent."""

    counts: bytes


class ResetCounts(WorkerMessage, frozen=True, tag=14):
    """Reset all counters; sent by one worker, and forwarded to all others."""


# Responses of the parent


class Done(WorkerMessage, frozen=True, tag=20):
    """Compacted up to a revision."""

    number: int
    revision: Revision


class FoundMessage(WorkerMessage, frozen=True, tag=21):
    number: int
    records: list[Record]
    revision: Revision
    more: bool
    oldest: Revision


class HistoryMessage(WorkerMessage, frozen=True, tag=22):
    number: int
    events: tuple[StoreEvent, ...]
    revision: Revision


class Gathered(WorkerMessage, frozen=True, tag=24):
    """The counts of each other worker, and of ended ones."""

    number: int
    counts: list[bytes]


class RefusedMessage(WorkerMessage, frozen=True, tag=23):
    """A store's error: its name, its text, and its other values."""

    number: int
    error: str
    text: str
    revisions: tuple[Revision, Revision] = (0, 0)
    key: str = ""
    record: Record | None = None


class Outcomes(WorkerMessage, frozen=True, tag=25):
    """The result of each commit in one message, in order."""

    number: int
    outcomes: list[Revision | RefusedMessage]


# Notifications of the parent


class Happened(WorkerMessage, frozen=True, tag=30):
    """The events since the last message."""

    events: tuple[StoreEvent, ...]
    revision: Revision


class Moved(WorkerMessage, frozen=True, tag=31):
    """The store is at a revision; the changes up to it have to be read from its history."""

    revision: Revision


class Forgotten(WorkerMessage, frozen=True, tag=32):
    """The history before this revision was compacted."""

    oldest: Revision


# Commands of the parent


class Begin(WorkerMessage, frozen=True, tag=40):
    """The first message to a worker: its role, and the revision of the store."""

    given: dict[str, Any]  # every setting as written
    listens: bool  # it serves clients
    prepares: bool  # it writes the objects that must always exist, before any worker serves
    controls: bool  # it runs the controllers
    sockets: tuple[int, ...]  # inherited descriptors
    counter: int
    revision: Revision
    oldest: Revision


class Open(WorkerMessage, frozen=True, tag=41):
    """Everything is prepared: accept connections."""


class Count(WorkerMessage, frozen=True, tag=42):
    """Report your counts."""


Request = Commits | Read | Replay | Compact | Gather
Report = Ready | UnfitMessage | Alive | Counted | ResetCounts
Answer = Outcomes | FoundMessage | HistoryMessage | Done | Gathered | RefusedMessage
News = Happened | Moved | Forgotten
Direction = Begin | Open | Alive | Count | ResetCounts

_encode = msgspec.msgpack.Encoder().encode
_from_worker: msgspec.msgpack.Decoder[Request | Report]
_from_worker = msgspec.msgpack.Decoder(Request | Report)
_from_parent: msgspec.msgpack.Decoder[Answer | News | Direction]
_from_parent = msgspec.msgpack.Decoder(Answer | News | Direction)
T = TypeVar("T")


def packed(message: WorkerMessage) -> bytes:
    """A message as bytes."""
    return framed(_encode(message))


def from_worker(data: Buffer) -> Request | Report:
    return _decoded(_from_worker, data)


def from_parent(data: Buffer) -> Answer | News | Direction:
    return _decoded(_from_parent, data)


def _decoded(decoder: msgspec.msgpack.Decoder[T], data: Buffer) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise Astray(f"not a message: {problem}") from None


# Errors

_BY_NAME: Final[dict[str, type[StoreError]]] = {
    error.__name__: error for error in (StoreUnavailable, StoreFull, ValueTooLarge, StoreError)
}


def refusal(number: int, error: BaseException) -> RefusedMessage:
    """An error as a message; the text of an unexpected one is not sent."""
    if isinstance(error, RevisionConflict):
        return RefusedMessage(number, "Conflict", "", key=error.key, record=error.actual)
    if isinstance(error, Compacted):
        return RefusedMessage(number, "Compacted", "", (error.asked, error.oldest))
    if isinstance(error, FutureRevision):
        return RefusedMessage(number, "FutureRevision", "", (error.asked, error.newest))
    if isinstance(error, ValueError):
        return RefusedMessage(number, "ValueError", str(error))
    if isinstance(error, StoreError):
        name = type(error).__name__
        return RefusedMessage(number, name if name in _BY_NAME else "Unavailable", str(error))
    return RefusedMessage(number, "Unavailable", "the store has failed")


def outcomes_of(number: int, outcomes: list[Outcome]) -> Outcomes:
    """The results of commits, as a message."""
    said = [refusal(number, each) if isinstance(each, Exception) else each for each in outcomes]
    return Outcomes(number, said)


def error_in(refused: RefusedMessage) -> Exception:
    """The error in a message, as the store itself would have raised it."""
    if refused.error == "Conflict":
        return RevisionConflict(refused.key, refused.record)
    if refused.error == "Compacted":
        return Compacted(*refused.revisions)
    if refused.error == "FutureRevision":
        return FutureRevision(*refused.revisions)
    if refused.error == "ValueError":
        return ValueError(refused.text)
    return _BY_NAME.get(refused.error, StoreUnavailable)(refused.text)
