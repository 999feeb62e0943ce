"""One connection: requests in, responses out, in order, with limits on everything.

Start with `parse` and `proceed`. One request is processed at a time; further data is
buffered, up to a limit, and then reading pauses. The same happens when the client does not read its
responses. `deadline` is the time of the next timeout; listener.py calls `expire` when it has
passed.

The sender of a body is authenticated before it is read: see unfinished.py.

A connection never interprets a request: that is the handler's work.
"""

import asyncio
from math import inf
from typing import cast

from orchid.kernel.http import response_heads
from orchid.kernel.http.budget import network_of
from orchid.kernel.http.listener_state import ListenerState, plain
from orchid.kernel.http.messages import Arrived, CallerStatus, Response, Stream
from orchid.kernel.http.peer import peer_of, unsent_bytes
from orchid.kernel.http.reading.reader import BETWEEN, BODY, CLOSE_SILENTLY, HEAD, RequestReader
from orchid.kernel.http.response_heads import BODILESS, CLOSE, JOIN_UP_TO, KEEP_ALIVE, LENGTHS
from orchid.kernel.http.streaming import (
    Answer,
    LongBody,
    OpenStream,
    PendingRecognition,
    PendingRequest,
    closed_stream,
    open_on,
)
from orchid.kernel.http.tls.channel import ServedProtocol
from orchid.kernel.http.unfinished import UnfinishedRequest
from orchid.kernel.http.websocket import SWITCHING, WebSocketStream

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_REQUEST_TIMEOUT = 408


