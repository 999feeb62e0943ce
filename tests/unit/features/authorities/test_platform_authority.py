"""The authority `cluster`: imported from files, rotated, and followed by all that use it."""

import asyncio
import base64
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.authorities.platform_authority import PlatformAuthority
from orchid.features.certificates import platform_import
from orchid.features.certificates.own_certificates import OwnCertificates
from orchid.features.objects.kinds.lease import Lease
from orchid.features.objects.kinds.secret import Secret
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.revoking.applied_revision import AppliedRevision
from orchid.features.token_keys.kinds.signing_key import ACTIVE, RETIRED, VERIFYING, SigningKey
from orchid.features.trust_bundles.kinds.cluster_trust_bundle import ClusterTrustBundle
from orchid.kernel.base.clock import SystemClock
from orchid.kernel.client.client import ListSelection
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.files import write_private
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.settings import data_directory
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.wire.errors import Forbidden, Invalid
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import RevokedKey
from orchid.kernel.wire.struct import replace
from tests.api.world import Api, api
from tests.security.certified import Certified
from tests.unit.features.authorities.test_authority_rotation import (
    HOME,
    Verifier,
    make_activatable,
    new_key,
    pem,
    step,
    until_signs,
)
from tests.unit.features.authorities.test_keep_authorities import KEEPER, SIGNING, create, issued
from tests.unit.features.beside import CLIENT_USAGES, Beside, beside

SEALED = "encryption.yaml"


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[Beside]:
    """A server with files of its own."""
    async with beside(tmp_path / "data") as made:
        yield made


def roots(world: Beside) -> list[str]:
    """The common names in ca.crt."""
    found = x509.load_pem_x509_certificates(world.server.files.ca_certificate.read_bytes())
    return [one.subject.rfc4514_string() for one in found]


def serving(world: Beside) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(world.server.files.serving_certificate.read_bytes())


def trusted_by_kubeconfig(world: Beside) -> bytes:
    text = world.server.files.kubeconfig.read_text()
    found = re.search(r"certificate-authority-data: (\S+)", text)
    assert found is not None
    return base64.b64decode(found[1])


def accepts(world: Beside, leaf: bytes) -> bool:
    """Whether the server authenticates a client with this certificate."""
    assert world.server.context.port(PlatformAuthority) is not None
    der, *above = map(certificates.encode, certificates.parse_blocks(leaf))
    try:
        world.server.context.port(PlatformAuthority).pool().verify(der, above, world.clock.now())
    except Refusal:
        return False
    return True


def client_of(authority: Authority, world: Beside) -> bytes:
    return authority.issue_client("ann", lifetime=timedelta(days=9), now=world.clock.now()).chain


async def warnings(world: Beside, chain: bytes) -> str:
    """The Warning header of a response to the holder of a certificate."""
    peer = Certified(chain, b"").peer
    answer = await Api(world.server).call("GET", "/version", token=None, peer=peer)
    assert answer.status == 200
    return dict(answer.headers).get("Warning", "")


def signer(world: Beside) -> Authority:
    assert world.server.context.port(PlatformAuthority) is not None
    return world.server.context.port(PlatformAuthority).snapshot().signer()


async def activate(world: Beside, name: str = "cluster-2") -> None:
    await new_key(world, name, "cluster")
    await make_activatable(world, name)
    await step(world, name, ACTIVE)
    await world.server.feed.fresh()


async def test_the_files_of_an_earlier_version_become_the_first_key(tmp_path: Path) -> None:
    """Key and certificate stay, no file changes, and nothing is issued again."""
    directory, now = tmp_path / "data", SystemClock().now()
    directory.mkdir(mode=0o700)
    made = Authority.create("orchid-ca", now=now - timedelta(days=300))
    write_private(directory / "ca.crt", made.certificate_pem)
    write_private(directory / "ca.key", made.key_pem().reveal().encode())
    store = MemoryStore()
    async with api(directory, ready=False):
        files = {path.name: path.read_bytes() for path in directory.iterdir()}
    async with beside(directory, store=store) as world:
        key = await world.admin.get(SigningKey, "cluster-1")
        authority = await world.admin.get(CertificateAuthority, "cluster")
        client = accepts(world, client_of(made, world))

    after = {path.name: path.read_bytes() for path in directory.iterdir() if path.name in files}
    assert after == files
    assert {"ca.crt", "ca.key", "serving.crt", "admin.kubeconfig"} <= files.keys()
    assert (key.state, key.status.source) == (ACTIVE, "Imported")
    assert key.status.certificate.encode() == made.certificate_pem
    assert authority.status.certificate == key.status.certificate
    assert authority.is_ready
    assert key.status.dependents is not None
    assert key.status.dependents.unknown_until is not None
    assert client


