"""TLS between the socket and a connection: whatever way the bytes come, and however it ends."""

import asyncio
import gc
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme

from orchid.kernel.base.scheduling.step_queue import Step
from orchid.kernel.http.tls.channel import ServedProtocol
from orchid.kernel.http.tls.files import TlsFiles
from tests.security.key_updates import key_update
from tests.unit.kernel.http.listening import PATIENCE, Running, echo, serving, until

WHOLE = 1 << 20
ASK = b"GET /%b HTTP/1.1\r\nHost: test\r\n\r\n"


class ByHand:
    """A TLS client whose records the test itself carries to the server."""

    def __init__(self, link: socket.socket, context: ssl.SSLContext) -> None:
        self._link = link
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    async def shake_hands(self, *, piece: int = WHOLE) -> None:
        await self.deliver(await self.last_of_handshake(piece=piece), piece=piece)

    async def last_of_handshake(self, *, piece: int = WHOLE) -> bytes:
        """Shake hands up to our last flight, and give that."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.deliver(self._outgoing.read(), piece=piece)
                await self._receive()
            else:
                return self._outgoing.read()

    def encrypted(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self._outgoing.read()

    def new_keys(self, times: int) -> bytes:
        """Changes of keys: records without data."""
        for _ in range(times):
            key_update(self._tls)
        return self._outgoing.read()

    def farewell(self) -> bytes:
        with pytest.raises(ssl.SSLWantReadError):
            self._tls.unwrap()
        return self._outgoing.read()

    async def deliver(self, data: bytes, *, piece: int = WHOLE) -> None:
        for start in range(0, len(data), piece):
            await asyncio.get_running_loop().sock_sendall(self._link, data[start : start + piece])
            await asyncio.sleep(0)

    async def read(self, size: int) -> bytes:
        """So many bytes, or fewer if the server says farewell."""
        data = b""
        while len(data) < size:
            try:
                data += self._tls.read(size - len(data))
            except ssl.SSLWantReadError:
                await self._receive()
            except ssl.SSLZeroReturnError:
                break
        return data

    async def _receive(self) -> None:
        async with asyncio.timeout(PATIENCE):
            data = await asyncio.get_running_loop().sock_recv(self._link, 1 << 16)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def client_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.fixture
async def running(authority: trustme.CA, tmp_path: Path) -> AsyncIterator[Running]:
    leaf = authority.issue_cert("localhost")
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    certificate.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    key.touch(mode=0o600)
    key.write_bytes(leaf.private_key_pem.bytes())
    async with serving(echo, tls=TlsFiles(certificate, key)) as found:
        yield found


@pytest.fixture
async def by_hand(running: Running, client_context: ssl.SSLContext) -> AsyncIterator[ByHand]:
    with socket.socket() as link:
        link.setblocking(False)
        await asyncio.get_running_loop().sock_connect(link, ("127.0.0.1", running.listener.port))
        yield ByHand(link, client_context)


@pytest.mark.parametrize("piece", [1, 3, WHOLE])
async def test_records_may_come_in_any_pieces(by_hand: ByHand, piece: int) -> None:
    """A record that is split, down to single bytes, is waited for; nothing is lost or repeated."""
    await by_hand.shake_hands(piece=piece)
    await by_hand.deliver(by_hand.encrypted(ASK % b"whole"), piece=piece)

    answer = await by_hand.read(60)

    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_what_comes_while_a_handshake_waits_is_read_after_it_and_bounded(
    running: Running, by_hand: ByHand
) -> None:
    """Somebody whose turn has not come sends on; little is kept, and nothing is lost."""
    last = await by_hand.last_of_handshake()
    waiting: list[Step] = []
    [channel] = running.listener._shaking_hands
    channel._arrived = waiting.append
    body = b"x" * 3_000_000
    head = b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 3000000\r\n\r\n"
    sending = asyncio.create_task(by_hand.deliver(last + by_hand.encrypted(head + body)))
    await until(lambda: not channel._transport.is_reading())

    kept = channel._incoming.pending
    waiting[0]()
    answer = await by_hand.read(40)
    await sending

    assert len(waiting) == 1
    assert kept < 1_000_000
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_what_comes_in_small_pieces_while_a_handshake_waits_is_bounded_too(
    running: Running, by_hand: ByHand
) -> None:
    """No piece is large enough to be read in several turns, but together they are."""
    await by_hand.last_of_handshake()
    [channel] = running.listener._shaking_hands
    channel._arrived = lambda _step: None  # its turn does not come

    for _ in range(100):
        if channel._transport.is_reading():
            channel.data_received(b"x" * 1000)

    assert 32_000 < channel._incoming.pending < 40_000


async def test_many_records_in_one_piece_are_all_answered(by_hand: ByHand) -> None:
    """Requests that share a packet are answered in order, the last one too."""
    await by_hand.shake_hands()
    asked = [b"%d" % n for n in range(20)]
    await by_hand.deliver(b"".join(by_hand.encrypted(ASK % name) for name in asked))

    read = b""
    while b"GET /19 " not in read:
        more = await by_hand.read(1)
        assert more
        read += more

    order = [read.index(b"GET /%b " % name) for name in asked]
    assert order == sorted(order)


async def test_request_together_with_the_last_of_the_handshake_is_answered(by_hand: ByHand) -> None:
    """Data behind the handshake in the same piece is processed."""
    held = await by_hand.last_of_handshake()
    await by_hand.deliver(held + by_hand.encrypted(ASK % b"early"))

    assert (await by_hand.read(15)) == b"HTTP/1.1 200 OK"


async def test_farewell_is_answered_and_ends_the_connection(
    by_hand: ByHand, running: Running
) -> None:
    """A client that closes properly gets a close_notify, and nothing is left open."""
    await by_hand.shake_hands()
    await until(lambda: running.listener.connections == 1)
    await by_hand.deliver(by_hand.farewell())

    assert await by_hand.read(1) == b""
    await until(lambda: running.listener.connections == 0)


def states_of_servers() -> int:
    """How many server's ends of TLS there are in this process."""
    return sum(isinstance(each, ssl.SSLObject) and each.server_side for each in gc.get_objects())


