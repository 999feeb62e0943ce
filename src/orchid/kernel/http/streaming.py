"""Responses that take time: a suspended handler, an open stream, a long body.

`PendingRequest` continues a started coroutine in a task, with its deadline. `OpenStream` is the
`Sink` of one stream. `LongBody` is sent as the client reads it. Each belongs to one connection
(connection.py) until it is done.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from types import coroutine
from typing import Any, Protocol, TypeVar

from orchid.kernel.base.scheduling.shared_result import SharedResult, Step
from orchid.kernel.http.listener_state import ListenerState
from orchid.kernel.http.messages import (
    Arrived,
    CallerStatus,
    Chunk,
    Response,
    Sink,
    Stream,
)

log = logging.getLogger(__name__)

_PIECE = 128 << 10
_BYTES_AT_ONCE = 1 << 20  # of a long body, in one turn of the event loop
_LAST_CHUNK = b"0\r\n\r\n"

Answer = Response | Stream
Resume = Callable[[Arrived, Answer], None]


class StreamConnection(Protocol):
    """The connection, as a stream uses it."""

    blocked: bool  # the client does not read what is written

    def check_unsent(self) -> None:
        """Abort the connection if the client leaves too much unread."""

    def stream_finished(self, *, keep_alive: bool) -> None:
        """Continue with the next request, or close."""

    def abort(self) -> None:
        """Abort the connection; unsent data is lost."""


class PendingRequest:
    """A request whose handler waits for something.

    While it waits for a shared result (kernel/base/scheduling/shared_result.py), it needs no task.
    """

    __slots__ = ("_arrived", "_awaited", "_context", "_handling", "_resume", "_service", "_task")

    def __init__(
        self,
        resume: Resume,
        service: ListenerState,
        arrived: Arrived,
        handling: Coroutine[Any, Any, Answer],
        context: Context,
    ) -> None:
        self._resume: Resume | None = resume  # takes the response; None once it is not needed
        self._service = service
        self._arrived = arrived
        self._handling = handling
        self._context = context
        self._task: asyncio.Task[None] | None = None
        self._awaited: SharedResult[Any] | None = None
        service.deadlines.add(self, arrived.request.timeout)

    def wait_for(self, awaited: object) -> None:
        """Continue once there is a result."""
        service = self._service
        if isinstance(awaited, SharedResult):
            service.waiting.add(self)
            self._awaited = awaited
            awaited.add(self._step, service.run_steps)
            return
        rest = self._run(carry_on(self._handling, awaited))
        self._task = task = service.loop.create_task(rest, context=self._context)
        service.tasks.add(task)
        task.add_done_callback(service.tasks.discard)

    def let_go(self) -> None:
        """The client has gone: continue, and drop the response."""
        self._resume = None

    def _step(self) -> None:
        """Continue without a task."""
        if self not in self._service.waiting:
            return  # too late: the timeout was sent
        if self._awaited is None or not self._awaited.is_over:
            return  # cancelled since, it waits for something else
        self._service.waiting.discard(self)
        self._advance(self._handling.send, None)

    def _advance(self, step: Callable[[Any], object], value: object) -> None:
        answer: Answer
        try:
            awaited = self._context.run(step, value)
        except StopIteration as done:
            answer = done.value
        except (Exception, asyncio.CancelledError) as error:
            if self._arrived.answered:
                return  # too late: the timeout was sent
            answer = self._service.failed(self._arrived.request, error)
        else:
            self.wait_for(awaited)
            return
        self._service.deadlines.pop(self, None)
        self._deliver(answer)

    async def _run(self, rest: Coroutine[Any, Any, Answer]) -> None:
        answer: Answer
        try:
            answer = await rest
        except (Exception, asyncio.CancelledError) as error:
            if self._arrived.answered:
                return  # too late: the timeout was sent
            answer = self._service.failed(self._arrived.request, error)
        self._service.deadlines.pop(self, None)
        self._deliver(answer)

    def expire(self) -> None:
        """Respond instead of the handler, which has taken too long."""
        if self._task is not None:
            self._task.cancel()
            self._deliver(self._service.timeout_response)
            return
        self._deliver(self._service.timeout_response)
        self.cancel()

    def cancel(self) -> None:
        """Cancel the handler while it waits without a task."""
        self._service.waiting.discard(self)
        self._advance(self._handling.throw, asyncio.CancelledError())

    def _deliver(self, answer: Answer) -> None:
        resume, self._resume = self._resume, None
        if resume is not None and not self._arrived.answered:
            self._arrived.answered = True
            resume(self._arrived, answer)
            return
        self._arrived.answered = True
        if isinstance(answer, Stream):
            open_on(answer, closed_stream(self._service))


class PendingRecognition:
    """The pending authentication of the sender of a body. Little is read meanwhile."""

    __slots__ = ("_service", "_take", "_task")

    def __init__(
        self,
        take: Callable[[CallerStatus], None],
        service: ListenerState,
        rest: Coroutine[Any, Any, CallerStatus],
        context: Context,
    ) -> None:
        self._take: Callable[[CallerStatus], None] | None = take
        self._service = service
        self._task: asyncio.Task[None] = service.loop.create_task(self._run(rest), context=context)
        service.tasks.add(self._task)
        self._task.add_done_callback(service.tasks.discard)

    def let_go(self) -> None:
        """The client has gone: the result is not needed."""
        self._take = None
        self._task.cancel()

    async def _run(self, rest: Coroutine[Any, Any, CallerStatus]) -> None:
        try:
            status = await rest
        except Exception:  # the request itself will fail in the same way, and report it
            status = CallerStatus.UNKNOWN
        take, self._take = self._take, None
        if take is not None:
            take(status)


T = TypeVar("T")


@coroutine
def carry_on(started: Coroutine[Any, Any, T], awaited: object) -> Generator[Any, Any, T]:
    """Continue a coroutine that has run up to its first suspension, where it returned `awaited`.

    The task that runs this gets that same future, as if it had started the coroutine itself.
    """
    answer: T
    if isinstance(awaited, SharedResult):
        awaited = awaited.awaited_future()
    while True:
        try:
            yield awaited
        except BaseException as error:  # the coroutine handles it
            try:
                awaited = started.throw(error)
            except StopIteration as done:
                answer = done.value
                return answer
        else:
            answer = yield from started
            return answer


class OpenStream:
    """The sink of one stream."""

    __slots__ = (
        "_callbacks",
        "_chunked",
        "_connection",
        "_next_step",
        "_service",
        "_transport",
        "keep_alive",
    )

    def __init__(
        self,
        service: ListenerState,
        connection: StreamConnection | None,
        transport: asyncio.Transport | None,
        *,
        chunked: bool = False,
        keep_alive: bool = False,
    ) -> None:
        self._service = service
        self._connection = connection
        self._transport = transport
        self._chunked = chunked
        self.keep_alive = keep_alive
        self._callbacks: tuple[Callable[[], None], ...] = ()
        self._next_step: Step | None = None  # the next step when the client reads more

    @property
    def closed(self) -> bool:
        return self._connection is None

    def send(self, chunk: Chunk) -> None:
        connection, transport = self._connection, self._transport
        if connection is None or transport is None or not chunk.data:
            return
        if connection.blocked:
            connection.check_unsent()
        transport.write(chunk.framed if self._chunked else chunk.data)

    def when_taken(self, step: Step) -> None:
        if self._connection is None:
            return
        if self._connection.blocked:
            self._next_step = step
        else:
            self._service.streams.add(step)

    def taken(self) -> None:
        """The client has read the written data: continue."""
        step, self._next_step = self._next_step, None
        if step is not None:
            self._service.streams.add(step)

    def finish(self) -> None:
        connection, transport = self._connection, self._transport
        if connection is None or transport is None:
            return
        if self._chunked:
            transport.write(_LAST_CHUNK)
        self.end()
        connection.stream_finished(keep_alive=self.keep_alive and self._chunked)

    def abort(self) -> None:
        if self._connection is not None:
            self._connection.abort()

    def on_close(self, callback: Callable[[], None]) -> None:
        if self._connection is None:
            self._service.loop.call_soon(callback)
        else:
            self._callbacks = (*self._callbacks, callback)

    def end(self) -> None:
        """Close the sink; called by the connection, or by `finish`."""
        self._connection = self._transport = self._next_step = None
        callbacks, self._callbacks = self._callbacks, ()
        for callback in callbacks:
            self._service.loop.call_soon(callback)


class LongBody:
    """A body that is sent as the client reads it: a slow client costs no more than the body."""

    __slots__ = ("_body", "_connection", "_finished", "_sent", "_service", "_transport")

    def __init__(
        self,
        service: ListenerState,
        connection: StreamConnection,
        transport: asyncio.Transport,
        body: bytes | bytearray,
        finished: Step,
    ) -> None:
        self._service = service
        self._connection = connection
        self._transport = transport
        self._body = memoryview(body)
        self._sent = 0
        self._finished: Step | None = finished  # None once the rest is not needed

    def send(self) -> None:
        """Send as much as the client reads now, up to a limit."""
        if self._finished is None:
            return
        body, sent = self._body, self._sent
        most = min(sent + _BYTES_AT_ONCE, len(body))
        while sent < most and not self._connection.blocked:
            self._transport.write(body[sent : sent + _PIECE])
            sent += _PIECE
        self._sent = sent
        if sent >= len(body):
            self._finished()
        elif not self._connection.blocked:
            self._service.streams.add(self.send)

    def taken(self) -> None:
        """The client has read the written data: continue."""
        self._service.streams.add(self.send)

    def end(self) -> None:
        """Drop unsent data."""
        self._finished = None


def closed_stream(service: ListenerState) -> OpenStream:
    """The sink of a stream without a reader."""
    return OpenStream(service, None, None)


def open_on(stream: Stream, sink: OpenStream) -> None:
    """Notify the creator of a stream that it is open; on failure the client sees it break."""
    try:
        stream.open(sink)
    except Exception:
        log.exception("listener.stream_failed")
        sink.abort()


_: type[Sink] = OpenStream
