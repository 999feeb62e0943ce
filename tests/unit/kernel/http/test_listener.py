"""The listener on real sockets: answers, their order, handlers that wait, sizes, half-closing."""

import asyncio
import contextvars
import gc
import socket
import time
from itertools import pairwise

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchid.kernel.http.connection import Connection
from orchid.kernel.http.listener import ConnectionLimits
from orchid.kernel.http.messages import HttpRequest, Response
from tests.unit.kernel.http.listening import (
    PATIENCE,
    TEXT,
    echo,
    living,
    serving,
    until,
    without_collections,
)


async def test_an_answer_comes_with_length_date_and_its_own_headers() -> None:
    """The listener adds what only it knows."""
    async with serving() as running:
        client = await running.connect()
        client.get("/hello")

        answer = await client.answer()

    assert answer.status == 200
    assert answer.body == b"GET /hello "
    assert answer.headers["content-type"] == "text/plain"
    assert answer.headers["date"].endswith("gmt")
    assert "connection" not in answer.headers


async def test_a_connection_serves_many_requests() -> None:
    """Keep-alive: one connection, and each request counted."""
    async with serving() as running:
        client = await running.connect()
        for number in range(5):
            client.get(f"/{number}")
            assert (await client.answer()).body == f"GET /{number} ".encode()

        assert running.listener.requests == 5
        assert running.listener.connections == 1


async def test_the_peer_is_the_same_for_all_requests_of_a_connection() -> None:
    """Values cached on the peer exist for the next request, and for no other peer."""
    seen = []

    async def handler(request: HttpRequest) -> Response:
        seen.append(request.peer)
        return Response(200)

    async with serving(handler) as running:
        one, other = await running.connect(), await running.connect()
        for client in (one, one, other):
            client.get("/")
            await client.answer()
        name = one.writer.get_extra_info("sockname")

    assert seen[0] is seen[1]
    assert seen[0] is not seen[2]
    assert seen[0].address == f"127.0.0.1:{name[1]}"
    assert seen[0].certificate is None


@pytest.mark.parametrize("status", [204, 304])
async def test_some_answers_have_no_body(status: int) -> None:
    """204 and 304 end with their head, whatever the handler gave."""

    async def handler(request: HttpRequest) -> Response:
        return Response(status, b"", b"never sent") if request.path == "/none" else Response(200)

    async with serving(handler) as running:
        client = await running.connect()
        client.get("/none")
        client.get("/next")

        first, second = await client.head(), await client.answer()

    assert "content-length" not in first.headers
    assert (first.status, second.status) == (status, 200)


async def test_head_returns_the_length_and_no_body() -> None:
    """HEAD is GET without the body."""
    async with serving() as running:
        client = await running.connect()
        client.get("/abc", method="HEAD")
        client.get("/next")

        first, second = await client.head(), await client.answer()

    assert first.headers["content-length"] == str(len(b"HEAD /abc "))
    assert second.body == b"GET /next "


async def test_close_is_honoured_and_announced() -> None:
    """A client that asks for the end gets it after the answer."""
    async with serving() as running:
        client = await running.connect()
        client.get("/", "Connection: close")

        answer = await client.answer()

        assert answer.headers["connection"] == "close"
        assert await client.rest() == b""


