"""The attack: a server that we call keeps the event loop busy with TLS.

It is a cluster, an issuer, a webhook or a receiver of notices that somebody took over. Each of
these calls is in the process, and in the event loop, of the identity service.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import trustme

from orchid.kernel.outbound.answer import Answer
from orchid.kernel.outbound.failures import AnswerRefused
from orchid.kernel.outbound.https_client import HttpsClient
from orchid.kernel.outbound.remote import Remote, trusting
from orchid.kernel.outbound.tls_stream import TlsStream
from tests.security.key_updates import key_update
from tests.unit.kernel.outbound.loopback import CA, OK, PEM

FLOOD = 5000
PIECE = 4 << 10
DH_2048 = """-----BEGIN DH PARAMETERS-----
MIIBCAKCAQEA//////////+t+FRYortKmq/cViAnPTzx2LnFg84tNpWp4TZBFGQz
+8yTnc4kmz75fS/jY2MMddj2gbICrsRhetPfHtXV/WVhJDP1H18GbtCFY2VVPe0a
87VXE15/V8k1mE8McODmi3fipona8+/och3xWKE2rec1MKzKT0g6eXq8CrGCsyT7
YdEIqUuyyOP7uWrat2DX9GgdT0Kj3jlN9K5W7edjcrsZCwenyO4KbXCeAvzhzffi
7MA0BM0oNC9hkXL+nOmFg/+OTxIy7vKBg8P+OxtMb61zO7X8vC7CIAXFjvGDfRaD
ssbzSibBsu/6iGtCOGEoXJf//////////wIBAg==
-----END DH PARAMETERS-----
"""


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert("127.0.0.1").configure_cert(context)
    return context


@asynccontextmanager
async def speaking(
    context: ssl.SSLContext, answer: Callable[[ssl.SSLObject], None]
) -> AsyncIterator[HttpsClient]:
    """A client of a server that writes its own records after a request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_side=True)

        async def until_done(step: Callable[[], object]) -> None:
            while True:
                try:
                    step()
                    return
                except ssl.SSLWantReadError:
                    writer.write(outgoing.read())
                    if not (data := await reader.read(1 << 16)):
                        raise ConnectionResetError from None
                    incoming.write(data)

        try:
            await until_done(tls.do_handshake)
            await until_done(lambda: tls.read(1 << 14))
            answer(tls)
            writer.write(outgoing.read())
            await writer.drain()
            await reader.read()
        except ssl.SSLError:
            writer.write(outgoing.read())  # the alert
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    remote = Remote(f"https://127.0.0.1:{port}/", trusting(PEM))
    try:
        yield HttpsClient(remote, max_answer=1 << 20)
    finally:
        server.close()


def keys_change(times: int) -> Callable[[ssl.SSLObject], None]:
    """A server that changes its keys, and then answers."""

    def answer(tls: ssl.SSLObject) -> None:
        for _ in range(times):
            key_update(tls)
        tls.write(OK)

    return answer


async def test_a_server_that_changes_its_keys_for_ever_is_cut_off() -> None:
    """A quarter of a megabyte, which asyncio decrypts in one turn, held everybody up for 0.5 s."""
    async with speaking(server_context(), keys_change(FLOOD)) as client:
        with pytest.raises(AnswerRefused, match="records without data"):
            await client.send("GET")


async def test_a_server_may_change_its_keys() -> None:
    async with speaking(server_context(), keys_change(10)) as client:
        assert await client.send("GET") == Answer(200, b"{}")


async def test_what_a_server_sends_is_decrypted_in_many_turns() -> None:
    """Records with little in them are legal, and as expensive."""
    sizes: list[int] = []
    decrypted = TlsStream._decrypted

    def counted(stream: TlsStream) -> tuple[bytes, bool]:
        sizes.append(stream._incoming.pending)
        return decrypted(stream)

    def answer(tls: ssl.SSLObject) -> None:
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n" + b"x" * 9000:
            tls.write(bytes([byte]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TlsStream, "_decrypted", counted)
        async with speaking(server_context(), answer) as client:
            assert len((await client.send("GET")).body) == 9000

    assert max(sizes) <= 2 * PIECE  # with the rest of a record
    assert len(sizes) > 9000 * 23 / PIECE


async def test_a_turn_ends_while_more_has_arrived() -> None:
    """Others go on between two pieces, also if everything is there already."""
    reader = asyncio.StreamReader()
    reader.feed_data(b"x" * 20 * PIECE)

    class NoWriter:
        def write(self, data: bytes) -> None: ...

    stream = TlsStream(reader, cast(Any, NoWriter()), trusting(PEM), "127.0.0.1")
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    for _ in range(20):
        await stream._receive()
    counting.cancel()

    assert turns >= 18


async def test_no_server_chooses_the_group_of_a_key_exchange(tmp_path: Path) -> None:
    """One of 10,000 bits, for DHE in TLS 1.2, took more than a second."""
    parameters = tmp_path / "dh.pem"
    parameters.write_text(DH_2048)
    context = server_context()
    CA.issue_cert("127.0.0.1", key_type=trustme.KeyType.RSA).configure_cert(context)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("DHE-RSA-AES128-GCM-SHA256")
    context.load_dh_params(str(parameters))

    async with speaking(context, keys_change(0)) as client:
        with pytest.raises(AnswerRefused, match="TLS failed"):
            await client.send("GET")


async def test_no_chain_is_endless(tmp_path: Path) -> None:
    """Every certificate of it is verified in one turn."""
    leaf = CA.issue_cert("127.0.0.1")
    chain = tmp_path / "chain.pem"
    others = b"".join(trustme.CA().cert_pem.bytes() for _ in range(80))
    chain.write_bytes(leaf.private_key_pem.bytes() + leaf.cert_chain_pems[0].bytes() + others)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)

    async with speaking(context, keys_change(0)) as client:
        with pytest.raises(AnswerRefused, match="handshake is too long"):
            await client.send("GET")


def test_no_server_begins_another_handshake() -> None:
    """A renegotiation of TLS 1.2 is a handshake with its chain, as often as the server likes."""
    assert trusting(PEM).options & ssl.OP_NO_RENEGOTIATION