async def test_a_rotation_rejects_nobody(own: Beside, tmp_path: Path) -> None:
    """Old and new client certificates, and clients of the server with the old root alone."""
    before, leaf = signer(own), serving(own)
    old_client = client_of(before, own)
    async with own.running(KEEPER, SIGNING):
        await new_key(own, "cluster-2", "cluster")
        await own.server.feed.fresh()
        await own.server.context.port(OwnCertificates).renew(own.clock)
        published, kept = roots(own), serving(own) == leaf
        await make_activatable(own, "cluster-2")
        await step(own, "cluster-2", ACTIVE)
        await own.server.context.port(OwnCertificates).renew(own.clock)
        await until_signs(own, "cluster-2", "cluster")
        new_client = await issued(own, "new", signer=ORCH.client_signer, usages=CLIENT_USAGES)
    after = signer(own)
    first, second = pem(before.certificate), pem(after.certificate)
    verifier, bundles = Verifier(tmp_path), ListSelection(ClusterTrustBundle)

    warned = [await warnings(own, chain) for chain in (old_client, pem(*new_client).encode())]

    assert "client certificate is of the replaced key cluster-1; renew it" in warned[0]
    assert warned[1] == ""
    assert published == ["CN=orchid-ca", "CN=orchid-ca 2"]
    assert kept
    assert roots(own) == ["CN=orchid-ca 2", "CN=orchid-ca"]
    assert accepts(own, old_client)
    assert accepts(own, pem(*new_client).encode())
    assert len(new_client) == 2, "the leaf and the cross certificate"
    assert serving(own) != leaf
    assert [verifier.accepts(serving(own), anchor) for anchor in (first, second)] == [True, True]
    assert trusted_by_kubeconfig(own).decode() == second + first
    found = [one async for one in own.admin.scan(bundles)]
    texts = {one.spec.trust_bundle for one in found if one.spec.signer_name == ORCH.client_signer}
    assert texts == {first, second}