class Connection(ServedProtocol):
    """The asyncio protocol of one client."""

    __slots__ = (
        "_closing",
        "_current",
        "_eof",
        "_held",
        "_lingering",
        "_peer_is_verified",
        "_proceeding",
        "_reader",
        "_reading_paused",
        "_service",
        "_timed_phase",
        "_transport",
        "_unfinished",
        "_unsent",
        "_yielding",
        "blocked",
        "deadline",
    )

    _transport: asyncio.Transport
    _reader: RequestReader
    _unfinished: UnfinishedRequest

    def __init__(self, service: ListenerState, *, peer_is_verified: bool = False) -> None:
        self._service = service
        self._peer_is_verified = peer_is_verified
        self._current: PendingRequest | PendingRecognition | OpenStream | LongBody | None = None
        self._held = bytearray()
        self._eof = False
        self._closing = False
        self._lingering = False
        self._proceeding = False
        self._yielding = False  # other connections get a turn before this one continues
        self._reading_paused = False
        self.blocked = False  # the client does not read what is written
        self._unsent = 0
        self._timed_phase: int | None = BETWEEN
        self.deadline = inf

    # Callbacks of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        limits = self._service.limits
        self._reader = RequestReader(
            peer_of(transport, verified_by_tls=self._peer_is_verified),
            max_header_bytes=limits.max_header_bytes,
            max_headers=limits.max_headers,
            max_body_bytes=limits.max_body_bytes,
            request_timeout=limits.request_timeout,
        )
        self.deadline = self._service.monotonic() + limits.header_timeout
        address = network_of(transport.get_extra_info("peername"))
        self._unfinished = UnfinishedRequest(self._service, self, self._reader, self._held, address)
        self._service.connections.add(self)
        self._service.unknown.hold(self, address)
        self._service.drop_excess(address)
        if self._service.draining:
            self._close()

    def data_received(self, data: bytes) -> None:
        self.parse(data)
        self.proceed()

    def parse(self, data: bytes) -> None:
        if self._closing:
            return
        if (
            self._current is not None
            or self.blocked
            or self._yielding
            or len(data) > self._service.piece_bytes
        ):
            self._hold(data)
        else:
            self._reader.feed(data)

    def eof_received(self) -> bool:
        """Keep a half-closed connection open while a response is pending.

        A watcher that stops sending is treated as gone, because closing a socket looks the same.
        """
        self._eof = True
        if self._transport.get_extra_info("sslcontext") is not None:
            return False  # TLS has no half-closed connections here
        waits = self.blocked or self._yielding or bool(self._held)
        owes = waits or isinstance(self._current, PendingRequest | LongBody)
        return owes and not self._closing

    def pause_writing(self) -> None:
        self.blocked = True
        self._unsent = unsent_bytes(self._transport)
        self.deadline = self._service.monotonic() + self._service.limits.write_timeout

    def resume_writing(self) -> None:
        self.blocked = False
        if self._closing:
            return
        self._timed_phase = None
        self.deadline = inf
        if isinstance(self._current, OpenStream | LongBody):
            self._current.taken()
        self.proceed()

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self.deadline = inf
        self._part_from_current()
        self._reader.close()
        self._reader.ready.clear()
        self._held.clear()
        self._service.unknown.release(self)
        self._service.unread.release(self)
        self._service.unsent.release(self)
        self._service.connections.discard(self)
        del self._unfinished  # it refers back to us: without it we are freed immediately
        self._service.settle()

    # Calls of the listener

    @property
    def known(self) -> bool:
        return self._reader.peer.known

    def expire(self, now: float) -> None:
        """The deadline has passed: end what has taken too long."""
        if self._lingering:
            self._lingering = False
            self.deadline = now + self._service.limits.write_timeout
            self._transport.close()
        elif self.blocked or self._closing:
            self._expire_writing(now)
        elif self._reader.phase == BETWEEN:
            self._close()
        else:
            self._refuse(_REQUEST_TIMEOUT)

    def drain(self) -> None:
        """Shut down: finish a stream, close when idle, else after the current response."""
        if isinstance(self._current, OpenStream):
            self._current.finish()
        elif not self._is_busy() and self._reader.phase == BETWEEN:
            self._close()

    def abort(self) -> None:
        """Abort the connection; unsent data is lost."""
        self._closing = True
        self.deadline = inf
        self._part_from_current()
        self._transport.abort()

    # Reading

    def _is_busy(self) -> bool:
        return self._current is not None or self.blocked or self._closing or self._yielding

    def _hold(self, data: bytes) -> None:
        if isinstance(self._current, WebSocketStream):
            self._current.receive(data)
            return
        self._held += data
        if len(self._held) > self._service.limits.max_held_bytes and not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()
        if isinstance(self._current, PendingRecognition):
            self._unfinished.count()

    def proceed(self) -> None:
        """Process received requests, as far as possible without waiting."""
        if self._proceeding or self._yielding:
            return
        self._proceeding = True
        reader, held = self._reader, self._held
        ready, size = reader.ready, self._service.piece_bytes
        begun, since = 0, inf
        while self._current is None and not self.blocked and not self._closing:
            if ready:
                if begun and self._service.is_turn_over(begun, since):
                    self._yield()
                    break
                if not begun and (held or len(ready) > 1):
                    since = self._service.monotonic()
                begun += 1
                self._begin(ready.pop(0))
            elif held:
                piece = bytes(held[:size])
                del held[:size]
                reader.feed(piece)
            else:
                self._rest()
                if not ready:
                    break
        self._proceeding = False

    def _yield(self) -> None:
        """Let other connections go first, since this one has sent many requests."""
        self._yielding = True
        self._service.yielding += 1
        self.deadline = inf
        self._service.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._yielding = False
        self._service.yielding -= 1
        self.proceed()

    def _rest(self) -> None:
        """Wait for more data: set the deadline, and send pending data meanwhile."""
        reader = self._reader
        if self._reading_paused:
            self._reading_paused = False
            self._transport.resume_reading()
        if reader.refusal:
            self._refuse(reader.refusal)
            return
        phase = reader.phase
        if self._eof or (self._service.draining and phase == BETWEEN):
            self._close()
            return
        if phase != self._timed_phase:
            self._timed_phase = phase
            limits = self._service.limits
            patience = limits.idle_timeout
            if phase in (HEAD, BODY):
                patience = limits.header_timeout if phase == HEAD else limits.body_timeout
            self.deadline = self._service.monotonic() + patience
        if phase != BETWEEN and not self._may_go_on(reader):
            return
        if reader.wants_continue:
            reader.wants_continue = False
            self._transport.write(_CONTINUE)

    def _may_go_on(self, reader: RequestReader) -> bool:
        """Authenticate the sender of a body, and count unfinished requests of unknown clients."""
        unfinished = self._unfinished
        if reader.arriving is not None and unfinished.sender is None:
            self._current = unfinished.ask(reader.arriving, self._recognized)
            if reader.ready:
                return False
        if unfinished.sender is not CallerStatus.KNOWN:
            unfinished.count()
        return self._current is None and not self._closing

    def _recognized(self, sender: CallerStatus) -> None:
        self._current = None
        self._unfinished.recognize(sender)
        self.proceed()

    # Responses

    def _begin(self, arrived: Arrived) -> None:
        """Run the handler; most finish without awaiting, and need no task."""
        service = self._service
        service.requests += 1
        arrived.request.waited_since = service.waited_since
        self._timed_phase = None
        unfinished = self._unfinished
        unfinished.sender = None
        if unfinished.counted:
            unfinished.release()
        context = service.context.copy()
        answer: Answer
        try:
            handling = service.handler(arrived.request)
            awaited = context.run(handling.send, None)
        except StopIteration as done:
            answer = done.value
        except (Exception, asyncio.CancelledError) as error:
            answer = service.failed(arrived.request, error)
        else:
            self.deadline = inf
            current = PendingRequest(self._resume_with, service, arrived, handling, context)
            self._current = current
            current.wait_for(awaited)
            return
        if isinstance(answer, Response):
            self._write(arrived, answer)  # as nearly always
        else:
            self._answer(arrived, answer)

    def _resume_with(self, arrived: Arrived, answer: Answer) -> None:
        """Take the result of a handler that was suspended, and continue."""
        self._current = None
        if isinstance(answer, Response):
            self._write(arrived, answer)
        else:
            self._answer(arrived, answer)
        self.proceed()

    def _answer(self, arrived: Arrived, answer: Answer) -> None:
        if isinstance(answer, Stream):
            self._open(arrived, answer)
        else:
            wrong = TypeError(f"a handler answered with {type(answer).__name__}")
            self._write(arrived, self._service.failed(arrived.request, wrong))

    def _keeps_alive(self, arrived: Arrived) -> bool:
        if not arrived.keep_alive or self._service.draining:
            return False
        return not self._eof or bool(self._reader.ready or self._held)

    def _write(self, arrived: Arrived, response: Response) -> None:
        service = self._service
        is_last = self._eof or service.draining or not arrived.keep_alive
        keep_alive = not is_last or self._keeps_alive(arrived)
        status, body = response.status, response.body
        head = service.heads.get(status) or service.head(status)
        connection = b""
        if not keep_alive:
            connection = CLOSE
        elif not arrived.chunked:
            connection = KEEP_ALIVE
        size = len(body)
        length = LENGTHS[size] if size < len(LENGTHS) else b"Content-Length: %d\r\n\r\n" % size
        if status in BODILESS:
            self._transport.write(b"".join((head, response.headers, connection, b"\r\n")))
        elif arrived.request.method == "HEAD":
            self._transport.write(b"".join((head, response.headers, connection, length)))
        elif size <= JOIN_UP_TO:
            self._transport.write(b"".join((head, response.headers, connection, length, body)))
        else:
            self._transport.write(b"".join((head, response.headers, connection, length)))
            self._write_long(response, keep_alive=keep_alive, lingers=arrived.lingers)
            return
        if not keep_alive:
            self._close(lingers=arrived.lingers)

    def _write_long(self, response: Response, *, keep_alive: bool, lingers: bool) -> None:
        """Send a body as the client reads it; most read it immediately."""

        def finished() -> None:
            self._current = None
            self._service.unsent.release(self)
            if keep_alive:
                self.proceed()
            else:
                self._close(lingers=lingers)

        current = LongBody(self._service, self, self._transport, response.body, finished)
        self._current = current
        self.deadline = inf
        current.send()
        if self._current is current and not response.is_cached:
            self._service.hold_unsent(self, self._unfinished.address, len(response.body))

    def _open(self, arrived: Arrived, stream: Stream) -> None:
        if stream.status == SWITCHING:
            self._transport.write(response_heads.SWITCHING + stream.headers + b"\r\n")
            self._run(stream, WebSocketStream(self._service, self, self._transport))
            return
        chunked = arrived.chunked
        keep_alive = chunked and self._keeps_alive(arrived)
        start = self._service.head(stream.status)
        head = response_heads.stream_head(start, stream, chunked=chunked, keep_alive=keep_alive)
        self._transport.write(head)
        if arrived.request.method == "HEAD":
            open_on(stream, closed_stream(self._service))
            self.stream_finished(keep_alive=keep_alive)
            return
        transport = self._transport
        sink = OpenStream(self._service, self, transport, chunked=chunked, keep_alive=keep_alive)
        self._run(stream, sink)

    def _run(self, stream: Stream, sink: OpenStream) -> None:
        self.deadline = inf
        self._current = sink
        self._reader.forget()
        open_on(stream, sink)
        if self._service.draining:
            sink.finish()

    # Streams

    def check_unsent(self) -> None:
        """Disconnect a watcher that leaves too much unread: the data is in our memory."""
        if self._transport.get_write_buffer_size() > self._service.limits.max_unsent_bytes:
            self._service.cut_off += 1
            self.abort()

    def stream_finished(self, *, keep_alive: bool) -> None:
        """Continue after a stream, or close."""
        self._current = None
        if keep_alive and not self._eof and not self._service.draining:
            self.proceed()
        else:
            self._close()

    # Shutdown

    def _refuse(self, status: int) -> None:
        self._service.refusals += 1
        if status == CLOSE_SILENTLY:
            self._close()
            return
        self._transport.write(response_heads.last_answer(self._service.head(status), plain(status)))
        self._close(lingers=True)

    def _close(self, *, lingers: bool = False) -> None:
        """Close once everything is sent.

        A client that may still be sending gets a moment, because closing with unread bytes resets
        the connection, and the reset overtakes the response.
        """
        self._closing = True
        self._reader.close()
        self._held.clear()
        limits = self._service.limits
        patience = limits.linger if lingers else limits.write_timeout
        self._lingering = lingers
        self.deadline = self._service.monotonic() + patience
        if not lingers:
            self._transport.close()
        else:
            self._discard_input()

    def _discard_input(self) -> None:
        if self._reading_paused:
            self._reading_paused = False
            self._transport.resume_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _part_from_current(self) -> None:
        current, self._current = self._current, None
        if isinstance(current, PendingRequest | PendingRecognition):
            current.let_go()
        elif current is not None:
            current.end()

    def _expire_writing(self, now: float) -> None:
        unsent = unsent_bytes(self._transport)
        if 0 < unsent < self._unsent:
            self._unsent = unsent  # slow, but it reads
            self.deadline = now + self._service.limits.write_timeout
        else:
            self.abort()
