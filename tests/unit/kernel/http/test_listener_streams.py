"""Streams: framing, order, endings, and watchers that do not keep up; and draining."""

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from orchid.kernel.http.listener import PIECES_AT_ONCE, ConnectionLimits
from orchid.kernel.http.messages import Chunk, HttpRequest, Response, Sink, Stream
from orchid.kernel.http.reading.reader import HEAD
from tests.unit.kernel.http.listening import (
    PATIENCE,
    TEXT,
    echo,
    living,
    serving,
    until,
    without_collections,
)


class Watches:
    """A handler whose streams the test holds in its hands."""

    def __init__(self, first: Callable[[Sink], None] = lambda sink: None) -> None:
        self.sinks: list[Sink] = []
        self.closed: list[Sink] = []
        self._first = first

    async def __call__(self, request: HttpRequest) -> Response | Stream:
        if request.path == "/later":
            await asyncio.sleep(0)
        return Stream(200, TEXT, self.open) if request.path != "/plain" else await echo(request)

    def open(self, sink: Sink) -> None:
        self.sinks.append(sink)
        sink.on_close(lambda: self.closed.append(sink))
        self._first(sink)


def test_a_chunk_is_framed_once_and_an_empty_one_not_at_all() -> None:
    """An empty chunk would end the stream."""
    assert Chunk(b"x" * 300).framed == b"12c\r\n" + b"x" * 300 + b"\r\n"
    assert Chunk(b"").framed == b""


