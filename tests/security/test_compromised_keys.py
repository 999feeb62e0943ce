"""The attack: to go on with a stolen key, after its certificate was revoked because of that.

The next certificate for the key is newer than the revocation, so nothing else would cover it.
"""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest,
)
from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.features.objects.kinds.secret import Secret
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.keys import read_private_key, spki
from orchid.kernel.store.interface import Change
from orchid.kernel.wire.errors import Invalid
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.revoked_credentials import RevokedCertificate, RevokedKey
from tests.security.test_past_keys import second_secret
from tests.unit.features.acme.conftest import World, issuing_world
from tests.unit.features.acme.test_acme_accounts import problem
from tests.unit.features.acme.test_orders import policy, settled
from tests.unit.features.authorities.test_authority_rotation import new_key
from tests.unit.features.authorities.test_keep_authorities import KEEPER, create, until_ready
from tests.unit.features.beside import Beside, beside
from tests.unit.features.certificates.test_sign_pod_requests import outcome, placed
from tests.unit.kernel.credentials import samples

NAME = "web-1.example.com"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Beside]:
    async with beside(tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def server_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("acme") / "data"


@pytest.fixture
async def issuing(server_files: Path) -> AsyncIterator[World]:
    async with issuing_world(server_files) as made:
        yield made


def sha256_of(key: ec.EllipticCurvePrivateKey) -> str:
    return hashlib.sha256(spki(key.public_key())).hexdigest()


async def settled_request(
    world: Beside, name: str, key: ec.EllipticCurvePrivateKey
) -> CertificateSigningRequest:
    """An approved request for a key, when it is signed or has failed."""
    await world.request(name, samples.request("alice", key=key), approved=True)
    return await world.until_like(
        CertificateSigningRequest, name, "", lambda csr: csr.is_issued or csr.has("Failed")
    )


async def revoke(world: Beside, name: str, reason: str, **named: str) -> CredentialRevocation:
    spec = CredentialRevocationSpec(certificate=RevokedCertificate(**named), reason=reason)
    made = CredentialRevocation(metadata=ObjectMeta(name=name), spec=spec)
    return await world.admin.create(made)


def is_refused(csr: CertificateSigningRequest, revocation: str = "stolen") -> bool:
    """Whether the key was refused, with a message that names the revocation and the way out."""
    condition = csr.status.conditions[-1]
    text = f"the revocation {revocation} ended this key: create a new key"
    return (
        (condition.type, condition.reason) == ("Failed", "KeyCompromised")
        and text in condition.message
        and not csr.is_issued
    )


@pytest.mark.parametrize("reason", ["keyCompromise", "cACompromise", "aACompromise"])
async def test_a_compromised_key_gets_no_new_certificate(world: Beside, reason: str) -> None:
    """For no requester, and with no approval; a new key is signed."""
    stolen, fresh = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    async with world.running("csrsigning"):
        first = await settled_request(world, "first", stolen)
        revocation = await revoke(world, "stolen", reason, request_name="first")
        again = await settled_request(world, "again", stolen)
        other = await settled_request(world, "other", fresh)

    assert first.is_issued
    assert revocation.spec.certificate is not None
    assert revocation.spec.certificate.key_sha256 == sha256_of(stolen)
    assert is_refused(again)
    assert other.is_issued


@pytest.mark.parametrize("reason", ["", "superseded", "certificateHold"])
async def test_a_revocation_for_another_reason_ends_no_key(world: Beside, reason: str) -> None:
    """A hold and a replaced certificate say nothing about the key, until a compromise is known."""
    key = ec.generate_private_key(ec.SECP256R1())
    async with world.running("csrsigning"):
        await settled_request(world, "first", key)
        await revoke(world, "replaced", reason, request_name="first")
        again = await settled_request(world, "again", key)
        await revoke(world, "stolen", "keyCompromise", request_name="first")
        last = await settled_request(world, "last", key)

    assert again.is_issued
    assert is_refused(last)


async def test_a_compromised_key_is_refused_without_its_record(world: Beside) -> None:
    """The inventory of a restored backup may lack it; the revocation itself names the key."""
    key = ec.generate_private_key(ec.SECP256R1())
    async with world.running("csrsigning"):
        await settled_request(world, "first", key)
        await revoke(world, "stolen", "keyCompromise", request_name="first")
        records = world.server.feed.of(IssuedCertificate)
        for entry in [one for one in records.entries.values() if one.object.username == "alice"]:
            path = records.kind.key("", entry.meta.name)
            await world.server.store.commit([Change(path, None, entry.revision)])
        await world.server.feed.fresh()
        again = await settled_request(world, "again", key)

    assert is_refused(again)


async def test_a_request_that_waits_for_its_signature_fails(world: Beside) -> None:
    """It was approved before the revocation."""
    key = ec.generate_private_key(ec.SECP256R1())
    async with world.running("csrsigning"):
        await settled_request(world, "first", key)
    await world.request("waiting", samples.request("alice", key=key), approved=True)
    await revoke(world, "stolen", "keyCompromise", request_name="first")
    async with world.running("csrsigning"):
        failed = await world.until_like(
            CertificateSigningRequest, "waiting", "", lambda csr: csr.has("Failed")
        )

    assert is_refused(failed)


async def test_a_pod_gets_no_certificate_for_a_compromised_key(world: Beside) -> None:
    """Requests of Pods have no approval."""
    spec = await placed(world)
    first = await outcome(world, spec)
    await revoke(world, "stolen", "keyCompromise", request_name=f"default/{first.name}")

    again = await outcome(world, spec)
    other = await outcome(world, spec, stub_pkcs10_request=samples.stub())

    assert first.state == other.state == "Issued"
    assert (again.state, again.status.certificate_chain) == ("Failed", "")
    assert again.status.conditions[-1].reason == "KeyCompromised"
    assert "the revocation stolen ended this key" in again.status.conditions[-1].message


async def test_an_acme_order_is_not_finalized_with_a_compromised_key(issuing: World) -> None:
    """badCSR, before there is a request: the client may finalize the order with a new key."""
    await policy(issuing, "*.example.com")
    client, key = await issuing.client(), ec.generate_private_key(ec.SECP256R1())
    first = await client.order(NAME)
    await client.finalize(first, NAME, key=key)
    done = await settled(client, first)
    name = "acme-" + (first.header("location") or "").rpartition("/")[2]
    await revoke(issuing.beside, "stolen", "keyCompromise", request_name=name)

    second = await client.order(NAME)
    refused = await client.finalize(second, NAME, key=key)
    accepted = await client.finalize(second, NAME)

    assert done.json["status"] == "valid"
    assert problem(refused) == (400, "badCSR")
    assert "the revocation stolen ended this key: create a new key" in refused.json["detail"]
    assert accepted.status == 200
    assert (await settled(client, second)).json["status"] == "valid"


async def test_a_compromised_key_is_no_key_of_an_authority(world: Beside) -> None:
    """Imported by a user who may import keys; the parent would certify it."""
    async with world.running(KEEPER, "csrsigning"):
        await create(world)
        await until_ready(world)
        pair = Authority.create("web", now=world.clock.now())
        key = read_private_key(pair.key_pem().reveal().encode())
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        await settled_request(world, "first", key)
        await revoke(world, "stolen", "keyCompromise", request_name="first")
        await world.namespace("pki")
        source = await second_secret(world, pair)
        with pytest.raises(Invalid, match="the revocation stolen ended this key"):
            await new_key(world, "web-2", **source)


async def test_the_key_of_a_revoked_authority_gets_no_certificate(world: Beside) -> None:
    """From another signer, as that of a user."""
    async with world.running(KEEPER, "csrsigning"):
        await create(world)
        await until_ready(world)
        name = (await world.admin.get(SigningKey, "web-1")).secret_name
        secret = await world.admin.get(Secret, name, world.naming.system_namespace)
        key = read_private_key(secret.data["tls.key"])
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        before = await settled_request(world, "before", key)
        spec = CredentialRevocationSpec(key=RevokedKey(name="web-1"))
        made = CredentialRevocation(metadata=ObjectMeta(name="stolen"), spec=spec)
        await world.admin.create(made)
        after = await settled_request(world, "after", key)

    assert before.is_issued
    assert is_refused(after)


async def test_nobody_names_a_key_in_a_revocation(world: Beside) -> None:
    """The server fills it in: who may revoke one certificate would end the keys of others."""
    key = ec.generate_private_key(ec.SECP256R1())
    async with world.running("csrsigning"):
        await settled_request(world, "first", ec.generate_private_key(ec.SECP256R1()))
        with pytest.raises(Invalid, match=r"spec\.certificate\.key_?[sS]ha256"):
            await revoke(
                world, "a", "keyCompromise", request_name="first", key_sha256=sha256_of(key)
            )
        unknown = await revoke(
            world, "b", "keyCompromise", sha256="0" * 64, key_sha256=sha256_of(key)
        )
        other = await settled_request(world, "other", key)

    assert unknown.spec.certificate is not None
    assert unknown.spec.certificate.key_sha256 == ""
    assert other.is_issued
