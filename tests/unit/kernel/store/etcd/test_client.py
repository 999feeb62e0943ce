"""The client of etcd: addresses, certificates, and what becomes of errors."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme

from orchid.kernel.store.etcd import client as etcd_client
from orchid.kernel.store.etcd.client import (
    EtcdClient,
    Lost,
    RevisionGone,
    TLSFiles,
    Undecided,
)
from orchid.kernel.store.etcd.grpc_calls import (
    GrpcFailure,
    NotProcessed,
    OutcomeUnknown,
    StatusReceived,
)
from orchid.kernel.store.etcd.messages import STATUS, TXN, StatusRequest, TxnRequest
from orchid.kernel.store.etcd.store import EtcdStore
from orchid.kernel.store.interface import StoreFull, StoreUnavailable, StoreUnusable, ValueTooLarge
from tests.unit.kernel.store.asking import ALL, events_until, put
from tests.unit.kernel.store.etcd_process import Cluster, running


def status(code: int, text: str) -> StatusReceived:
    return StatusReceived(code, text)


def addresses(*endpoints: str) -> list[str]:
    client = EtcdClient(endpoints, TLSFiles(), timeout=1)
    return [endpoint.address for endpoint in client._endpoints]


async def test_endpoints_are_urls_or_bare_addresses() -> None:
    """The forms that etcd's own tools take, with the usual port when none is given."""
    assert addresses("http://a:1", "http://b:2/", "c:3") == ["a:1", "b:2", "c:3"]
    assert addresses("https://etcd.example") == ["etcd.example:2379"]
    assert addresses("http://[::1]:7") == ["[::1]:7"]


@pytest.mark.parametrize(
    "endpoints",
    [
        [],
        [""],
        ["ftp://a:1"],
        ["http://a:b"],
        ["http://a:99999"],
        ["http://a:1/path"],
        ["http://a:1?x=1"],
        ["http://user:secret@a:1"],
        ["http://user:secret@a:b"],
        ["http://a:1", "https://b:1"],
    ],
)
async def test_endpoint_that_cannot_be_one_is_refused(endpoints: list[str]) -> None:
    """A wrong setting is reported immediately, without a password in it."""
    with pytest.raises(StoreUnusable) as caught:
        addresses(*endpoints)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (status(11, "etcdserver: mvcc: required revision has been compacted"), RevisionGone),
        (status(11, "etcdserver: mvcc: required revision is a future revision"), StoreUnavailable),
        (status(3, "etcdserver: request is too large"), ValueTooLarge),
        (status(8, "grpc: received message larger than max (9 vs. 8)"), ValueTooLarge),
        (status(8, "etcdserver: mvcc: database space exceeded"), StoreFull),
        (status(8, "etcdserver: too many requests"), Lost),
        (status(14, "etcdserver: no leader"), Lost),
        (status(14, "etcdserver: request timed out"), Undecided),
        (status(4, "deadline exceeded"), Undecided),
        (status(7, "etcdserver: permission denied"), StoreUnavailable),
        (NotProcessed("etcd closes the connection"), Lost),
        (OutcomeUnknown("the connection was lost"), Undecided),
    ],
)
def test_failures_are_classified(failure: GrpcFailure, expected: type[Exception]) -> None:
    """Answers, failures that another member may not have, and unknown outcomes."""
    with pytest.raises(expected) as caught:
        raise etcd_client._judge(failure, "member:1")

    assert type(caught.value) is expected


async def test_calls_that_fail_together_leave_a_member_once() -> None:
    """Otherwise the second one would go back to the member that has just failed."""
    client = EtcdClient(["http://a:1", "http://b:1"], TLSFiles(), timeout=1)
    failed = client._endpoint()

    client._leave(failed)
    client._leave(failed)

    assert client._endpoint().address == "b:1"


# TLS


