"""Megabytes of TLS records with a byte each, from a stranger: they are read in many turns.

On uvloop, as the server runs. It reads again and again in one turn of the loop as long as a read
fills its buffer of 256 kB: two megabytes of such records held everybody else up for 0.3 s.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from orchid.server.sockets.tls_channel import TlsChannel
from tests.api.world import api
from tests.security.listening import listening
from tests.unit.server.sockets.test_tls_channel import ByHand

ONE_READ = 256_000  # bytes, of uvloop
READ = TlsChannel.data_received


def test_records_of_one_byte_are_read_in_many_turns(
    server_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each turn of the loop takes what one read gives, and the request behind them is answered."""
    arrived: list[int] = []

    def counted(channel: TlsChannel, data: bytes) -> None:
        before = len(arrived)
        READ(channel, data)  # calls itself for the parts of what is large
        arrived[before:] = [len(data)]

    monkeypatch.setattr(TlsChannel, "data_received", counted)

    most = uvloop.run(most_of_a_turn(server_files, lambda: taken(arrived)))

    assert 0 < most <= ONE_READ


def taken(arrived: list[int]) -> int:
    """How much was read since the last time."""
    size = sum(arrived)
    arrived.clear()
    return size


async def most_of_a_turn(files: Path, read: Callable[[], int]) -> int:
    async with api(files) as server, listening(server) as running:
        with socket.create_connection(("127.0.0.1", running.listener.port)) as link:
            link.setblocking(False)
            client = ByHand(link, ssl.create_default_context(cafile=files / "ca.crt"))
            await client.shake_hands()
            rest = b"".join(client.encrypted(b"\n") for _ in range(60_000))
            rest += client.encrypted(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
            read()
            sent = link.send(rest)  # as much as there is room for, while the loop stands
            turns = [0]
            while sum(turns) < sent:
                await asyncio.sleep(0)
                turns.append(read())
            await client.deliver(rest[sent:])
            assert await client.read(15) == b"HTTP/1.1 200 OK"
    return max(turns)
