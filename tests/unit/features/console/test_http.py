"""The listener of the console on a real socket: limits, bad input, a clean end."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from orchid.features.console import http
from orchid.features.console.http import LoopbackListener
from orchid.features.console.web.messages import WebRequest, WebResponse


async def handle(request: WebRequest) -> WebResponse:
    if request.path == "/broken":
        raise RuntimeError("a secret")
    if request.path == "/stream":
        return WebResponse(200, media="text/event-stream", stream=endless())
    if request.path == "/form":
        return WebResponse(200, repr(request.form).encode())
    return WebResponse(200, f"{request.method} {request.path} {request.query}".encode())


ended = asyncio.Event()


async def endless() -> AsyncIterator[bytes]:
    try:
        yield b": begin\n\n"
        await asyncio.sleep(3600)
    finally:
        ended.set()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    listener = LoopbackListener(handle)
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


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET //evil.example/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nCookie: a\r\nCookie: b\r\n\r\n",
        b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(100)) + b"\r\n",
        b"POST /form HTTP/1.1\r\nHost: x\r\nContent-Length: 400000\r\n\r\n" + b"a" * 400_000,
        b"POST /form HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /?" + b"&".join(b"a%d=" % n for n in range(100)) + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /?a=1&a=2 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /second HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_bad_requests_are_refused(port: int, data: bytes) -> None:
    """With 400 and the end of the connection."""
    assert (await send(port, data)).startswith(b"HTTP/1.1 400 ")


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


async def test_other_methods_are_refused(port: int) -> None:
    answer = await send(port, get("/").replace(b"GET", b"DELETE"))

    assert answer.startswith(b"HTTP/1.1 405 ")


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


async def test_connections_are_limited(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more than the limit is closed; a free place is used again."""
    monkeypatch.setattr(http, "MOST_CONNECTIONS", 2)
    streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    for reader, writer in streams:
        writer.write(get("/stream"))
        await reader.readuntil(b"begin")

    with pytest.raises((ConnectionError, AssertionError)):
        assert await send(port, get("/"))

    for _, writer in streams:
        writer.close()