class Authority:
    """A CA with its files."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self._ca = trustme.CA()
        self.ca = directory / "ca.pem"
        self._ca.cert_pem.write_to_path(self.ca)

    def issue(self, name: str, identity: str) -> tuple[Path, Path]:
        issued = self._ca.issue_cert(identity)
        certificate, key = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        for n, blob in enumerate(issued.cert_chain_pems):
            blob.write_to_path(certificate, append=n > 0)
        issued.private_key_pem.write_to_path(key)
        return certificate, key


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


@pytest.fixture
async def secured(authority: Authority) -> AsyncIterator[Cluster]:
    """An etcd that takes only clients with a certificate."""
    certificate, key = authority.issue("server", "127.0.0.1")
    arguments = ["--cert-file", str(certificate), "--key-file", str(key), "--client-cert-auth"]
    with running(arguments=[*arguments, "--trusted-ca-file", str(authority.ca)]) as cluster:
        await cluster.wait_healthy()
        yield cluster


@pytest.mark.system_package("etcd")
async def test_store_over_tls_with_a_client_certificate(
    authority: Authority, secured: Cluster
) -> None:
    """Both sides are known to each other; reads, writes and watches pass."""
    certificate, key = authority.issue("client", "orchid")
    store = await EtcdStore.open(
        secured.urls, ca=authority.ca, certificate=certificate, key=key, timeout=10
    )

    assert await put(store, "a", b"1") == 2
    assert len((await store.read(ALL)).records) == 1
    assert len(await events_until(store, 2, after=1)) == 1
    await store.close()


@pytest.mark.system_package("etcd")
async def test_stranger_is_not_let_in(authority: Authority, secured: Cluster) -> None:
    """Without a certificate, or without TLS, there is no answer."""
    with pytest.raises(StoreUnavailable):
        await EtcdStore.open(secured.urls, ca=authority.ca, timeout=0.3)
    plain = [url.replace("https", "http") for url in secured.urls]
    with pytest.raises(StoreUnavailable):
        await EtcdStore.open(plain, timeout=0.3)


@pytest.mark.system_package("etcd")
async def test_impostor_is_not_talked_to(
    authority: Authority, secured: Cluster, tmp_path: Path
) -> None:
    """A server that another CA vouches for gets nothing from us."""
    other = Authority(tmp_path / "other")
    certificate, key = authority.issue("client", "orchid")

    with pytest.raises(StoreUnavailable, match=r"etcd 127\.0\.0\.1"):
        await EtcdStore.open(
            secured.urls, ca=other.ca, certificate=certificate, key=key, timeout=0.5
        )


@pytest.mark.system_package("etcd")
async def test_renewed_certificate_is_used_for_the_next_connection(
    authority: Authority, secured: Cluster, tmp_path: Path
) -> None:
    """Files that were replaced are read again once a connection cannot be made."""
    certificate, key = authority.issue("client", "orchid")
    good, good_key = certificate.read_bytes(), key.read_bytes()
    stranger = Authority(tmp_path / "other").issue("client", "orchid")
    certificate.write_bytes(stranger[0].read_bytes())
    key.write_bytes(stranger[1].read_bytes())
    client = EtcdClient(secured.urls, TLSFiles(authority.ca, certificate, key), timeout=0.5)
    with pytest.raises(StoreUnavailable):
        await client.call(STATUS, StatusRequest())

    certificate.write_bytes(good)
    key.write_bytes(good_key)
    client.timeout = 20

    assert (await client.call(STATUS, StatusRequest())).version.startswith("3.")
    await client.close()


async def test_a_server_without_http2_is_reported(authority: Authority) -> None:
    """Such as a proxy at the port of etcd: nothing is sent to it."""
    certificate, key = authority.issue("server", "127.0.0.1")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    server = await asyncio.start_server(lambda _in, _out: None, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    client = EtcdClient([f"https://127.0.0.1:{port}"], TLSFiles(authority.ca), timeout=0.5)

    try:
        with pytest.raises(Lost, match="does not speak HTTP/2"):
            await client.call(STATUS, StatusRequest())
    finally:
        await client.close()
        server.close()


async def test_certificate_files_are_checked_at_the_start(
    authority: Authority, tmp_path: Path
) -> None:
    """Missing and invalid files are named before the first connection."""
    certificate, key = authority.issue("client", "orchid")
    with pytest.raises(StoreUnusable, match="needs its key"):
        await EtcdStore.open(["https://127.0.0.1:1"], certificate=certificate)
    with pytest.raises(StoreUnusable, match=r"nowhere\.pem"):
        await EtcdStore.open(["https://127.0.0.1:1"], ca=tmp_path / "nowhere.pem")
    with pytest.raises(StoreUnusable, match="not https"):
        await EtcdStore.open(["http://127.0.0.1:1"], certificate=certificate, key=key)


async def test_answer_that_cannot_be_read_leaves_the_outcome_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call may have been carried out; so it is not repeated, and the store looks for it."""

    class Broken:
        is_ready = True

        async def call(self, _path: str, _message: bytes, _seconds: float) -> bytes:
            return b"\xff" * 5

    client = EtcdClient(["http://etcd:2379"], TLSFiles(), timeout=1)
    monkeypatch.setattr(client._endpoints[0], "_connection", Broken())

    with pytest.raises(Undecided, match="cannot be read"):
        await client.once(TXN, TxnRequest())


async def test_a_call_that_has_to_connect_gets_a_task_first() -> None:
    """A handler may call without one (kernel/http/messages.py); a time limit needs it."""
    yielded: list[object] = []
    begun = asyncio.Event()
    client = EtcdClient(["http://127.0.0.1:1"], TLSFiles(), timeout=1)
    calling = client.call(STATUS, StatusRequest())

    def begin() -> None:
        yielded.append(calling.send(None))
        begun.set()

    asyncio.get_running_loop().call_soon(begin)
    await begun.wait()
    calling.close()

    assert yielded == [None]  # the listener then makes a task


class Losing:
    """A connection on which the first answers are lost."""

    is_ready = True

    def __init__(self, lost: int) -> None:
        self.calls, self._lost = 0, lost

    async def call(self, _path: str, _message: bytes, _seconds: float) -> bytes:
        self.calls += 1
        if self.calls <= self._lost:
            raise OutcomeUnknown("the connection was lost")
        return b""


async def test_a_read_whose_answer_was_lost_is_repeated_and_a_write_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A read changes nothing; a write may have been carried out."""
    monkeypatch.setattr(etcd_client, "PAUSE_SECONDS", 0)
    found = []
    for repeats in (True, False):
        client, losing = EtcdClient(["http://etcd:2379"], TLSFiles(), timeout=60), Losing(2)
        monkeypatch.setattr(client._endpoints[0], "_connection", losing)
        call = client.call if repeats else client.once
        try:
            await call(STATUS, StatusRequest())
            found.append(("answered", losing.calls))
        except Undecided:
            found.append(("undecided", losing.calls))

    assert found == [("answered", 3), ("undecided", 1)]
