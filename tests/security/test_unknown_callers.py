"""The attacks of those who need no credentials: what they leave unfinished costs us little.

Against the whole server on a socket, over TLS: half-sent bodies and heads, certificates that are
refused, and connections that say nothing.
"""

import asyncio
import contextlib
import socket
import ssl
from pathlib import Path

import pytest

from orchid.kernel.credentials.x509.trust.certification_path import ClientVerifier
from orchid.kernel.http.listener import HANDSHAKES_AT_ONCE
from orchid.kernel.http.tls.channel import TlsChannel
from tests.api.world import ADMIN
from tests.security.certified import issued, other_authority
from tests.security.listening import ACCOUNTS, asked, bearer
from tests.unit.kernel.http.listening import Running, until

LARGE = 3_000_000


def half_sent(*lines: str) -> bytes:
    """A request whose body never comes to its end."""
    head = [f"POST {ACCOUNTS} HTTP/1.1", "Host: h", f"Content-Length: {LARGE}", *lines, "", ""]
    return "\r\n".join(head).encode() + b" " * 500_000


async def test_bodies_of_nobody_are_not_kept(open_server: Running, trust: ssl.SSLContext) -> None:
    """A missing or wrong credential gets 401 on the head; no part of the body is buffered."""
    clients = [await open_server.connect(trust) for _ in range(20)]
    for number, client in enumerate(clients):
        client.send(half_sent(*([bearer("wrong")] if number % 2 else [])))

    statuses = [(await client.answer()).status for client in clients]

    assert statuses == [401] * 20
    assert open_server.listener._service.unread.total == 0


UNFINISHED = 120_000  # bytes of a head


async def test_heads_of_nobody_are_kept_within_a_budget(
    open_server: Running, trust: ssl.SSLContext
) -> None:
    """200 unfinished heads of 120 kB are more than one address may have; the rest is let go."""
    service = open_server.listener._service
    for _ in range(200):
        client = await open_server.connect(trust)
        client.send(b"GET / HTTP/1.1\r\nHost: h\r\nA: " + b"x" * UNFINISHED)
        before = service.dropped
        held = service.unread.total
        await until(lambda held=held, before=before: moved(service, held, before))

    assert service.dropped > 50
    assert service.unread.total <= service.limits.max_unread_bytes_per_address
    client = await open_server.connect(trust)
    assert await asked(client, bearer(ADMIN)) == 200


def moved(service: object, held: int, dropped: int) -> bool:
    """Whether a whole head more has arrived, or somebody was dropped for it."""
    total = service.unread.total  # type: ignore[attr-defined] -- the listener's own state
    return bool(total >= held + UNFINISHED or service.dropped > dropped)  # type: ignore[attr-defined] -- the same


async def test_a_refused_certificate_is_judged_once_however_often_it_asks(
    open_server: Running,
    tmp_path: Path,
    server_files: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hundreds of pipelined requests cost one look at the chain, and each gets its 401."""
    judged: list[bytes] = []
    verify = ClientVerifier.verify

    def counting(self: ClientVerifier, leaf: bytes, *rest: object) -> object:
        judged.append(leaf)
        return verify(self, leaf, *rest)  # type: ignore[arg-type] -- handed on as it came

    monkeypatch.setattr(ClientVerifier, "verify", counting)
    stranger = issued(other_authority(), "root", "system:masters")
    client = await open_server.connect(stranger.context(tmp_path, server_files / "ca.crt"))
    client.send(f"GET {ACCOUNTS} HTTP/1.1\r\nHost: h\r\n\r\n".encode() * 300)

    statuses = {(await client.answer()).status for _ in range(300)}

    assert statuses == {401}
    assert len(judged) == 1


async def test_silent_connections_do_not_lock_out_others(
    open_server: Running, trust: ssl.SSLContext
) -> None:
    """More idle connections than one address may have do not keep others from connecting."""
    limit = open_server.listener._limits.max_handshakes_per_address
    address = ("127.0.0.1", open_server.listener.port)
    silent = []
    for _ in range(limit + 50):
        silent.append(socket.create_connection(address))
        await asyncio.sleep(0)
    await until(lambda: open_server.listener.dropped >= 50)
    client = await open_server.connect(trust)
    status = await asked(client, bearer(ADMIN))
    for one in silent:
        one.close()

    assert status == 200


async def test_a_rush_of_handshakes_lets_the_loop_go_on(
    open_server: Running, trust: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those who come at once, a few get their signature in each turn of the loop."""
    steps, counts, number = 0, [], 150
    really_shake_hands = TlsChannel.shake_hands

    def counting(self: TlsChannel) -> None:
        nonlocal steps
        steps += 1
        really_shake_hands(self)

    monkeypatch.setattr(TlsChannel, "shake_hands", counting)
    first_bytes, address = hello(trust), ("127.0.0.1", open_server.listener.port)
    crowd = [socket.create_connection(address) for _ in range(number)]
    await until(lambda: len(open_server.listener._shaking_hands) == number)
    for one in crowd:
        one.sendall(first_bytes)

    while steps < number:
        before = steps
        await asyncio.sleep(0)
        counts.append(steps - before)
    for one in crowd:
        one.close()

    assert max(counts) <= 2 * HANDSHAKES_AT_ONCE  # asyncio's turn may begin in the middle of ours
    assert len(counts) >= number // HANDSHAKES_AT_ONCE


def hello(context: ssl.SSLContext) -> bytes:
    """The first bytes of a handshake."""
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()
