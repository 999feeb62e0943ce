"""TLS: the client's certificate reaches the handler unjudged, and files can change under way."""

import os
import ssl
from pathlib import Path

import pytest
import trustme

from orchid.kernel.credentials.refusals import ExposedKeyFile, Refusal
from orchid.kernel.http import listener
from orchid.kernel.http.listener import ConnectionLimits
from orchid.kernel.http.messages import Chunk, HttpRequest, Peer, Response, Sink, Stream
from orchid.kernel.http.tls import files as tls_module
from orchid.kernel.http.tls.files import TlsFiles, TlsFilesUnusable
from tests.unit.kernel.http.listening import TEXT, serving, until


class Authority:
    """A certificate authority with files, as an operator has them."""

    def __init__(self, folder: Path, name: str = "ours") -> None:
        self.ca = trustme.CA()
        self.folder = folder
        self.file = folder / f"{name}-ca.pem"
        self.ca.cert_pem.write_to_path(str(self.file))

    def write(self, name: str, *, ca: trustme.CA | None = None) -> tuple[Path, Path]:
        """Write a new certificate with its intermediates, and its key."""
        leaf = (ca or self.ca).issue_cert("localhost", "127.0.0.1", common_name="tester")
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        key.touch(mode=0o600)
        key.write_bytes(leaf.private_key_pem.bytes())
        return certificate, key

    def files(self, *, judge_in_handshake: bool = False) -> TlsFiles:
        certificate, key = self.write("server")
        return TlsFiles(certificate, key, [self.file], judge_in_handshake=judge_in_handshake)

    def client(self, identity: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.file))
        if identity:
            context.load_cert_chain(*identity)
        return context


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def stranger(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "strange")


def der(file: Path) -> list[bytes]:
    end = "-----END CERTIFICATE-----\n"
    parts = file.read_text().split(end)[:-1]
    return [ssl.PEM_cert_to_DER_cert(part + end) for part in parts]


class Seen:
    """A handler that keeps the peers it saw."""

    def __init__(self) -> None:
        self.peers: list[Peer] = []

    async def __call__(self, request: HttpRequest) -> Response:
        self.peers.append(request.peer)
        return Response(200, TEXT, b"ok")


async def test_a_client_without_a_certificate_is_served(authority: Authority) -> None:
    """The certificate is asked for, not demanded."""
    seen = Seen()
    async with serving(seen, tls=authority.files()) as running:
        client = await running.connect(authority.client())
        client.get("/")

        assert (await client.answer()).body == b"ok"

    assert seen.peers[0].certificate is None
    assert not seen.peers[0].verified_by_tls


async def test_a_certificate_of_an_unknown_authority_reaches_the_handler(
    authority: Authority, stranger: Authority
) -> None:
    """Its holder is to get an answer, not a broken handshake; nothing is said to be proven."""
    files = authority.files()
    assert not files.verifies_clients
    identity = stranger.write("client")
    seen = Seen()
    async with serving(seen, tls=files) as running:
        client = await running.connect(authority.client(identity))
        client.get("/")

        assert (await client.answer()).status == 200

    assert [seen.peers[0].certificate] == der(identity[0])
    assert not seen.peers[0].verified_by_tls


async def test_intermediates_come_with_the_certificate(authority: Authority) -> None:
    """Authentication can build the chain from what the client sent."""
    identity = authority.write("client", ca=authority.ca.create_child_ca())
    seen = Seen()
    async with serving(seen, tls=authority.files()) as running:
        client = await running.connect(authority.client(identity))
        client.get("/")
        await client.answer()

    leaf, *intermediates = der(identity[0])
    assert intermediates
    assert seen.peers[0].certificate == leaf
    assert seen.peers[0].chain == tuple(intermediates)


async def test_sessions_are_not_resumed(authority: Authority) -> None:
    """A resumed session would lose intermediates and outlive a removed authority."""
    async with serving(Seen(), tls=authority.files()) as running:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = authority.client()
            context.minimum_version = context.maximum_version = version
            client = await running.connect(context)
            client.get("/")
            await client.answer()
            tls = client.writer.get_extra_info("ssl_object")
            assert tls.version() == {771: "TLSv1.2", 772: "TLSv1.3"}[version]
            assert not tls.session.has_ticket


