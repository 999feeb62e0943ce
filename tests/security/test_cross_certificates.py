"""The attack: the thief of an authority's key uses it by a certificate that another key signed.

The cross certificate of a successor was on no list and in no inventory: after the revocation of the
successor, verifiers with the root of the key before it accepted what the thief signed.
"""

from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.authorities.platform_authority import PlatformAuthority
from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.features.objects.kinds.secret import Secret
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.revocation.revocations import Revocations
from orchid.features.token_keys.kinds.signing_key import ACTIVE, SigningKey
from orchid.kernel.client.client import ListSelection
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.x509 import pem as pem_text
from orchid.kernel.credentials.x509.certificates import encode
from orchid.kernel.credentials.x509.revocation_list import RevokedCertificates, next_edition
from orchid.kernel.engine.interfaces import Rejected
from orchid.kernel.wire.conditions import is_true
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.revoked_credentials import RevokedCertificate, RevokedKey
from tests.api.world import Api
from tests.unit.features.authorities.test_authority_rotation import (
    HOME,
    LISTS,
    ROTATION,
    Verifier,
    make_activatable,
    new_key,
    rotated,
    step,
)
from tests.unit.features.authorities.test_keep_authorities import (
    KEEPER,
    SIGNER,
    SIGNING,
    create,
    issued,
    until_not_ready,
    until_ready,
)
from tests.unit.features.beside import Beside, beside
from tests.unit.features.revoking.test_published_lists import fetched, list_of


async def revoke_key(world: Beside, name: str) -> None:
    spec = CredentialRevocationSpec(key=RevokedKey(name=name), reason="keyCompromise")
    meta = ObjectMeta(name=f"stolen-{name}")
    await world.admin.create(CredentialRevocation(metadata=meta, spec=spec))


async def stolen(world: Beside, name: str) -> tuple[Authority, x509.Certificate]:
    """A key as its thief has it, and the certificate for it by another key."""
    key = await world.admin.get(SigningKey, name)
    secret = await world.admin.get(Secret, key.secret_name, HOME)
    cross = key.status.cross_certificate or key.status.certificate
    certificate = x509.load_pem_x509_certificates(cross.encode())[0]
    return Authority.load(secret.data["tls.crt"], secret.data["tls.key"]), certificate


def signed(world: Beside, thief: Authority) -> x509.Certificate:
    made = thief.issue_client("ann", lifetime=timedelta(days=9), now=world.clock.now())
    return x509.load_pem_x509_certificates(made.chain)[0]


def own_list(world: Beside, thief: Authority) -> bytes:
    """An empty revocation list, which the thief signs."""
    none = RevokedCertificates()
    data = thief.sign_revocation_list(none, next_edition(none, world.clock.now()))
    return pem_text.encode("X509 CRL", data)


async def test_the_revocation_of_a_key_covers_its_cross_certificate(tmp_path: Path) -> None:
    """openssl refuses it with the root, and the list, of the key that signed it."""
    async with beside(tmp_path / "data") as world, rotated(world, LISTS):
        thief, cross = await stolen(world, "web-2")
        root = (await world.admin.get(SigningKey, "web-1")).status.certificate
        leaf, lists = signed(world, thief), await fetched(world, "/crl/web.pem")
        verifier = Verifier(tmp_path)
        before = verifier.accepts([leaf, cross], root, lists + own_list(world, thief))
        await revoke_key(world, "web-2")
        (entry,) = await list_of(world, 1, "web")
        lists = await fetched(world, "/crl/web.crl")
        lists = pem_text.encode("X509 CRL", lists) + own_list(world, thief)
        after = verifier.accepts([leaf, cross], root, lists)

    assert before
    assert entry.serial_number == cross.serial_number
    assert not after