async def test_old_clients_are_closed_unless_they_ask_otherwise() -> None:
    """HTTP/1.0 has keep-alive only on request, and then says so."""
    async with serving() as running:
        client = await running.connect()
        client.send(b"GET /1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        first = await client.answer()
        client.send(b"GET /2 HTTP/1.0\r\n\r\n")
        second = await client.answer()

        assert first.headers["connection"] == "keep-alive"
        assert second.headers["connection"] == "close"
        assert await client.rest() == b""


async def test_pipelined_requests_are_answered_in_order() -> None:
    """A slow answer holds back the quick ones behind it, and they are not even begun."""
    begun = []
    gate = asyncio.Event()

    async def handler(request: HttpRequest) -> Response:
        begun.append(request.path)
        if request.path == "/slow":
            await gate.wait()
        return await echo(request)

    async with serving(handler) as running:
        client = await running.connect()
        for path in ("/quick", "/slow", "/after", "/last"):
            client.get(path)
        await until(lambda: "/slow" in begun)
        assert begun == ["/quick", "/slow"]
        gate.set()

        bodies = [(await client.answer()).body for _ in range(4)]

    assert bodies == [b"GET /quick ", b"GET /slow ", b"GET /after ", b"GET /last "]


async def test_a_flood_of_pipelined_requests_is_held_back_not_kept() -> None:
    """While one request waits, a client's further bytes stop being read at a limit."""
    gate = asyncio.Event()

    async def handler(request: HttpRequest) -> Response:
        await gate.wait()
        return Response(200, TEXT, b"x")

    limits = ConnectionLimits(max_pipelined=10, max_held_bytes=1000)
    async with serving(handler, limits=limits) as running:
        client = await running.connect()
        count = 20_000
        client.send(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n" * count)
        await until(lambda: running.listener.requests == 1)
        [connection] = running.listener._service.connections

        # The rest stays in the buffers of both sockets and of the client.
        await until(lambda: connection._reading_paused)
        assert len(connection._held) < 1 << 20
        assert len(connection._reader.ready) <= 10

        gate.set()
        for _ in range(count):
            answer = await client.answer()
            assert answer.status == 200


async def test_a_handler_that_does_not_wait_needs_no_task() -> None:
    """Eager: the whole handler runs where the bytes arrive."""
    tasks = []

    async def handler(request: HttpRequest) -> Response:
        tasks.append(asyncio.current_task())
        if request.path == "/wait":
            await asyncio.sleep(0)
            tasks.append(asyncio.current_task())
        return Response(200)

    async with serving(handler) as running:
        client = await running.connect()
        client.get("/")
        await client.answer()
        client.get("/wait")
        await client.answer()

    assert tasks[:2] == [None, None]
    assert tasks[2] is not None


async def test_a_handler_may_wait_for_anything_after_its_first_wait() -> None:
    """Futures, threads, timeouts and task groups work as in any task."""

    async def handler(request: HttpRequest) -> Response:
        loop = asyncio.get_running_loop()
        body = await loop.run_in_executor(None, lambda: b"thread")
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
        return Response(200, TEXT, body)

    async with serving(handler) as running:
        client = await running.connect()
        client.get("/")

        assert (await client.answer()).body == b"thread"


async def test_context_variables_stay_with_their_request() -> None:
    """A variable that one request sets is not seen by the next, and survives its own waiting."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    async def handler(request: HttpRequest) -> Response:
        before = variable.get()
        variable.set(request.path)
        if request.path == "/wait":
            await asyncio.sleep(0)
        return Response(200, TEXT, f"{before} {variable.get()}".encode())

    async with serving(handler) as running:
        client = await running.connect()
        for path in ("/now", "/wait", "/now"):
            client.get(path)

        bodies = [(await client.answer()).body for _ in range(3)]

    assert bodies == [b"unset /now", b"unset /wait", b"unset /now"]


@pytest.mark.parametrize("path", ["/now", "/later"])
async def test_an_exception_becomes_the_answer_that_failure_gives(path: str) -> None:
    """Before or after an await; the connection stays open."""

    async def handler(request: HttpRequest) -> Response:
        if request.path == "/later":
            await asyncio.sleep(0)
        if request.path == "/fine":
            return Response(200)
        raise KeyError(request.path)

    async with serving(handler) as running:
        client = await running.connect()
        client.get(path)
        client.get("/fine")

        first, second = await client.answer(), await client.answer()

    assert (first.status, first.body) == (500, b"KeyError")
    assert second.status == 200


async def test_an_answer_that_is_none_is_a_failure() -> None:
    """A handler that returns None counts as failed, and the client gets an error."""

    async def handler(request: HttpRequest) -> Response:
        return None

    async with serving(handler) as running:
        client = await running.connect()
        client.get("/")

        assert (await client.answer()).body == b"TypeError"


async def test_a_handler_that_takes_too_long_is_cancelled_and_answered_for() -> None:
    """The handler may set its own deadline; the connection stays open afterwards."""
    ends = []

    async def handler(request: HttpRequest) -> Response:
        if request.path == "/fine":
            return Response(200)
        request.timeout = 0.01
        try:
            await asyncio.Event().wait()
        finally:
            ends.append(request.path)
        return Response(200)

    async with serving(handler) as running:
        client = await running.connect()
        client.get("/stuck")
        client.get("/fine")

        first, second = await client.answer(), await client.answer()
        await until(lambda: ends == ["/stuck"])

    assert (first.status, first.body) == (504, b"too late")
    assert second.status == 200


async def test_a_handler_that_outlives_its_cancellation_is_not_answered_twice() -> None:
    """A handler that ignores its cancellation cannot answer any more."""
    done = asyncio.Event()

    async def handler(request: HttpRequest) -> Response:
        if request.path == "/fine":
            return Response(200, TEXT, b"fine")
        request.timeout = 0.01
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        done.set()
        return Response(200, TEXT, b"late")

    async with serving(handler) as running:
        client = await running.connect()
        client.get("/stubborn")
        first = await client.answer()
        await asyncio.wait_for(done.wait(), PATIENCE)
        client.get("/fine")
        second = await client.answer()

    assert first.status == 504
    assert second.body == b"fine"


async def test_a_client_that_leaves_does_not_stop_its_handler() -> None:
    """The work is finished; the answer is dropped."""
    begun, gate, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handler(request: HttpRequest) -> Response:
        begun.set()
        await gate.wait()
        ended.set()
        return Response(200)

    async with serving(handler) as running:
        client = await running.connect()
        client.get("/")
        await begun.wait()
        client.reset()
        await until(lambda: running.listener.connections == 0)
        gate.set()

        await asyncio.wait_for(ended.wait(), PATIENCE)


@pytest.mark.parametrize("size", [0, 1, 70_000, 3 << 20])
async def test_bodies_come_and_go_whole(size: int) -> None:
    """From nothing to the limit, in both directions."""
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    async with serving() as running:
        client = await running.connect()
        client.get("/", f"Content-Length: {size}", method="PUT")
        client.send(body)

        answer = await client.answer()

    assert answer.body == b"PUT / " + body


async def test_continue_is_sent_to_those_who_wait_for_it() -> None:
    """`Expect: 100-continue` is answered after the answers that are still due, not before."""
    async with serving() as running:
        client = await running.connect()
        client.get("/first")
        client.get("/", "Content-Length: 2", "Expect: 100-continue", method="PUT")
        first, interim = await client.answer(), await client.head()
        client.send(b"hi")

        second = await client.answer()

    assert (first.status, interim.status, second.status) == (200, 100, 200)
    assert second.body == b"PUT / hi"


async def test_a_body_over_the_limit_is_answered_while_it_still_comes() -> None:
    """The handler answers, the connection closes, and the client can read why."""

    async def handler(request: HttpRequest) -> Response:
        return Response(413 if request.too_large else 200, TEXT, b"" + request.body)

    async with serving(handler, limits=ConnectionLimits(max_body_bytes=1000)) as running:
        client = await running.connect()
        client.get("/", "Content-Length: 5000000", "Expect: 100-continue", method="PUT")
        answer = await client.answer()
        client.send(b"x" * 100_000)

        assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert await client.rest() == b""


async def test_a_client_that_stops_sending_still_gets_its_answer() -> None:
    """Half-closed: the request is complete, the answer is due."""
    gate = asyncio.Event()

    async def handler(request: HttpRequest) -> Response:
        await gate.wait()
        return await echo(request)

    async with serving(handler) as running:
        client = await running.connect()
        client.get("/")
        client.writer.write_eof()
        await until(lambda: running.listener.requests == 1)
        [connection] = running.listener._service.connections
        await until(lambda: connection._eof)
        gate.set()

        answer = await client.answer()

        assert answer.body == b"GET / "
        assert answer.headers["connection"] == "close"
        assert await client.rest() == b""


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HT", b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 9"]
)
async def test_a_client_that_stops_in_the_middle_is_closed(sent: bytes) -> None:
    """Half a request and the end of the stream: nobody is left to wait for."""
    async with serving() as running:
        client = await running.connect()
        client.send(sent)
        client.writer.write_eof()

        assert await client.rest() == b""
        await until(lambda: running.listener.connections == 0)


async def test_a_client_that_does_not_read_is_not_read_either() -> None:
    """Large answers that nobody takes stop the next ones from being made."""
    body = b"x" * (1 << 20)

    async def handler(request: HttpRequest) -> Response:
        return Response(200, TEXT, body)

    async with serving(handler) as running:
        client = await running.connect()
        client.stop_reading()
        count = 60
        client.send(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n" * count)
        await until(lambda: any(one.blocked for one in running.listener._service.connections))

        assert running.listener.requests < count
        client.go_on_reading()
        for _ in range(count):
            assert len((await client.answer()).body) == len(body)


async def test_a_connection_that_has_ended_is_freed_without_a_garbage_collection() -> None:
    """Its memory is free for the next one at once, however seldom collections are."""
    async with serving() as running:
        client = await running.connect()
        client.get("/")
        await client.answer()
        with without_collections():
            await client.close()
            await until(lambda: not running.listener.connections)

            assert living(Connection) == []


async def test_a_connection_with_many_requests_lets_others_go_first() -> None:
    """Pipelined requests are answered a few at a time; who comes meanwhile does not wait."""
    asked: list[str] = []
    other: list[socket.socket] = []

    async def noting(request: HttpRequest) -> Response:
        if not asked:
            other[0].sendall(b"GET /other HTTP/1.1\r\nHost: h\r\n\r\n")
        asked.append(request.path)
        return Response(200)

    async with serving(noting) as running:
        many = await running.connect()
        other.append(socket.create_connection(("127.0.0.1", running.listener.port)))
        await until(lambda: running.listener.connections == 2)
        many.send(b"GET /many HTTP/1.1\r\nHost: h\r\n\r\n" * 300)
        for _ in range(300):
            await many.answer()
        other[0].close()

    assert asked.count("/many") == 300
    assert asked.index("/other") < 50


async def test_requests_that_wait_for_their_turn_are_answered_after_the_end_of_sending() -> None:
    """A client that stops sending still gets every answer."""
    async with serving() as running:
        client = await running.connect()
        client.send(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n" * 50)
        client.writer.write_eof()

        assert (await client.rest()).count(b"HTTP/1.1 200") == 50


async def test_connections_over_the_limit_wait_for_their_turn() -> None:
    """They are accepted when another one ends, not refused."""
    limits = ConnectionLimits(max_connections=1, linger=0.05)
    async with serving(limits=limits) as running:
        first = await running.connect()
        first.get("/1")
        await first.answer()
        second = await running.connect()
        second.get("/2")
        await first.close()

        assert (await second.answer()).body == b"GET /2 "
        assert running.listener.connections == 1


async def test_sockets_that_are_bound_already_can_be_given() -> None:
    """A parent process binds, its children listen."""
    from orchid.kernel.http.listener import Listener
    from tests.unit.kernel.http.listening import TIMED_OUT, Running, failure

    bound = socket.create_server(("127.0.0.1", 0))
    listener = Listener(echo, timeout_response=TIMED_OUT, failure=failure, monotonic=time.monotonic)
    await listener.start(sockets=[bound])
    running = Running(listener, [])
    client = await running.connect()
    client.get("/")
    answer = await client.answer()
    await client.close()
    await listener.drain(grace=1)

    assert answer.status == 200
    assert listener.addresses == [f"127.0.0.1:{listener.port}"]


PIPELINE = [
    b"GET /quick HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET /wait HTTP/1.1\r\nHost: h\r\n\r\n",
    b"HEAD /head HTTP/1.1\r\nHost: h\r\n\r\n",
    b"POST /body HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /chunked HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
]
LAST = b"GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(requests=st.lists(st.sampled_from(PIPELINE), max_size=6), data=st.data())
def test_splitting_a_pipelined_stream_changes_no_answer(
    requests: list[bytes], data: st.DataObject
) -> None:
    """However the bytes are cut, the answers are the same, in the same order."""
    stream = b"".join([*requests, LAST])
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6).map(sorted))
    edges = [0, *cuts, len(stream)]
    pieces = [stream[start:end] for start, end in pairwise(edges)]

    whole = uvloop.run(answers_to([stream]))
    parts = uvloop.run(answers_to(pieces))

    assert parts == whole
    assert whole.count(b"HTTP/1.1 200 OK") == len(requests) + 1


async def answers_to(pieces: list[bytes]) -> bytes:
    """Send piece by piece, giving the server its turn in between; dates are left out."""

    async def handler(request: HttpRequest) -> Response:
        if request.path == "/wait":
            await asyncio.sleep(0)
        return await echo(request)

    async with serving(handler) as running:
        client = await running.connect()
        for piece in pieces:
            client.send(piece)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        lines = (await client.rest()).split(b"\r\n")
    return b"\r\n".join(line for line in lines if not line.startswith(b"Date:"))


def connections_in_memory() -> int:
    """Open ones, and those that wait to be freed."""
    return sum(isinstance(one, Connection) for one in gc.get_objects())


async def test_a_closed_connection_waits_for_no_garbage_collector() -> None:
    """It refers to nothing that refers back, and is freed with all it has."""
    gc.collect()
    before = connections_in_memory()
    gc.disable()
    try:
        async with serving() as running:
            client = await running.connect()
            client.get("/")
            await client.answer()
            during = connections_in_memory()
            await client.close()
            await until(lambda: connections_in_memory() == before)
    finally:
        gc.enable()

    assert during == before + 1