async def test_a_retired_key_is_no_longer_trusted_and_its_file_is_removed(
    own: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a certificate of it is valid, or a server serves with it, the step is rejected."""
    monkeypatch.setattr(own.server.clock, "now", own.clock.now)
    before = signer(own)
    old_client = client_of(before, own)
    await own.server.context.port(OwnCertificates).record(own.clock)
    await activate(own)
    await step(own, "cluster-1", VERIFYING)
    with pytest.raises(Invalid) as refused:
        await step(own, "cluster-1", RETIRED)
    own.clock.ahead = timedelta(days=400)
    await own.server.context.port(AppliedRevision).report()
    with pytest.raises(Invalid) as serves:
        await step(own, "cluster-1", RETIRED)
    await own.server.context.port(OwnCertificates).renew(own.clock)
    await own.server.context.port(AppliedRevision).report()
    await step(own, "cluster-1", RETIRED)
    await own.server.feed.fresh()
    await own.server.context.port(OwnCertificates).renew(own.clock)

    assert "1 certificate depends on cluster-1" in str(refused.value)  # of admin.kubeconfig
    assert "servers serve with it: orch-server-" in str(serves.value)
    assert "depend" not in str(serves.value)
    assert roots(own) == ["CN=orchid-ca 2"]
    assert not own.server.files.ca_key.exists()
    assert not accepts(own, old_client)
    # A client with the kubeconfig of the first day still verifies the server.
    assert [one.subject for one in serving(own)[1:]] == [signer(own).certificate.subject]


async def test_a_revoked_key_is_refused_at_once_and_the_next_one_signs(own: Beside) -> None:
    before = signer(own)
    old_client = client_of(before, own)
    await new_key(own, "cluster-2", "cluster")
    spec = CredentialRevocationSpec(key=RevokedKey(name="cluster-1"), reason="keyCompromise")
    meta = ObjectMeta(name="stolen")
    await own.admin.create(CredentialRevocation(metadata=meta, spec=spec))
    await own.server.feed.fresh()
    await own.server.context.port(OwnCertificates).renew(own.clock)

    assert not accepts(own, old_client)
    assert accepts(own, client_of(signer(own), own))
    assert roots(own) == ["CN=orchid-ca 2"]


async def test_without_any_key_every_client_certificate_is_refused(own: Beside) -> None:
    """The files stay, and a renewal says what is missing."""
    client = client_of(signer(own), own)
    spec = CredentialRevocationSpec(key=RevokedKey(name="cluster-1"), reason="keyCompromise")
    meta = ObjectMeta(name="stolen")
    await own.admin.create(CredentialRevocation(metadata=meta, spec=spec))
    await own.server.feed.fresh()

    assert not accepts(own, client)
    assert roots(own) == ["CN=orchid-ca"]


async def test_a_restart_takes_everything_from_the_store(tmp_path: Path) -> None:
    """After a rotation, with the files of before it, or with none of them."""
    store, data = MemoryStore(), tmp_path / "data"
    async with beside(data, store=Kept(store)) as world:
        old_files = {path: path.read_bytes() for path in data.iterdir() if path.is_file()}
        await activate(world)
        client = client_of(signer(world), world)
        await world.server.context.port(OwnCertificates).renew(world.clock)
    async with beside(data, store=Kept(store)) as world:
        same = roots(world), accepts(world, client)
    for path, content in old_files.items():
        write_private(path, content)
    async with beside(data, store=Kept(store)) as world:
        again = roots(world), accepts(world, client)
    for name in ("ca.crt", "ca.key", "serving.crt", "serving.key", "admin.kubeconfig"):
        (data / name).unlink()
    sealed = {"etcd_servers": ["http://127.0.0.1:9"], "encryption_provider_config": SEALED}
    files = {key: str(data / value) if value == SEALED else value for key, value in sealed.items()}
    async with beside(data, store=store, **files) as world:
        without = roots(world), accepts(world, client)
        issuer = serving(world)[0].issuer.rfc4514_string()
        has_key = world.server.files.ca_key.exists()

    both = ["CN=orchid-ca 2", "CN=orchid-ca"]
    assert same == again == without == (both, True)
    assert issuer == "CN=orchid-ca 2"
    assert not has_key


async def test_the_ca_of_another_server_stays_accepted(tmp_path: Path) -> None:
    """Two servers over one store began with different files: neither one's clients are refused."""
    store = MemoryStore()
    async with beside(tmp_path / "a", store=Kept(store)) as world:
        client_a = client_of(signer(world), world)
    (tmp_path / "b").mkdir(mode=0o700)
    write_private(tmp_path / "b" / SEALED, (tmp_path / "a" / SEALED).read_bytes())
    async with beside(tmp_path / "b", store=store) as world:
        files = world.server.files
        pair = data_directory.file_authority(files)
        key = await world.admin.get(SigningKey, "cluster-2")
        assert pair is not None
        accepted = [accepts(world, client) for client in (client_a, client_of(pair, world))]
        chain, root_b = serving(world), pem(pair.certificate)
        root_a = pem(signer(world).certificate)
        verifier = Verifier(tmp_path)
        verified = [verifier.accepts(chain, anchor) for anchor in (root_a, root_b)]

    assert key.state == VERIFYING
    assert accepted == [True, True]
    assert verified == [True, True]


async def test_the_import_waits_for_servers_of_an_earlier_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As leader, one would take the key for a token key. Until it is gone, the files count."""
    monkeypatch.setattr(platform_import, "AGAIN_SECONDS", 0.01)
    store, data = MemoryStore(), tmp_path / "data"
    data.mkdir(mode=0o700)
    pair = Authority.create("orchid-ca", now=SystemClock().now())
    write_private(data / "ca.crt", pair.certificate_pem)
    write_private(data / "ca.key", pair.key_pem().reveal().encode())
    files = {"cluster_signing_cert_file": str(data / "ca.crt")}
    files["cluster_signing_key_file"] = str(data / "ca.key")
    async with beside(data, store=Kept(store), **files) as world:
        older = ObjectMeta(name="orch-server-old", namespace=HOME)
        await world.admin.create(Lease(metadata=older))
    sealed = {"encryption_provider_config": str(data / SEALED)}
    async with beside(data, store=store, etcd_servers=["http://127.0.0.1:9"], **sealed) as world:
        found = await world.admin.find(CertificateAuthority, "cluster")
        before = accepts(world, client_of(pair, world))
        await world.server.context.port(OwnCertificates).renew(world.clock)
        await world.admin.delete(Lease, older.name, HOME)
        await world.server.feed.fresh()
        await asyncio.wait_for(platform_import.import_later(world.server.context), 30)
        imported = await world.admin.get(SigningKey, "cluster-1")
        after = accepts(world, client_of(pair, world))

    assert found is None
    assert before
    assert after
    assert imported.status.certificate.encode() == pair.certificate_pem


async def test_files_that_do_not_match_stop_the_first_start(tmp_path: Path) -> None:
    """Later the store has the key, and they do not matter."""
    directory, store = tmp_path / "data", MemoryStore()
    async with beside(directory, store=Kept(store)):
        key = (directory / "ca.key").read_bytes()
        other = Authority.create("x", now=SystemClock().now()).key_pem().reveal().encode()
        write_private(directory / "ca.key", other)
    with pytest.raises(BadSettings, match=r"ca\.crt"):
        async with beside(directory):
            pass
    async with beside(directory, store=store) as world:
        assert roots(world) == ["CN=orchid-ca"]
        assert (directory / "ca.key").read_bytes() != key


async def test_a_lost_secret_is_reported_and_clients_stay_accepted(
    own: Beside, caplog: pytest.LogCaptureFixture
) -> None:
    client = client_of(signer(own), own)
    key = await own.admin.get(SigningKey, "cluster-1")
    await own.admin.delete(Secret, key.secret_name, HOME)
    await own.server.feed.fresh()
    await own.server.context.port(OwnCertificates).renew(own.clock)
    async with own.running(KEEPER):
        found = await own.until_like(
            CertificateAuthority, "cluster", condition=lambda one: not one.is_ready
        )

    assert accepts(own, client)
    assert f"there is no Secret {HOME}/{key.secret_name} with the key of cluster-1" in caplog.text
    assert {one.reason for one in found.status.conditions if one.type == "Ready"} == {"KeyLost"}


async def test_another_key_in_the_secret_is_reported(own: Beside) -> None:
    """While the controller runs; the server goes on with the certificates that it has."""
    key = await own.admin.get(SigningKey, "cluster-1")
    secret = await own.admin.get(Secret, key.secret_name, HOME)
    other = Authority.create("x", now=own.clock.now()).key_pem().reveal().encode()
    async with own.running(KEEPER):
        await own.until_like(CertificateAuthority, "cluster", condition=lambda one: one.is_ready)
        await own.admin.update(replace(secret, data={**secret.data, "tls.key": other}))
        found = await own.until_like(
            CertificateAuthority, "cluster", condition=lambda one: not one.is_ready
        )

    assert {one.reason for one in found.status.conditions if one.type == "Ready"} == {"KeyMismatch"}


async def test_a_start_puts_a_lost_secret_back_from_the_file(tmp_path: Path) -> None:
    """Without the file it starts all the same, with the certificates that it has."""
    store, data = MemoryStore(), tmp_path / "data"
    async with beside(data, store=Kept(store)) as world:
        client = client_of(signer(world), world)
        key = await world.admin.get(SigningKey, "cluster-1")
        await world.admin.delete(Secret, key.secret_name, HOME)
    async with beside(data, store=Kept(store)) as world:
        repaired = signer(world).certificate_pem.decode() == key.status.certificate
        await world.admin.delete(Secret, key.secret_name, HOME)
    (data / "ca.key").unlink()
    async with beside(data, store=store) as world:
        accepted = accepts(world, client)

    assert repaired
    assert accepted


async def test_only_the_server_creates_it_and_nobody_deletes_it(own: Beside) -> None:
    """Nor may it be above another authority, whose certificates the server would accept."""
    found = await own.admin.get(CertificateAuthority, "cluster")
    with pytest.raises(Forbidden, match="not deleted"):
        await own.admin.delete(CertificateAuthority, "cluster")
    with pytest.raises(Invalid, match="signerNames"):
        await create(own, signerNames=["example.com/web"])
    with pytest.raises(Invalid, match="certifies no other"):
        await create(own, parent={"authority": "cluster"})
    with pytest.raises(Invalid, match="Unsupported value"):
        await new_key(own, "cluster-2", "cluster", algorithm="Ed25519")
    spec = replace(found.spec, signer_names=("example.com/web",))
    with pytest.raises(Invalid, match="immutable"):
        await own.admin.update(replace(found, spec=spec))
    await own.admin.update(replace(found, spec=replace(found.spec, rotation="Manual")))

    manual = await own.admin.get(CertificateAuthority, "cluster")
    assert not manual.is_automatic


class Kept:
    """A store that outlives a server."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def close(self) -> None:
        """Stay open."""