async def test_a_cross_certificate_is_in_the_inventory_and_revoked_by_number(
    tmp_path: Path,
) -> None:
    """With the key that it is for; a second revocation, of the key, does not repeat it."""
    async with beside(tmp_path) as world, rotated(world, LISTS):
        _, cross = await stolen(world, "web-2")
        serial = f"{cross.serial_number:x}"
        record = await world.admin.get(IssuedCertificate, serial)
        named = RevokedCertificate(signer_name=SIGNER, serial_number=serial)
        spec = CredentialRevocationSpec(certificate=named, reason="keyCompromise")
        meta = ObjectMeta(name="by-number")
        await world.admin.create(CredentialRevocation(metadata=meta, spec=spec))
        (entry,) = await list_of(world, 1, "web")
        await revoke_key(world, "web-2")
        selection = ListSelection(CredentialRevocation)
        revocations = [one.name async for one in world.admin.scan(selection)]

    assert (record.spec.intermediate, record.spec.signer_name) == ("web-2", SIGNER)
    assert record.spec.certificate == encode(cross)
    assert entry.serial_number == cross.serial_number
    assert sorted(revocations) == ["by-number", "stolen-web-2"]


async def test_the_revocation_of_a_key_covers_the_certificate_of_its_parent(
    tmp_path: Path,
) -> None:
    """The key of an intermediate authority is on the list of the key above it."""
    async with beside(tmp_path) as world, world.running(KEEPER, LISTS):
        await create(world, "corp", signerName="example.com/corp")
        await until_ready(world, "corp")
        await create(world, parent={"authority": "corp"})
        await until_ready(world)
        _, certified = await stolen(world, "web-1")
        await revoke_key(world, "web-1")
        (entry,) = await list_of(world, 1, "corp")

    assert entry.serial_number == certified.serial_number


async def test_a_server_refuses_clients_by_the_cross_certificate_of_a_revoked_key(
    tmp_path: Path,
) -> None:
    """The thief sends it along, and the root of the key before is still trusted."""
    async with beside(tmp_path) as world:
        await new_key(world, "cluster-2", authority="cluster")
        await make_activatable(world, "cluster-2")
        await step(world, "cluster-2", ACTIVE)
        thief, cross = await stolen(world, "cluster-2")
        await revoke_key(world, "cluster-2")
        platform = world.server.context.port(PlatformAuthority)
        assert platform is not None
        leaf = signed(world, thief)
        chain = platform.pool().verify(encode(leaf), [encode(cross)], world.clock.now())
        revocations = world.server.context.port(Revocations)
        with pytest.raises(Rejected, match="has been revoked"):
            revocations.refuse_certificate(chain, "ann")
        # Also if the revocation of the cross certificate itself is gone.
        revocations._certificates.clear()
        with pytest.raises(Rejected, match="has been revoked"):
            revocations.refuse_certificate(chain, "ann")


async def test_an_authority_whose_certificate_is_revoked_is_not_ready(tmp_path: Path) -> None:
    """The revocation warns, with the command for the key; then another key signs."""
    async with beside(tmp_path / "data") as world, world.running(KEEPER, SIGNING, ROTATION):
        await create(world, "root", signerName="example.com/root", subject={"commonName": "Root"})
        await until_ready(world, "root")
        await create(world, parent={"authority": "root"})
        await until_ready(world)
        _, between = await issued(world)
        serial = f"{between.serial_number:x}"
        answer = await revoked(world, "held", serial, reason="certificateHold")
        held = await until_not_ready(world, "CertificateRevoked")
        await world.admin.delete(CredentialRevocation, "held")
        await until_ready(world)
        await revoked(world, "gone", serial, reason="cACompromise")
        await until_not_ready(world, "CertificateRevoked")
        of_key = CredentialRevocationSpec(key=RevokedKey(name="web-1"))
        await world.admin.create(CredentialRevocation(metadata=ObjectMeta(name="k"), spec=of_key))
        after = await until_ready(world)

    assert "orchid revoke key/web-1" in answer
    assert not is_true(held.status.conditions, "Ready")
    assert (await world.admin.get(CertificateAuthority, "root")).is_ready
    assert after.status.keys[0].name == "web-2"


async def revoked(world: Beside, name: str, serial: str, *, reason: str) -> str:
    """Revoke a certificate by its number; return the warnings."""
    body = {
        "metadata": {"name": name},
        "spec": {
            "certificate": {"serialNumber": serial, "signerName": "example.com/root"},
            "reason": reason,
        },
    }
    where = "/apis/identity.orch.io/v1alpha1/credentialrevocations"
    answer = await Api(world.server).call("POST", where, body)
    assert answer.status == 201, answer.text
    return " ".join(answer.warnings)
