"""gRPC calls over one HTTP/2 connection, for the few methods of etcd that the store uses.

Start with `GrpcConnection`: `call` sends one message and returns the response, `stream` opens a
call with many of both. All frames of one turn of the event loop are written together. Headers are
literals that enter no table, and we announce a table of size 0: no header block depends on an
earlier one, so the block of a method is computed once (docs/decisions/0029).

Flow control: received data is credited immediately; a stream whose reader is slow is not, once
`MOST_UNREAD` bytes wait. Requests wait for the peer's windows, for its number of streams, and while
the transport's buffer is full.
"""

import asyncio
import logging
from collections import deque
from typing import Final, cast

from orchid.kernel.store.etcd import frames
from orchid.kernel.store.etcd.frames import (
    CANCEL,
    DATA,
    END_HEADERS,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    GOAWAY,
    HEADERS,
    LARGEST_WINDOW,
    PING,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Frame,
    HeaderReader,
    Http2Reader,
    ProtocolError,
)
from orchid.kernel.store.etcd.grpc_calls import (
    INTERNAL,
    GrpcFailure,
    NotProcessed,
    RequestHeaders,
    StatusReceived,
    failure_of,
)
from orchid.kernel.store.etcd.grpc_stream import GrpcStream

log = logging.getLogger(__name__)

STREAM_WINDOW: Final = 1 << 20  # bytes that the peer may send ahead, on one stream
CONNECTION_WINDOW: Final = 1 << 24
MOST_UNREAD: Final = 4 << 20  # bytes of complete messages that wait for their reader
DEFAULT_WINDOW: Final = 65_535  # of HTTP/2, until settings say otherwise
TICK_SECONDS: Final = 0.1  # precision of deadlines
PING_AFTER_SECONDS: Final = 10.0  # of silence; etcd refuses more than one ping in 5 s
PONG_WITHIN_SECONDS: Final = 3.0