async def test_closed_connection_gives_its_memory_back_at_once(
    by_hand: ByHand, running: Running
) -> None:
    """TLS memory of a connection is freed with it, without a garbage collection."""
    await by_hand.shake_hands()
    await until(lambda: running.listener.connections == 1)
    gc.collect()
    gc.disable()
    try:
        before = states_of_servers()
        await by_hand.deliver(by_hand.farewell())
        await until(lambda: running.listener.connections == 0)
        await asyncio.sleep(0)
        after = states_of_servers()
    finally:
        gc.enable()

    assert (before, after) == (1, 0)


async def test_broken_record_ends_the_connection(by_hand: ByHand, running: Running) -> None:
    """Bytes that were changed on the way are never handed on."""
    await by_hand.shake_hands()
    await until(lambda: running.listener.connections == 1)
    record = bytearray(by_hand.encrypted(ASK % b"broken"))
    record[-1] ^= 1
    await by_hand.deliver(bytes(record))

    await until(lambda: running.listener.connections == 0)
    assert running.listener.requests == 0


async def test_client_may_change_its_keys_and_ask_for_ours(running: Running) -> None:
    """A key update (RFC 8446, 4.6.3) is answered by OpenSSL, and that answer reaches the client."""
    process = await asyncio.create_subprocess_exec(
        "openssl", "s_client", "-tls1_3", "-crlf", "-connect", f"127.0.0.1:{running.listener.port}",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin
    assert process.stdout
    assert process.stderr
    try:
        async with asyncio.timeout(PATIENCE):
            for name in (b"once", b"twice"):
                process.stdin.write(b"K\n")
                await process.stderr.readuntil(b"KEYUPDATE")
                process.stdin.write((ASK % name).replace(b"\r\n", b"\n"))
                answer = await process.stdout.readuntil(b"GET /" + name)

                assert b"HTTP/1.1 200 OK" in answer
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize("before", [b"", b"GET /before HTTP/1.1\r\nHost: test\r\n\r\n"])
async def test_records_without_data_end_the_connection_when_they_go_on(
    by_hand: ByHand, running: Running, before: bytes
) -> None:
    """However the caller has begun; a few of them are answered like anybody."""
    await by_hand.shake_hands()
    if before:
        await by_hand.deliver(by_hand.encrypted(before) + by_hand.new_keys(100))
        assert await by_hand.read(15) == b"HTTP/1.1 200 OK"
    await until(lambda: running.listener.connections == 1)

    await by_hand.deliver(by_hand.new_keys(1000))

    await until(lambda: running.listener.connections == 0)


async def test_large_record_in_small_pieces_is_no_record_without_data(by_hand: ByHand) -> None:
    """A record of 16 KiB is decrypted when its end is there, whatever it comes in."""
    await by_hand.shake_hands()
    head = b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 160000\r\n\r\n"
    await by_hand.deliver(by_hand.encrypted(head + b"x" * 160_000), piece=1000)

    assert await by_hand.read(15) == b"HTTP/1.1 200 OK"


class Heard(ServedProtocol):
    """Records what it receives."""

    def __init__(self) -> None:
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data


async def test_a_protocol_that_paused_hears_nothing_until_it_goes_on(
    running: Running, by_hand: ByHand
) -> None:
    """Then everything in its order, a short record behind long ones too."""
    last = await by_hand.last_of_handshake()
    [channel] = running.listener._shaking_hands
    await by_hand.deliver(last)
    await until(lambda: channel._protocol is not None)
    served, heard = channel._protocol, Heard()
    channel._protocol = heard

    channel.pause_reading()
    channel.data_received(by_hand.encrypted(b"a" * 3000))
    channel.data_received(by_hand.encrypted(b"b"))
    meanwhile = heard.data
    channel.resume_reading()
    await until(lambda: len(heard.data) == 3001 or channel.is_closing())
    channel._protocol = served

    assert meanwhile == b""
    assert heard.data == b"a" * 3000 + b"b"
