"""Megabytes of TLS records that say little or nothing, from a stranger: read in many turns.

On uvloop, as the server runs. It reads again and again in one turn of the loop as long as a read
fills its buffer of 256 kB: two megabytes of records with a byte each held everybody else up for
0.3 s. A change of keys says nothing at all and takes longer: half a megabyte held them up for
0.8 s.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from orchid.kernel.http.listener import READINGS_AT_ONCE
from orchid.kernel.http.tls import channel as tls_channel
from orchid.kernel.http.tls.channel import ServedProtocol, TlsChannel
from tests.api.world import api
from tests.security.listening import listening
from tests.unit.kernel.http.listening import until
from tests.unit.kernel.http.tls.test_tls_channel import ByHand

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


STRANGERS = 6
SMALL_PIECE = 2048
CHANGES = 5000  # of keys, by each of them
DECRYPT = TlsChannel._decrypt


def test_changes_of_keys_hold_nobody_up(
    server_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn of the loop decrypts a few small pieces of a few strangers; soon they are cut off."""
    decrypted: list[int] = []

    def counted(channel: TlsChannel, data: bytes, protocol: ServedProtocol) -> None:
        decrypted.append(len(data))
        DECRYPT(channel, data, protocol)

    monkeypatch.setattr(TlsChannel, "_decrypt", counted)
    monkeypatch.setattr(tls_channel, "_LONGEST_TURN", 0.0)  # as if each piece took so long

    turns = uvloop.run(turns_with_changing_keys(server_files, lambda: taken(decrypted)))

    first, *later = filter(None, turns)
    assert first <= STRANGERS * SMALL_PIECE
    assert max(later) <= (READINGS_AT_ONCE + STRANGERS) * SMALL_PIECE
    assert sum(turns) < STRANGERS * CHANGES * 27 / 4


def test_a_few_changes_of_keys_on_many_connections_hold_nobody_up(
    server_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 kB on each of 150 connections held the loop for 0.6 s; each had its turn at once."""
    decrypted: list[int] = []

    def counted(channel: TlsChannel, data: bytes, protocol: ServedProtocol) -> None:
        decrypted.append(len(data))
        DECRYPT(channel, data, protocol)

    monkeypatch.setattr(TlsChannel, "_decrypt", counted)
    few = SMALL_PIECE // 27

    turns = uvloop.run(
        turns_with_changing_keys(server_files, lambda: taken(decrypted), strangers=20, changes=few)
    )

    assert max(turns) <= 2 * READINGS_AT_ONCE * SMALL_PIECE
    assert sum(turns) == 20 * few * 27


async def turns_with_changing_keys(
    files: Path, read: Callable[[], int], *, strangers: int = STRANGERS, changes: int = CHANGES
) -> list[int]:
    """Have strangers change their keys over and over; give what each turn has decrypted."""
    context = ssl.create_default_context(cafile=files / "ca.crt")
    async with api(files) as server, listening(server) as running:
        links = [
            socket.create_connection(("127.0.0.1", running.listener.port)) for _ in range(strangers)
        ]
        clients = [ByHand(link, context) for link in links]
        for link, client in zip(links, clients, strict=True):
            link.setblocking(False)
            await client.shake_hands()
        await until(lambda: running.listener.connections == strangers)
        read()
        sent = 0
        for link, client in zip(links, clients, strict=True):
            sent += link.send(client.new_keys(changes))
        turns = [0]
        while running.listener.connections and sum(turns) < sent:
            await asyncio.sleep(0)
            turns.append(read())
        for link in links:
            link.close()
    return turns
