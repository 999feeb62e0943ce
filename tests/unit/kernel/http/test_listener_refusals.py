"""The listener and clients that misbehave: broken requests, noise, slowness."""

import asyncio

import pytest

from orchid.kernel.http.listener import ConnectionLimits
from orchid.kernel.http.messages import HttpRequest, Response
from tests.unit.kernel.http.listening import TEXT, echo, serving, until

SHORT = 0.05
QUICK = ConnectionLimits(
    header_timeout=SHORT, body_timeout=SHORT, idle_timeout=SHORT, write_timeout=SHORT, linger=SHORT
)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "400 Bad Request"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n b: c\r\n\r\n", "400 Bad Request"),
        (
            b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "400 Bad Request",
        ),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", "505 HTTP Version Not Supported"),
        (
            b"GET / HTTP/1.1\r\nA: " + b"x" * 2_000_000,
            "431 Request Header Fields Too Large",
        ),
    ],
)
async def test_a_broken_request_is_answered_plainly_and_closed(data: bytes, status: str) -> None:
    """The client gets a short text, and the connection ends."""
    async with serving() as running:
        client = await running.connect()
        client.send(data)

        answer = await client.answer()
        rest = await client.rest()

        assert answer.body.decode() == f"{status}\n"
        assert answer.headers["connection"] == "close"
        assert answer.headers["content-type"].startswith("text/plain")
        assert rest == b""
        assert running.listener.requests == 0
        assert running.listener.refusals == 1


async def test_a_refusal_waits_for_the_answers_before_it() -> None:
    """Order holds for mistakes too."""
    gate = asyncio.Event()

    async def handler(request: HttpRequest) -> Response:
        await gate.wait()
        return await echo(request)

    async with serving(handler) as running:
        client = await running.connect()
        client.get("/good")
        client.send(b"GET / HTTP/1.1\r\n\r\n")
        await until(lambda: running.listener.requests == 1)
        gate.set()

        first, second = await client.answer(), await client.answer()

    assert (first.status, second.status) == (200, 400)


@pytest.mark.parametrize(
    "noise",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        bytes(range(256)) * 20,
    ],
)
async def test_other_protocols_and_noise_are_closed_without_a_word(noise: bytes) -> None:
    """HTTP/2, TLS on a plain port, and plain garbage."""
    async with serving() as running:
        client = await running.connect()
        client.send(noise)

        assert await client.rest() == b""
        await until(lambda: running.listener.connections == 0)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", None),
        (b"\r\n", None),
        (b"GET / HTTP/1.1\r\nHost:", 408),
        (b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhi", 408),
        (b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhi", 408),
    ],
)
async def test_a_request_that_takes_too_long_to_arrive_ends(
    sent: bytes, status: int | None
) -> None:
    """An incomplete request gets an error; an idle connection is just closed."""
    async with serving(limits=QUICK) as running:
        client = await running.connect()
        client.send(sent)

        if status is not None:
            assert (await client.answer()).status == status
        assert await client.rest() == b""
        await until(lambda: running.listener.connections == 0)


async def test_dripping_bytes_do_not_prolong_the_time_for_a_head() -> None:
    """The clock starts with the first byte, not with the last."""
    async with serving(limits=QUICK) as running:
        client = await running.connect()
        client.send(b"GET / HTTP/1.1\r\nHost: a\r\nA: ")

        async def drip() -> None:
            while True:
                client.send(b"x")
                await asyncio.sleep(SHORT / 10)

        dripping = asyncio.create_task(drip())
        answer = await client.answer()
        dripping.cancel()

    assert answer.status == 408


async def test_an_idle_connection_is_closed_after_its_answers() -> None:
    """Keep-alive has an end."""
    async with serving(limits=QUICK) as running:
        client = await running.connect()
        client.get("/")

        assert (await client.answer()).status == 200
        assert await client.rest() == b""


async def test_a_client_that_never_reads_its_answer_is_cut_off() -> None:
    """A large answer that is not taken frees its memory after a while."""

    async def handler(request: HttpRequest) -> Response:
        return Response(200, TEXT, b"x" * (32 << 20))

    async with serving(handler, limits=QUICK) as running:
        client = await running.connect()
        client.stop_reading()
        client.get("/")

        await until(lambda: running.listener.requests == 1)
        await until(lambda: running.listener.connections == 0)


async def test_a_large_answer_outlives_the_time_limit_while_it_is_read() -> None:
    """Slow is not stuck: what the kernel passes on counts, before it takes more from the server."""
    body, limits = b"x" * (8 << 20), ConnectionLimits(write_timeout=10 * SHORT)

    async def handler(request: HttpRequest) -> Response:
        return Response(200, TEXT, body)

    async with serving(handler, limits=limits) as running:
        client = await running.connect()
        client.keep_little()
        client.get("/", "Connection: close")
        await client.head()
        received, loop = 0, asyncio.get_running_loop()
        slow_until = loop.time() + 3 * limits.write_timeout
        while loop.time() < slow_until:
            received += len(await client.exactly(32 << 10))
            await asyncio.sleep(SHORT / 2)
        received += len(await client.rest())

    assert received == len(body)


async def test_a_reset_in_the_middle_of_a_body_leaves_nothing_behind() -> None:
    """The connection is dropped, and no handler is called."""
    async with serving() as running:
        client = await running.connect()
        client.get("/", "Content-Length: 1000", method="PUT")
        await until(lambda: running.listener.connections == 1)
        client.reset()

        await until(lambda: running.listener.connections == 0)
        assert running.listener.requests == 0