class GrpcConnection(asyncio.Protocol):
    """One connection. It is used up when `is_ready` is False; the owner opens another one."""

    def __init__(self, headers: RequestHeaders) -> None:
        self.loop = asyncio.get_running_loop()
        self.ready = self.loop.create_future()  # until the peer's settings have arrived
        self._headers = headers
        self._transport: asyncio.Transport | None = None
        self._reader = Http2Reader()
        self._header_reader = HeaderReader()
        self._streams: dict[int, GrpcStream] = {}
        self._waiting: deque[GrpcStream] = deque()  # for a free stream, or for the transport
        self._blocked: dict[int, GrpcStream] = {}  # wait for a window
        self._next_id = 1
        self._most_streams = LARGEST_WINDOW
        self._first_window = DEFAULT_WINDOW
        self._send_window = DEFAULT_WINDOW
        self._largest_frame = frames.LARGEST_FRAME
        self._uncredited = 0
        self._out: list[bytes] = []
        self._is_paused = False
        self._is_going = False  # the peer accepts no new streams
        self._heard = self.loop.time()
        self._pinged = 0.0  # time of a ping without a response
        self._tick: asyncio.TimerHandle | None = None

    @property
    def is_ready(self) -> bool:
        """Whether a call that is made now is sent immediately."""
        return self._transport is not None and self.ready.done() and not self._is_going

    # -- calls -------------------------------------------------------------------------------------

    async def call(self, path: str, message: bytes, seconds: float) -> bytes:
        """Send one message and return the only message of the response."""
        stream = self._open(path, seconds)
        stream.write(message, last=True)
        try:
            answer = await stream.read()
            if answer is None or await stream.read() is not None:
                raise StatusReceived(INTERNAL, "not exactly one message in an answer")
        finally:
            stream.cancel()
        return answer

    def stream(self, path: str) -> GrpcStream:
        """Open a call without a deadline."""
        return self._open(path, None)

    def close(self, reason: str = "the connection was closed") -> None:
        self._end(reason)

    def _open(self, path: str, seconds: float | None) -> GrpcStream:
        if not self.is_ready:
            raise NotProcessed("the connection is closed")
        deadline = None if seconds is None else self.loop.time() + seconds
        stream = GrpcStream(self, self._headers.block(path, seconds), deadline)
        if self._tick is None:
            self._tick = self.loop.call_later(TICK_SECONDS, self._check_times)
        return stream

    # -- sending -----------------------------------------------------------------------------------

    def send(self, stream: GrpcStream) -> None:
        """Send the data of a stream, as far as possible now."""
        if stream.done:
            return
        if self._transport is None:
            stream.finish(stream.lost("the connection is closed"))
            return
        if not stream.id:
            if self._is_paused or self._is_going or len(self._streams) >= self._most_streams:
                if stream not in self._waiting:
                    self._waiting.append(stream)
                return
            self._begin(stream)
        self._send_data(stream)

    def _begin(self, stream: GrpcStream) -> None:
        stream.id, self._next_id = self._next_id, self._next_id + 2
        stream.send_window = self._first_window
        self._streams[stream.id] = stream
        self._write(frames.frame(HEADERS, END_HEADERS, stream.id, stream.block))
        if self._next_id > LARGEST_WINDOW - 2:
            self._is_going = True  # no stream ids are left: the next call opens a new connection

    def _send_data(self, stream: GrpcStream) -> None:
        rest = stream.outgoing
        while rest and not self._is_paused:
            size = min(len(rest), self._largest_frame, stream.send_window, self._send_window)
            if size <= 0:
                break
            flags = END_STREAM if stream.ended and size == len(rest) else 0
            self._write(frames.frame(DATA, flags, stream.id, rest[:size]))
            stream.send_window -= size
            self._send_window -= size
            rest = rest[size:]
            stream.is_sent = bool(flags)
        stream.outgoing = rest
        if rest:
            self._blocked[stream.id] = stream

    def _resume(self) -> None:
        """Send data that waited for a window, a free stream or the transport."""
        blocked, self._blocked = self._blocked, {}
        for stream in blocked.values():
            if not stream.done:
                self._send_data(stream)
        for _ in range(len(self._waiting)):
            self.send(self._waiting.popleft())

    def _write(self, data: bytes) -> None:
        if not self._out:
            self.loop.call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        data, self._out = b"".join(self._out), []
        if self._transport is not None and data:
            self._transport.write(data)

    def cancel(self, stream: GrpcStream, failure: GrpcFailure) -> None:
        if stream.id:
            self._write(frames.reset(stream.id, CANCEL))
        self._finish(stream, failure)

    def _finish(self, stream: GrpcStream, failure: GrpcFailure | None) -> None:
        if stream.done:
            return
        self._streams.pop(stream.id, None)
        self._blocked.pop(stream.id, None)
        if not stream.id and stream in self._waiting:
            self._waiting.remove(stream)
        stream.finish(failure)
        if self._waiting and not self._is_paused:
            self._resume()
        if self._is_going and not self._streams:
            self._end("the connection was closed by etcd")

    # -- the transport -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        announced = frames.settings(
            {
                frames.HEADER_TABLE_SIZE: 0,
                frames.ENABLE_PUSH: 0,
                frames.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
            }
        )
        more = frames.window_update(0, CONNECTION_WINDOW - DEFAULT_WINDOW)
        self._transport.write(frames.PREFACE + announced + more)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("the connection was lost" if exc is None else f"the connection was lost: {exc}")

    def eof_received(self) -> bool:
        return False  # the transport closes itself

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._resume()

    def data_received(self, data: bytes) -> None:
        self._heard = self.loop.time()
        try:
            for frame in self._reader.feed(data):
                self._receive(frame)
        except ProtocolError as error:
            log.warning("etcd.protocol_error", extra={"error": str(error)})
            self._write(frames.goaway(error.code))
            self._flush()
            self._end(f"etcd broke the protocol: {error}")

    def _end(self, reason: str) -> None:
        transport, self._transport = self._transport, None
        if self._tick is not None:
            self._tick.cancel()
        if transport is not None:
            transport.close()
        if not self.ready.done():
            self.ready.set_exception(NotProcessed(reason))
        for stream in [*self._streams.values(), *self._waiting]:
            self._streams.pop(stream.id, None)
            stream.finish(stream.lost(reason))
        self._waiting.clear()
        self._blocked.clear()

    def _check_times(self) -> None:
        """End calls whose time is up; ping the peer if it has been silent."""
        now = self.loop.time()
        for stream in [*self._streams.values(), *self._waiting]:
            if stream.deadline is not None and stream.deadline <= now:
                self.cancel(stream, stream.lost("etcd did not answer in time"))
        if self._pinged and now - self._pinged > PONG_WITHIN_SECONDS:
            if self._transport is not None:
                self._transport.abort()  # closing would wait until it has accepted the written data
            self._end("etcd does not answer")
            return
        if self._streams and not self._pinged and now - self._heard > PING_AFTER_SECONDS:
            self._pinged = now
            self._write(frames.frame(PING, 0, 0, bytes(8)))
        busy = self._streams or self._waiting
        self._tick = self.loop.call_later(TICK_SECONDS, self._check_times) if busy else None

    # -- receiving ---------------------------------------------------------------------------------

    def _receive(self, frame: Frame) -> None:
        if self._transport is None:
            return
        if frame.kind == DATA:
            self._receive_data(frame)
        elif frame.kind == HEADERS:
            self._receive_headers(frame)
        elif frame.kind == WINDOW_UPDATE:
            self._receive_window(frame)
        elif frame.kind == RST_STREAM:
            self._receive_reset(frame)
        elif frame.kind == SETTINGS:
            self._receive_settings(frame)
        elif frame.kind == PING:
            self._receive_ping(frame)
        elif frame.kind == GOAWAY:
            self._receive_goaway(frame)

    def _receive_data(self, frame: Frame) -> None:
        stream = self._find(frame)
        self._uncredited += frame.size
        if self._uncredited > CONNECTION_WINDOW:
            raise ProtocolError(FLOW_CONTROL_ERROR, "more data than the connection's window")
        if self._uncredited > CONNECTION_WINDOW // 2:
            self._write(frames.window_update(0, self._uncredited))
            self._uncredited = 0
        if stream is None:
            return  # it was cancelled
        stream.uncredited += frame.size
        if stream.uncredited > STREAM_WINDOW:
            raise ProtocolError(FLOW_CONTROL_ERROR, "more data than the stream's window")
        stream.take(frame.payload)
        if frame.flags & END_STREAM:
            self._finish(stream, StatusReceived(INTERNAL, "an answer without a status"))
        else:
            self.credit(stream)

    def credit(self, stream: GrpcStream) -> None:
        """Let the peer send more on a stream, unless too much waits for its reader."""
        if stream.uncredited <= STREAM_WINDOW // 2 or stream.unread > MOST_UNREAD:
            return
        self._write(frames.window_update(stream.id, stream.uncredited))
        stream.uncredited = 0

    def _receive_headers(self, frame: Frame) -> None:
        headers = self._header_reader.read(frame.payload)
        stream = self._find(frame)
        if stream is None:
            return
        if stream.status is None:
            stream.status = headers.get(b":status", b"")
        if frame.flags & END_STREAM:
            self._finish(stream, failure_of(stream.status, headers))

    def _receive_window(self, frame: Frame) -> None:
        more = frames.read_number(frame.payload)
        if not frame.stream:
            self._send_window += more
            if not more or self._send_window > LARGEST_WINDOW:
                raise ProtocolError(FLOW_CONTROL_ERROR, "a window that is wrong")
        else:
            stream = self._find(frame)
            if stream is None:
                return
            stream.send_window += more
            if not more or stream.send_window > LARGEST_WINDOW:
                self.cancel(stream, stream.lost("etcd sent a window that is wrong"))
                return
        if self._blocked:
            self._resume()

    def _receive_reset(self, frame: Frame) -> None:
        stream = self._find(frame)
        if stream is None:
            return
        code = frames.read_number(frame.payload)
        reason = f"etcd reset the stream (code {code})"
        refused = NotProcessed(reason)
        self._finish(stream, refused if code == REFUSED_STREAM else stream.lost(reason))

    def _receive_settings(self, frame: Frame) -> None:
        if frame.flags & frames.ACK:
            return
        for name, value in frames.read_settings(frame.payload):
            if name == frames.INITIAL_WINDOW_SIZE:
                if value > LARGEST_WINDOW:
                    raise ProtocolError(FLOW_CONTROL_ERROR, "a window that is too large")
                for stream in self._streams.values():
                    stream.send_window += value - self._first_window
                self._first_window = value
            elif name == frames.MAX_FRAME_SIZE:
                if not frames.LARGEST_FRAME <= value < 1 << 24:
                    raise ProtocolError(PROTOCOL_ERROR, "a frame size that is not allowed")
                self._largest_frame = value
            elif name == frames.MAX_CONCURRENT_STREAMS:
                self._most_streams = value
        self._write(frames.frame(SETTINGS, frames.ACK, 0))
        if not self.ready.done():
            self.ready.set_result(None)
        self._resume()

    def _receive_ping(self, frame: Frame) -> None:
        if frame.flags & frames.ACK:
            self._pinged = 0.0
        else:
            self._write(frames.frame(PING, frames.ACK, 0, frame.payload))

    def _receive_goaway(self, frame: Frame) -> None:
        """Calls that the peer has not processed go elsewhere; the others may still complete."""
        self._is_going = True
        last = frames.read_number(frame.payload)
        reason = "etcd closes the connection"
        for stream in [*self._streams.values(), *self._waiting]:
            if not stream.id or stream.id > last:
                self._finish(stream, NotProcessed(reason))
        if not self._streams:
            self._end(reason)

    def _find(self, frame: Frame) -> GrpcStream | None:
        """The stream of a frame; None if it has ended on our side."""
        if frame.stream >= self._next_id or not frame.stream % 2:
            raise ProtocolError(PROTOCOL_ERROR, "a frame on a stream that was never opened")
        return self._streams.get(frame.stream)