async def test_where_openssl_cannot_be_asked_the_handshake_verifies(
    authority: Authority, stranger: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The self-test notices, strangers fail in the handshake, and the peer says what is proven."""
    monkeypatch.setattr(tls_module, "accept_unverified", lambda context: None)
    files = authority.files()
    seen = Seen()
    async with serving(seen, tls=files) as running:
        client = await running.connect(authority.client(authority.write("client")))
        client.get("/")
        await client.answer()
        rejected = await running.connect(authority.client(stranger.write("other")))
        rejected.get("/")
        with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
            await rejected.answer()
        await until(lambda: running.listener.failed_handshakes == 1)

    assert files.verifies_clients
    assert [peer.verified_by_tls for peer in seen.peers] == [True]


async def test_judging_in_the_handshake_can_be_asked_for(authority: Authority) -> None:
    """An operator may prefer that strangers do not get that far."""
    seen = Seen()
    async with serving(seen, tls=authority.files(judge_in_handshake=True)) as running:
        client = await running.connect(authority.client(authority.write("client")))
        client.get("/")
        await client.answer()

    assert seen.peers[0].verified_by_tls


async def test_without_authorities_no_certificate_is_asked_for(authority: Authority) -> None:
    """A client that has one keeps it to itself."""
    files = TlsFiles(*authority.write("server"))
    seen = Seen()
    async with serving(seen, tls=files) as running:
        client = await running.connect(authority.client(authority.write("client")))
        client.get("/")
        await client.answer()

    assert seen.peers[0].certificate is None


async def test_http_1_1_is_agreed_on_and_old_tls_is_not(authority: Authority) -> None:
    """ALPN offers what we speak; TLS 1.1 is history."""
    files = authority.files()
    async with serving(Seen(), tls=files) as running:
        context = authority.client()
        context.set_alpn_protocols(["h2", "http/1.1"])
        client = await running.connect(context)
        chosen = client.writer.get_extra_info("ssl_object").selected_alpn_protocol()

    assert chosen == "http/1.1"
    assert files.context.minimum_version == ssl.TLSVersion.TLSv1_2


async def test_noise_and_plain_http_on_a_tls_port_are_closed(authority: Authority) -> None:
    """A failed handshake costs nobody else anything, and is counted."""
    async with serving(Seen(), tls=authority.files()) as running:
        for noise in (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", bytes(range(256))):
            client = await running.connect()
            client.send(noise)
            await client.rest()
        await until(lambda: running.listener.failed_handshakes == 2)
        good = await running.connect(authority.client())
        good.get("/")

        assert (await good.answer()).status == 200


async def test_a_handshake_that_never_comes_ends(authority: Authority) -> None:
    """A silent client on a TLS port is not waited for."""
    limits = ConnectionLimits(header_timeout=0.05)
    async with serving(Seen(), tls=authority.files(), limits=limits) as running:
        client = await running.connect()

        assert await client.rest() == b""
        await until(lambda: running.listener.failed_handshakes == 1)


async def test_handshakes_are_cleaned_up_after_now_and_then(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many handshakes leave memory behind: a callback runs after some of them, not after each."""
    calls: list[int] = []
    monkeypatch.setattr(listener, "_RUSH", 5)
    monkeypatch.setattr(listener, "_RUSH_SECONDS", 0.0)
    monkeypatch.setattr(listener, "_CALM_SECONDS", 3600.0)
    files, context = authority.files(), authority.client()
    async with serving(Seen(), tls=files, after_rush=lambda: calls.append(1)) as running:
        for _ in range(11):
            await (await running.connect(context)).close()
            await until(lambda: running.listener.connections == 0)

    # For every five of them, and perhaps once more in a quiet moment at the beginning.
    assert len(calls) in (2, 3)


async def test_a_large_answer_and_body_pass_through_tls(authority: Authority) -> None:
    """Many records in both directions."""

    async def echo_body(request: HttpRequest) -> Response:
        return Response(200, TEXT, request.body)

    body = bytes(range(256)) * 8192
    async with serving(echo_body, tls=authority.files()) as running:
        client = await running.connect(authority.client())
        client.get("/", f"Content-Length: {len(body)}", method="PUT")
        client.send(body)

        assert (await client.answer()).body == body


async def test_a_refused_client_can_read_why_over_tls(authority: Authority) -> None:
    """The answer is not overtaken by the end of the connection."""
    limits = ConnectionLimits(linger=0.05)
    async with serving(Seen(), tls=authority.files(), limits=limits) as running:
        client = await running.connect(authority.client())
        client.send(b"GET / HTTP/1.1\r\n\r\n" + b"x" * 50_000)

        assert (await client.answer()).status == 400
        assert await client.rest() == b""


async def test_a_watcher_that_does_not_read_is_cut_off_over_tls(authority: Authority) -> None:
    """The bound on unsent bytes holds for what TLS keeps, too."""
    sinks: list[Sink] = []

    async def handler(request: HttpRequest) -> Stream:
        return Stream(200, TEXT, sinks.append)

    limits = ConnectionLimits(max_unsent_bytes=256 << 10)
    async with serving(handler, tls=authority.files(), limits=limits) as running:
        client = await running.connect(authority.client())
        client.get("/")
        await client.head()
        client.stop_reading()
        chunk = Chunk(b"x" * (64 << 10))

        def stuck() -> bool:
            sinks[0].send(chunk)
            return sinks[0].closed

        await until(stuck)
        await until(lambda: running.listener.connections == 0)
        assert running.listener.cut_off == 1


async def test_changed_files_serve_new_connections_and_keep_the_old(authority: Authority) -> None:
    """A renewed certificate is used without a restart, and drops nobody."""
    files = authority.files()
    first_certificate = der(authority.folder / "server.pem")[0]
    async with serving(Seen(), tls=files) as running:
        old = await running.connect(authority.client())
        authority.write("server")
        reloaded = files.poll()
        new = await running.connect(authority.client())
        for client in (old, new):
            client.get("/")
            assert (await client.answer()).status == 200
        shown = [
            client.writer.get_extra_info("ssl_object").getpeercert(True) for client in (old, new)
        ]

    assert reloaded
    assert not files.poll()
    assert shown == [first_certificate, der(authority.folder / "server.pem")[0]]


@pytest.mark.parametrize("damage", ["gone", "broken", "other key", "exposed"])
def test_a_reload_that_fails_keeps_what_works(authority: Authority, damage: str) -> None:
    """Half-written files are not used; the next change is looked at again."""
    files = authority.files()
    before = files.context
    certificate, key = authority.folder / "server.pem", authority.folder / "server.key"
    if damage == "gone":
        certificate.unlink()
    elif damage == "broken":
        certificate.write_text("nonsense")
    elif damage == "other key":
        key.write_bytes(authority.write("other")[1].read_bytes())
    else:
        authority.write("server")
        key.chmod(0o644)

    assert not files.poll()
    assert files.context is before
    key.unlink()
    authority.write("server")
    assert files.poll()
    assert files.context is not before


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_that_others_can_reach_is_refused(authority: Authority, mode: int) -> None:
    """The message names the file and the mode, and says what to do."""
    certificate, key = authority.write("server")
    key.chmod(mode)

    with pytest.raises(ExposedKeyFile, match=rf"server\.key .*mode {mode:04o}.*0600"):
        TlsFiles(certificate, key)


@pytest.mark.parametrize("name", ["server.pem", "server.key", "ours-ca.pem"])
@pytest.mark.parametrize("damage", ["missing", "nonsense"])
def test_unusable_files_are_named(authority: Authority, name: str, damage: str) -> None:
    """A clear sentence, of a kind that settings can catch; no key bytes in it."""
    certificate, key = authority.write("server")
    damaged = authority.folder / name
    damaged.unlink()
    if damage == "nonsense":
        damaged.touch(mode=0o600)
        damaged.write_text("secret nonsense")

    with pytest.raises(Refusal, match=name) as caught:
        TlsFiles(certificate, key, [authority.file])

    assert "secret" not in str(caught.value)


def test_an_encrypted_key_is_refused_without_asking(authority: Authority) -> None:
    """A server that waits at a terminal for a password would never start."""
    from cryptography.hazmat.primitives import serialization

    certificate, key = authority.write("server")
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )

    with pytest.raises(TlsFilesUnusable):
        TlsFiles(certificate, key)


def test_a_file_that_is_replaced_within_a_second_is_noticed(authority: Authority) -> None:
    """Identity, size and time together; a rename gives a new identity."""
    files = authority.files()
    certificate, key = authority.write("next")
    times = (authority.folder / "server.pem").stat()
    for source, name in ((certificate, "server.pem"), (key, "server.key")):
        os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
        source.rename(authority.folder / name)

    assert files.poll()
