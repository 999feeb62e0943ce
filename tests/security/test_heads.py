"""Heads as large as they may be, made to take long: each gets a clear answer, and the next one too.

Over real TLS sockets, from a stranger and from an administrator. How long the event loop was
held is printed (`-rA`), not judged: how busy the machine is decides too much.
"""

import asyncio
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from orchid.kernel.http.listener_state import ConnectionLimits
from tests.api.world import ADMIN
from tests.security.listening import ACCOUNTS, bearer
from tests.unit.kernel.http.listening import Answer, Client, Running

JSON = "application/json"
ROOM = ConnectionLimits().max_header_bytes - 2048  # the rest of a head takes less


def filled(unit: str | Callable[[int], str]) -> str:
    """As many units as there is room for."""
    if isinstance(unit, str):
        return unit * (ROOM // len(unit))
    return "".join(unit(number) for number in range(ROOM // len(unit(0))))


WEBSOCKET = [
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
]
AS_ANN, EXTRA = "Impersonate-User: ann", "Impersonate-Extra-"

# Lines of a head, and what an administrator is answered who sends it.
HEADS: dict[str, tuple[list[str], int]] = {
    "forms in the worst order": ([f"Accept: {filled(lambda n: f'a/b;q=0.{n:06},')}"], 406),
    "parameters of a form": ([f"Accept: {JSON}{filled(';a=b')}"], 200),
    "wildcards": ([f"Accept: {filled('*/*,a/b,')}"], 200),
    "encodings": ([f"Accept-Encoding: {filled(lambda n: f'gzip;q=0.{n:06},')}"], 200),
    "entity tags": (["If-None-Match: " + filled('"a",')], 200),
    "words of a connection": ([f"Connection: {filled('a,')}"], 200),
    "an agent": ([f"User-Agent: {filled('a/b ')}"], 200),
    "cookies": ([f"Cookie: {filled('a=b; ')}"], 200),
    "proxies": ([f"X-Forwarded-For: {filled('1,')}"], 200),
    "a media type": ([f"Content-Type: {JSON}{filled(';a=b')}"], 200),
    "subprotocols": ([*WEBSOCKET, f"Sec-WebSocket-Protocol: {filled('a,')}"], 200),
    "one group": ([AS_ANN, f"Impersonate-Group: {filled('a,')}"], 403),
    "many groups": ([AS_ANN, *(["Impersonate-Group: " + "a" * 128] * 800)], 403),
    "an escaped key": ([AS_ANN, f"{EXTRA}{filled('%41')}: a"], 403),
    "many escaped keys": ([AS_ANN, *(f"{EXTRA}{n}{'%41' * 30}: a" for n in range(800))], 403),
    "beyond the limit": ([f"A: {filled('a')}", f"B: {'b' * 2048}"], 431),
}


@pytest.mark.parametrize("what", HEADS)
async def test_a_head_made_to_take_long_gets_its_answer(
    what: str, open_server: Running, trust: ssl.SSLContext
) -> None:
    """With and without a credential."""
    lines, status = HEADS[what]
    for credentials, wanted in ([], {401, status}), ([bearer(ADMIN)], {status}):
        client = await open_server.connect(trust)

        async with blocking_time_reported(what):
            client.get(ACCOUNTS, *credentials, *lines)
            answer = await client.answer()

        assert answer.status in wanted


@asynccontextmanager
async def blocking_time_reported(what: str) -> AsyncIterator[None]:
    """Print the longest time between two turns of the event loop."""
    longest = 0.0

    async def turn() -> None:
        nonlocal longest
        before = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            longest, before = max(longest, time.perf_counter() - before), time.perf_counter()

    turning = asyncio.create_task(turn())
    await asyncio.sleep(0)
    yield
    turning.cancel()
    sys.stdout.write(f"{what:28} loop held {longest * 1000:7.1f} ms\n")


@pytest.mark.parametrize("target", ["/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1"])
async def test_the_others_are_served_while_openapi_is_first_made(
    target: str, open_server: Running, trust: ssl.SSLContext
) -> None:
    """All documents are made together, in a thread; two who ask meanwhile get the same."""
    clients = [await open_server.connect(trust) for _ in range(2)]
    probe = await open_server.connect(trust)
    asked = [asyncio.ensure_future(ask_openapi(client, target)) for client in clients]

    probes = 0
    while not any(ask.done() for ask in asked):
        probe.get("/livez")
        assert (await probe.answer()).status == 200
        probes += 1

    first, second = await asyncio.gather(*asked)
    assert probes > 1
    assert (first.status, first.body) == (200, second.body)


async def ask_openapi(client: Client, target: str) -> Answer:
    client.get(target, bearer(ADMIN))
    return await client.answer()


async def test_blank_lines_before_a_request_mean_nothing(
    open_server: Running, trust: ssl.SSLContext
) -> None:
    """However many there are."""
    client = await open_server.connect(trust)

    client.send(b"\r\n" * 400_000)
    client.get(ACCOUNTS, bearer(ADMIN))

    assert (await client.answer()).status == 200