@pytest.mark.parametrize("path", ["/", "/later"])
async def test_a_stream_is_chunked_and_the_connection_goes_on_after_it(path: str) -> None:
    """Pieces as they are sent, a final chunk, then the next answer."""
    watches = Watches()
    async with serving(watches) as running:
        client = await running.connect()
        client.get(path)
        client.get("/plain")
        head = await client.head()
        [sink] = watches.sinks
        for data in (b"one", b"", b"two"):
            sink.send(Chunk(data))
        sink.finish()

        body = await client.exactly(len(b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"))
        after = await client.answer()

        assert head.headers["transfer-encoding"] == "chunked"
        assert "content-length" not in head.headers
        assert body == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
        assert after.body == b"GET /plain "
        assert sink.closed
        assert watches.closed == [sink]


async def test_a_stream_may_end_before_it_has_begun() -> None:
    """Everything inside `opened`, several times in a row."""

    def all_at_once(sink: Sink) -> None:
        sink.send(Chunk(b"x"))
        sink.finish()
        sink.send(Chunk(b"ignored"))
        sink.finish()

    watches = Watches(all_at_once)
    async with serving(watches) as running:
        client = await running.connect()
        for path in ("/", "/later", "/"):
            client.get(path)
        for _ in range(3):
            assert (await client.head()).status == 200
            assert await client.exactly(11) == b"1\r\nx\r\n0\r\n\r\n"

        await until(lambda: watches.closed == watches.sinks)


async def test_a_stream_that_is_over_is_freed_without_a_garbage_collection() -> None:
    """Even when a callback keeps a reference to it until then."""
    ended: list[int] = []

    async def handler(request: HttpRequest) -> Stream:
        stream = Stream(200, TEXT, lambda sink: None)
        stream.on_close(lambda: ended.append(stream.status))
        return stream

    async with serving(handler) as running:
        client = await running.connect()
        client.get("/")
        await client.head()
        with without_collections():
            await client.close()
            await until(lambda: ended == [200])

            assert living(Stream) == []


async def test_old_clients_get_the_bare_data_and_the_end() -> None:
    """HTTP/1.0 knows no chunks; the stream ends with the connection."""
    watches = Watches()
    async with serving(watches) as running:
        client = await running.connect()
        client.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        head = await client.head()
        [sink] = watches.sinks
        sink.send(Chunk(b"data"))
        sink.finish()

        assert head.headers["connection"] == "close"
        assert "transfer-encoding" not in head.headers
        assert await client.rest() == b"data"


async def test_head_of_a_stream_opens_a_closed_sink() -> None:
    """The producer of the stream is notified when the client has gone."""
    watches = Watches()
    async with serving(watches) as running:
        client = await running.connect()
        client.get("/", method="HEAD")
        client.get("/plain")
        head, after = await client.head(), await client.answer()

        assert head.headers["transfer-encoding"] == "chunked"
        assert after.body == b"GET /plain "
        assert watches.sinks[0].closed
        assert watches.closed == watches.sinks


@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
async def test_a_watcher_that_leaves_closes_its_stream_once(how: str) -> None:
    """However it leaves, `on_close` is called exactly once, and sending goes nowhere."""
    watches = Watches()
    async with serving(watches) as running:
        client = await running.connect()
        client.get("/")
        await client.head()
        if how == "close":
            client.writer.close()
        elif how == "reset":
            client.reset()
        else:
            client.writer.write_eof()

        await until(lambda: watches.closed == watches.sinks)
        [sink] = watches.sinks
        sink.send(Chunk(b"ignored"))
        sink.finish()
        sink.abort()
        late: list[int] = []
        sink.on_close(lambda: late.append(1))
        await until(lambda: late == [1])

        assert sink.closed
        assert len(watches.closed) == 1


async def test_an_aborted_stream_has_no_final_chunk() -> None:
    """The client can distinguish a broken stream from a finished one."""
    watches = Watches()
    async with serving(watches) as running:
        client = await running.connect()
        client.get("/")
        await client.head()
        watches.sinks[0].abort()

        assert not (await client.rest()).endswith(b"0\r\n\r\n")
        await until(lambda: watches.closed == watches.sinks)


async def test_a_watcher_that_does_not_read_is_cut_off_with_bounded_memory() -> None:
    """Others go on; what was kept for it never passes the limit by more than a chunk."""
    watches = Watches()
    limits = ConnectionLimits(max_unsent_bytes=256 << 10)
    chunk = Chunk(b"x" * (64 << 10))
    async with serving(watches, limits=limits) as running:
        stuck, good = await running.connect(), await running.connect()
        stuck.get("/stuck")
        await stuck.head()
        good.get("/good")
        await good.head()
        stuck.stop_reading()
        stuck_sink, good_sink = watches.sinks
        [connection] = [
            one for one in running.listener._service.connections if one._current is stuck_sink
        ]
        largest = 0

        async with asyncio.timeout(PATIENCE):
            while not stuck_sink.closed:
                stuck_sink.send(chunk)
                good_sink.send(chunk)
                largest = max(largest, connection._transport.get_write_buffer_size())
                await good.exactly(len(chunk.framed))
        await until(lambda: watches.closed == [stuck_sink])

        assert largest <= limits.max_unsent_bytes + len(chunk.framed)
        assert running.listener.cut_off == 1
        assert not good_sink.closed


async def test_a_burst_without_a_pause_is_bounded_too() -> None:
    """The limit holds within one turn of the event loop."""
    watches = Watches()
    chunk = Chunk(b"x" * (64 << 10))
    async with serving(watches, limits=ConnectionLimits(max_unsent_bytes=256 << 10)) as running:
        client = await running.connect()
        client.get("/")
        await client.head()
        [sink] = watches.sinks

        sent = 0
        while not sink.closed and sent < 1000:
            sink.send(chunk)
            sent += 1

        assert sink.closed
        assert watches.closed == []  # never from inside send
        await until(lambda: watches.closed == [sink])


async def test_a_stream_whose_maker_fails_is_broken_off() -> None:
    """An exception in `opened` reaches the log, and the client sees the break."""

    def fail(sink: Sink) -> None:
        raise KeyError

    watches = Watches(fail)
    async with serving(watches) as running:
        client = await running.connect()
        client.get("/")

        assert not (await client.rest()).endswith(b"0\r\n\r\n")
        await until(lambda: watches.closed == watches.sinks)


async def test_a_stream_for_a_client_that_has_gone_is_opened_closed() -> None:
    """The maker gets its chance to clean up."""
    gate = asyncio.Event()
    watches = Watches()

    async def handler(request: HttpRequest) -> Response | Stream:
        await gate.wait()
        return await watches(request)

    async with serving(handler) as running:
        client = await running.connect()
        client.get("/")
        await until(lambda: running.listener.requests == 1)
        client.reset()
        await until(lambda: running.listener.connections == 0)
        gate.set()

        await until(lambda: watches.closed == watches.sinks != [])


async def test_draining_finishes_streams_and_requests_and_closes_the_idle() -> None:
    """Each connection comes to its proper end, and then drain returns."""
    gate = asyncio.Event()
    watches = Watches()

    async def handler(request: HttpRequest) -> Response | Stream:
        if request.path == "/slow":
            await gate.wait()
            return await echo(request)
        return await watches(request)

    async with serving(handler) as running:
        idle, slow, watcher, half = [await running.connect() for _ in range(4)]
        idle.get("/plain")
        await idle.answer()
        watcher.get("/watch")
        await watcher.head()
        slow.get("/slow")
        half.send(b"GET /plain HTTP/1.1\r\n")
        await until(lambda: running.listener.requests == 3)
        connections = running.listener._service.connections
        await until(lambda: any(one._reader.phase == HEAD for one in connections))

        draining = asyncio.create_task(running.listener.drain(grace=PATIENCE))

        assert await watcher.rest() == b"0\r\n\r\n"
        assert await idle.rest() == b""
        assert not draining.done()
        gate.set()
        half.send(b"Host: a\r\n\r\n")
        for client in (slow, half):
            answer = await client.answer()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert await client.rest() == b""
        await draining
        assert running.listener.connections == 0
        with pytest.raises(ConnectionRefusedError):
            await running.connect()


async def test_draining_waits_for_a_handler_whose_client_has_gone() -> None:
    """The handler must finish before the server ends."""
    gate, ended = asyncio.Event(), []

    async def handler(request: HttpRequest) -> Response:
        await gate.wait()
        ended.append(request.path)
        return Response(200)

    async with serving(handler) as running:
        client = await running.connect()
        client.get("/left")
        await until(lambda: running.listener.requests == 1)
        client.reset()
        await until(lambda: running.listener.connections == 0)

        draining = asyncio.create_task(running.listener.drain(grace=PATIENCE))
        await until(running.listener._service.quiet.is_set)
        waited = not draining.done()
        gate.set()
        await draining

    assert waited
    assert ended == ["/left"]


async def test_draining_cuts_off_what_does_not_end_in_time() -> None:
    """Grace is finite: the handler is cancelled, the connection closed."""
    ended = []

    async def handler(request: HttpRequest) -> Response:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(request.path)
        return Response(200)

    async with serving(handler) as running:
        client = await running.connect()
        client.get("/stuck")
        await until(lambda: running.listener.requests == 1)

        await running.listener.drain(grace=0.01)

        assert ended == ["/stuck"]
        assert running.listener.connections == 0


async def test_a_stream_that_opens_while_draining_is_finished_at_once() -> None:
    """A watch that was on its way gets its head and its end."""
    gate = asyncio.Event()
    watches = Watches(lambda sink: sink.send(Chunk(b"x")))

    async def handler(request: HttpRequest) -> Response | Stream:
        await gate.wait()
        return await watches(request)

    async with serving(handler) as running:
        client = await running.connect()
        client.get("/")
        await until(lambda: running.listener.requests == 1)
        draining = asyncio.create_task(running.listener.drain(grace=PATIENCE))
        await asyncio.sleep(0)
        gate.set()

        assert (await client.rest()).endswith(b"\r\n\r\n1\r\nx\r\n0\r\n\r\n")
        await draining


class Pieces:
    """A stream sent in pieces, each when the client has read the one before."""

    def __init__(self, count: int, size: int) -> None:
        self.left = count
        self.chunk = Chunk(b"x" * size)

    def begin(self, sink: Sink) -> None:
        self._sink = sink
        self._send()

    def _send(self) -> None:
        self._sink.send(self.chunk)
        self.left -= 1
        if self.left:
            self._sink.when_taken(self._send)
        else:
            self._sink.finish()


async def test_a_slow_client_gets_pieces_as_it_takes_them() -> None:
    """However many: what waits for it stays small, and it is not cut off."""
    pieces = Pieces(300, 64 << 10)
    limits = ConnectionLimits(max_unsent_bytes=256 << 10)
    async with serving(Watches(pieces.begin), limits=limits) as running:
        client = await running.connect()
        client.stop_reading()
        client.get("/")
        await until(lambda: any(one.blocked for one in running.listener._service.connections))
        [connection] = running.listener._service.connections

        kept = connection._transport.get_write_buffer_size()
        waiting = pieces.left
        client.go_on_reading()
        await client.head()
        for _ in range(300):
            await client.exactly(len(pieces.chunk.framed))

        assert kept < limits.max_unsent_bytes
        assert waiting > 0
        assert await client.exactly(5) == b"0\r\n\r\n"
        assert running.listener.cut_off == 0


async def test_pieces_of_many_streams_take_turns() -> None:
    """One turn of the event loop sends only a few pieces, of all streams together."""
    made = [Pieces(1000, 10) for _ in range(20)]
    waiting = iter(made)
    async with serving(Watches(lambda sink: next(waiting).begin(sink))) as running:
        clients = [await running.connect() for _ in made]
        for client in clients:
            client.get("/")
        counts = [0]
        while counts[-1] < 1000 * len(made):
            await asyncio.sleep(0)
            counts.append(sum(1000 - one.left for one in made))

        assert max(now - before for before, now in pairwise(counts)) <= len(made) + PIECES_AT_ONCE


async def test_no_piece_is_made_for_a_client_that_has_gone() -> None:
    """The stream is over, so that nobody asks for more."""
    pieces = Pieces(1_000_000, 64 << 10)
    watches = Watches(pieces.begin)
    async with serving(watches) as running:
        client = await running.connect()
        client.stop_reading()
        client.get("/")
        await until(lambda: any(one.blocked for one in running.listener._service.connections))
        client.reset()
        await until(lambda: watches.closed == watches.sinks)
        left = pieces.left

        for _ in range(10):
            await asyncio.sleep(0)

        assert pieces.left == left > 0


async def test_a_large_chunk_reaches_a_client_that_is_not_behind() -> None:
    """One event may be larger than all that a client may leave unread."""
    watches = Watches()
    chunk = Chunk(b"x" * (8 << 20))
    async with serving(watches, limits=ConnectionLimits(max_unsent_bytes=256 << 10)) as running:
        client = await running.connect()
        client.get("/")
        await client.head()
        [sink] = watches.sinks

        sink.send(chunk)

        assert await client.exactly(len(chunk.framed)) == chunk.framed
        assert running.listener.cut_off == 0
