"""State shared by all connections of a listener: the handler, the limits, response heads, counters.

`ConnectionLimits` has the limits for clients. `ListenerState` is created by listener.py and passed
to each connection; it never touches a socket.
"""

import asyncio
import logging
from collections.abc import Callable
from contextvars import Context
from email.utils import formatdate
from http import HTTPStatus
from typing import Protocol

import msgspec

from orchid.kernel.base.clock import Monotonic
from orchid.kernel.base.scheduling.shared_result import Run, Step
from orchid.kernel.base.scheduling.step_queue import StepQueue
from orchid.kernel.http.budget import Budget
from orchid.kernel.http.deadlines import Deadlines
from orchid.kernel.http.messages import (
    Handler,
    HttpRequest,
    Recognize,
    Response,
)
from orchid.kernel.http.reading.head_rules import SMALLEST_REQUEST

log = logging.getLogger(__name__)

_PLAIN_TEXT = b"Content-Type: text/plain; charset=utf-8\r\n"
_LAST_RESORT = Response(500, _PLAIN_TEXT, b"500 Internal Server Error\n")

Failure = Callable[[HttpRequest, BaseException], Response]

# Pipelined requests of a connection that are processed in one turn of the event loop: several, or
# one while many connections have requests waiting, or after one that took long.
_ANSWERS_PER_TURN, _MANY_YIELDING = 8, 4
_LONG_TURN = 0.005  # seconds


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one client, or of all together; times in seconds."""

    max_header_bytes: int = 128 << 10
    max_headers: int = 1000
    max_body_bytes: int = 3 << 20
    max_connections: int = 16_000  # more wait in the operating system's queue
    # For unknown clients, all and per address; the oldest is dropped.
    max_unknown: int = 10_000
    max_unknown_per_address: int = 2_000
    max_handshakes: int = 2_000
    max_handshakes_per_address: int = 500
    max_unread_bytes: int = 64 << 20  # of their unfinished requests
    max_unread_bytes_per_address: int = 16 << 20
    max_pipelined: int = 400  # requests read ahead of the current one
    max_unsent_bytes: int = 1 << 20  # unread bytes of a watcher before it is disconnected
    max_unsent_answers: int = 256 << 20  # unread bytes of responses, of all clients together
    max_unsent_answers_per_address: int = 128 << 20
    max_held_bytes: int = 64 << 10  # bytes read ahead while a request is processed
    header_timeout: float = 32.0
    body_timeout: float = 60.0
    idle_timeout: float = 90.0
    request_timeout: float = 60.0
    write_timeout: float = 60.0  # a client that reads nothing for so long is disconnected
    linger: float = 0.5  # how long a refused client may take to stop sending

    @property
    def piece_bytes(self) -> int:
        """The number of bytes to parse in one call.

        The parser cannot be stopped inside its input, so that a piece is too short to hold more
        than `max_pipelined` requests.
        """
        return self.max_pipelined * SMALLEST_REQUEST

    @property
    def shortest(self) -> float:
        """The shortest of the times that are checked periodically."""
        return min(
            self.header_timeout,
            self.body_timeout,
            self.idle_timeout,
            self.write_timeout,
            self.linger,
        )


class OpenConnection(Protocol):
    """A connection, as the listener uses it."""

    deadline: float  # the next timeout (ListenerState.monotonic)

    @property
    def known(self) -> bool:
        """Whether a request on it was authenticated."""

    def expire(self, now: float) -> None:
        """End what has taken too long."""

    def drain(self) -> None:
        """Shut down after the current response."""

    def abort(self) -> None:
        """Abort the connection."""


class SuspendedRequest(Protocol):
    """A request that waits without a task."""

    def cancel(self) -> None:
        """Cancel its handler."""


class ListenerState:
    """The listener, as a connection uses it."""

    __slots__ = (
        "connections",
        "context",
        "cut_off",
        "deadlines",
        "draining",
        "dropped",
        "failure",
        "handler",
        "heads",
        "limits",
        "loop",
        "monotonic",
        "piece_bytes",
        "quiet",
        "recognize",
        "refusals",
        "requests",
        "run_steps",
        "streams",
        "tasks",
        "timeout_response",
        "unknown",
        "unread",
        "unsent",
        "waited_since",
        "waiting",
        "yielding",
    )

    loop: asyncio.AbstractEventLoop  # set when listening starts
    context: Context  # as of then; each request runs in a copy
    streams: StepQueue  # for data sent in pieces; set then too

    def __init__(
        self,
        handler: Handler,
        limits: ConnectionLimits,
        timeout_response: Response,
        failure: Failure,
        *,
        recognize: Recognize | None,
        monotonic: Monotonic,
    ) -> None:
        self.handler = handler
        self.recognize = recognize
        self.monotonic = monotonic  # the clock of every deadline
        self.limits = limits
        self.timeout_response = timeout_response
        self.failure = failure
        self.piece_bytes = limits.piece_bytes
        self.connections: set[OpenConnection] = set()
        # Connections of unknown clients, and the bytes of their unfinished requests.
        self.unknown = Budget[OpenConnection](limits.max_unknown, limits.max_unknown_per_address)
        self.unread = Budget[OpenConnection](
            limits.max_unread_bytes, limits.max_unread_bytes_per_address
        )
        # Response bodies that clients have not read yet.
        self.unsent = Budget[OpenConnection](
            limits.max_unsent_answers, limits.max_unsent_answers_per_address
        )
        self.tasks: set[asyncio.Task[None]] = set()
        self.waiting: set[SuspendedRequest] = set()  # requests that wait without a task
        self.run_steps: Run = run_all  # continues with them
        self.waited_since = 0.0  # (see stages.py)
        self.deadlines = Deadlines(monotonic)  # of requests that wait for something
        self.draining = False
        self.quiet = asyncio.Event()  # set once draining has no connection left to wait for
        self.requests = 0
        self.refusals = 0
        self.cut_off = 0
        self.dropped = 0
        self.yielding = 0  # connections with waiting requests that let others go first
        self.heads: dict[int, bytes] = {}  # of responses; missing ones are created by `head`

    def head(self, status: int) -> bytes:
        """The status line and the date, which change once a second at most."""
        head = self.heads.get(status)
        if head is None:
            head = self.heads[status] = (
                f"HTTP/1.1 {status} {phrase(status)}\r\nDate: {formatdate(usegmt=True)}\r\n"
            ).encode("ascii")
        return head

    def tick(self) -> None:
        """Clear the heads, because the time in them has passed."""
        self.heads.clear()

    def is_turn_over(self, answered: int, since: float) -> bool:
        """Whether a connection with pipelined requests must let others go first."""
        if answered == _ANSWERS_PER_TURN or self.yielding >= _MANY_YIELDING:
            return True
        return self.monotonic() - since > _LONG_TURN

    def failed(self, request: HttpRequest, error: BaseException) -> Response:
        """Convert the exception of a handler into a response, whatever happens."""
        try:
            return self.failure(request, error)
        except Exception:
            log.exception("listener.failure_failed")
            return _LAST_RESORT

    def drop_excess(self, address: str) -> None:
        """Drop the oldest connections of unknown clients beyond a limit."""
        while (holder := self.unread.excess(address)) is not None:
            self.drop(holder)
        while (holder := self.unknown.excess(address)) is not None:
            if holder.known:
                self.unknown.release(holder)  # it is no longer counted
            else:
                self.drop(holder)

    def oldest_unknown(self) -> OpenConnection | None:
        """The connection to drop first when there is no room."""
        while (holder := self.unknown.oldest()) is not None and holder.known:
            self.unknown.release(holder)
        return holder

    def drop(self, holder: OpenConnection) -> None:
        """End a connection of an unknown client to make room."""
        self.unread.release(holder)
        self.unknown.release(holder)
        self.dropped += 1
        holder.abort()

    def hold_unsent(self, holder: OpenConnection, address: str, size: int) -> None:
        """Count a response for a slow client; the longest waiting clients are dropped for room."""
        self.unsent.hold(holder, address, size)
        while (other := self.unsent.excess(address)) not in (None, holder):
            self.cut_off += 1
            self.unsent.release(other)
            other.abort()

    def settle(self) -> None:
        """A connection has ended."""
        if self.draining and not self.connections:
            self.quiet.set()


def run_all(steps: list[Step]) -> None:
    """Run steps one after the other; replaced by the stages of a listener."""
    for step in steps:
        step()


def phrase(status: int) -> str:
    """The reason phrase of a status; empty for unknown ones."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def plain(status: int) -> Response:
    """The short response to a malformed request."""
    return Response(status, _PLAIN_TEXT, f"{status} {phrase(status)}\n".encode("ascii"))
