"""A client of a WebSocket that sends frames without end gets no answer to each of them.

Over real TLS sockets. A piece of 16 KiB holds 2,700 pings; a pong to each was a TLS record of its
own, and one read from the socket held the event loop for 0.2 s.
"""

import ssl
from pathlib import Path

from orchid.kernel.http.websocket import PING, PONG, TEXT, frame
from tests.api.world import ADMIN, Api
from tests.security.listening import ACCOUNTS, bearer, listening
from tests.unit.kernel.http.listening import Client, Running
from tests.unit.kernel.http.test_websocket import masked

PROTOCOL_ERROR = b"\x88\x02" + (1002).to_bytes(2, "big")


async def watching(running: Running, files: Path) -> Client:
    """A client that has a watch open over WebSocket."""
    client = await running.connect(ssl.create_default_context(cafile=files / "ca.crt"))
    client.get(
        f"{ACCOUNTS}?watch=1",
        bearer(ADMIN),
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Origin: https://console.example.test",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    )
    assert (await client.head()).status == 101
    return client


async def test_of_many_pings_the_last_is_answered(server: Api, server_files: Path) -> None:
    """Those that came with it are answered by that (RFC 6455, 5.5.3), and the watch goes on."""
    async with listening(server) as running:
        client = await watching(running, server_files)

        client.send(b"".join(masked(PING, b"%03d" % number) for number in range(900)))
        first = await client.exactly(5)
        client.send(masked(PING, b"end"))

        assert first == frame(PONG, b"899")
        assert await client.exactly(5) == frame(PONG, b"end")


async def test_a_flood_of_frames_ends_the_connection(server: Api, server_files: Path) -> None:
    """Whatever they are: also those that ask for nothing take time to read."""
    async with listening(server) as running:
        for opcode in PING, PONG, TEXT:
            client = await watching(running, server_files)

            client.send(masked(opcode, b"") * 2500)

            assert await client.rest() == PROTOCOL_ERROR
