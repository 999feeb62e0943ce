"""The listener of the console on a real socket: limits, bad input, a clean end."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from orchid.features.console.web.loopback import LIMITS, LoopbackListener
from orchid.features.console.web.messages import WebRequest, WebResponse
from orchid.kernel.base.clock import SystemClock


class Flood:
    """A stream of events without end, which never waits for its reader."""

    def has_session(self, request: WebRequest) -> bool:
        return True

    async def respond(self, request: WebRequest) -> WebResponse:
        return WebResponse(200, media="text/event-stream", stream=self.pieces())

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"a" * 65536
                await asyncio.sleep(0)
        finally:
            flood_ended.set()


class Pages:
    """Pages that repeat the request; the user has the cookie `user`."""

    def has_session(self, request: WebRequest) -> bool:
        return request.headers.get("cookie") == "user"

    async def respond(self, request: WebRequest) -> WebResponse:
        if request.path == "/broken":
            raise RuntimeError("a secret")
        if request.path == "/stream":
            return WebResponse(200, media="text/event-stream", stream=endless())
        if request.path == "/form":
            return WebResponse(200, repr(request.form).encode())
        return WebResponse(200, f"{request.method} {request.path} {request.query}".encode())


MOST_CONNECTIONS = 4
ended = asyncio.Event()
flood_ended = asyncio.Event()


async def endless() -> AsyncIterator[bytes]:
    try:
        yield b": begin\n\n"
        await asyncio.sleep(3600)
    finally:
        ended.set()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    limits = msgspec.structs.replace(LIMITS, max_connections=MOST_CONNECTIONS)
    listener = LoopbackListener(Pages(), SystemClock.monotonic, limits)
    yield await listener.start()
    async with asyncio.timeout(5):
        await listener.close()


async def send(port: int, data: bytes) -> bytes:
    """The complete response; the connection is closed by the listener."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    async with asyncio.timeout(5):
        found = await reader.read()
    writer.close()
    return found


def get(target: str, *lines: str) -> bytes:
    head = (f"GET {target} HTTP/1.1", "Host: x", *lines, "Connection: close", "", "")
    return "\r\n".join(head).encode()


async def test_requests_are_answered_one_after_the_other(port: int) -> None:
    """On one connection, as browsers do."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in range(3):
        writer.write(f"GET /{number}?a=b HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        body = f"GET /{number} {{'a': 'b'}}".encode()
        assert head.startswith(b"HTTP/1.1 200 OK")
        assert await reader.readexactly(len(body)) == body
    writer.close()


async def test_requests_that_are_sent_together_are_answered_in_order(port: int) -> None:
    """As HTTP/1.1 says, though browsers do not."""
    answers = await send(port, b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\n" + get("/2"))

    assert answers.count(b"HTTP/1.1 200 OK") == 2
    assert answers.index(b"GET /1") < answers.index(b"GET /2")


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        get("http://evil.example/"),
        get("//evil.example/"),
        get("/").replace(b"GET", b"DELETE"),
        get("/").replace(b"GET", b"OPTIONS"),
        b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        get("/", "Cookie: a", "Cookie: b"),
        b"POST /form HTTP/1.1\r\nHost: x\r\nContent-Length: 400000\r\n\r\n" + b"a" * 400_000,
        b"POST /form HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"8000\r\n%b\r\n" % (b"a" * 0x8000) * 10,
        b"POST /form HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        get("/?" + "&".join(f"a{n}=" for n in range(100))),
        get("/?a=1&a=2"),
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /#part HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_bad_requests_are_refused(port: int, data: bytes) -> None:
    """With 400; where the next request would begin is never guessed."""
    assert (await send(port, data)).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "data",
    [
        get("/" + "a" * 40_000),
        get("/", "X: " + "a" * 40_000),
        get("/", *(f"X-{n}: y" for n in range(100))),
    ],
)
async def test_long_heads_are_refused(port: int, data: bytes) -> None:
    """Their size and the number of headers are limited."""
    assert (await send(port, data)).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("name", ["Origin", "Cookie", "Sec-Fetch-Site", "Content-Length"])
async def test_a_header_that_decides_occurs_once(port: int, name: str) -> None:
    """Otherwise, a program in between could have read the other one."""
    once = get("/").replace(b"\r\n\r\n", f"\r\n{name}: 0\r\n\r\n".encode())
    twice = once.replace(b"\r\n\r\n", f"\r\n{name}: 0\r\n\r\n".encode())

    assert (await send(port, once)).startswith(b"HTTP/1.1 200 ")
    assert (await send(port, twice)).startswith(b"HTTP/1.1 400 ")


async def test_a_refusal_has_the_security_headers(port: int) -> None:
    """It can repeat the name of a field, which the sender of a link chooses."""
    found = await send(port, get("/?%3Cb%3E=1&%3Cb%3E=2"))

    assert found.startswith(b"HTTP/1.1 400 ")
    assert b"<b>" in found
    for line in (b"X-Content-Type-Options: nosniff", b"default-src 'none'", b"text/plain"):
        assert line in found


async def test_a_form_of_another_type_is_refused(port: int) -> None:
    """A page of another site could send text/plain without asking."""
    data = b"POST /form HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n"
    answer = await send(port, data + b"Connection: close\r\n\r\na=b")

    assert answer.startswith(b"HTTP/1.1 400 ")


async def test_a_failure_is_not_shown(port: int, caplog: pytest.LogCaptureFixture) -> None:
    """The browser gets 500; the log has the reason."""
    answer = await send(port, get("/broken"))

    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"secret" not in answer
    assert "a secret" in caplog.text


async def test_head_has_no_body(port: int) -> None:
    answer = await send(port, get("/x").replace(b"GET", b"HEAD"))

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"\r\n\r\n")


async def test_a_stream_ends_when_the_browser_leaves(port: int) -> None:
    """Not with the next event: a user who opens many pages has few streams."""
    ended.clear()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(get("/stream"))
    await reader.readuntil(b": begin\n\n")

    writer.close()

    async with asyncio.timeout(5):
        await ended.wait()


async def stream(port: int, *lines: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(get("/stream", *lines))
    await reader.readuntil(b"begin")
    return reader, writer


async def test_programs_without_a_session_do_not_take_the_connections(port: int) -> None:
    """Any program of this machine can connect: those of the user stay, and new ones find room."""
    reader, writer = await stream(port, "Cookie: user")
    others = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3 * MOST_CONNECTIONS)]

    assert (await send(port, get("/", "Cookie: user"))).startswith(b"HTTP/1.1 200 ")
    with pytest.raises(TimeoutError):  # nothing, and no end
        async with asyncio.timeout(0.1):
            await reader.read()

    for _, other in [(reader, writer), *others]:
        other.close()


async def test_connections_are_limited(port: int) -> None:
    """Also those of the user; one more waits until another ends."""
    streams = [await stream(port, "Cookie: user") for _ in range(MOST_CONNECTIONS)]
    waiting = asyncio.ensure_future(send(port, get("/", "Cookie: user")))
    done, _ = await asyncio.wait([waiting], timeout=0.2)
    assert not done

    streams[0][1].close()

    assert (await waiting).startswith(b"HTTP/1.1 200 ")
    for _, writer in streams:
        writer.close()


async def test_a_browser_that_reads_nothing_is_disconnected() -> None:
    """A page of events without end is not collected in memory."""
    listener = LoopbackListener(Flood(), SystemClock.monotonic)
    port = await listener.start()
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    writer.write(get("/stream"))

    async with asyncio.timeout(20):
        await flood_ended.wait()

    writer.close()
    await listener.close()
