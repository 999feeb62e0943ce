"""The revocation of an authority's key: which certificates for that key end with it."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    IssuedCertificateSpec,
)
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.revoking.policies.certified_keys import CertifiedKeys
from orchid.features.token_keys.key_source import SigningKeySpec
from orchid.features.token_keys.kinds import signing_key
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.kernel.credentials.x509.issued_facts import read_issued
from orchid.kernel.engine.interfaces import Randomness
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import RevokedCertificate, RevokedKey
from orchid.kernel.wire.signing_key_status import SigningKeyStatus
from tests.unit.features.asking import EVE, NOW, a_request
from tests.unit.kernel.access.world import REVOCABLE, World, world_of
from tests.unit.kernel.credentials import chains

SIGNER = "example.com/web"
TARGET = Target(verb="create", is_resource=True, resource="credentialrevocations", name="r")


def pem(certificate: Any) -> str:
    return str(certificate.public_bytes(Encoding.PEM).decode())


ROOT = pem(chains.authority("web", key=chains.OTHER_P256))
CROSS = pem(chains.make("web", "old", ca=True, usages=None, serial=8))
BELOW = pem(chains.make("web", "parent", ca=True, usages=None, serial=9))
OF_KEY = CredentialRevocation(
    metadata=ObjectMeta(name="leaked"),
    spec=CredentialRevocationSpec(key=RevokedKey(name="web-1"), reason="keyCompromise"),
)


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world_of(signing_key.declare(ORCH), *REVOCABLE) as made:
        yield made


async def revoked(here: World, *already: str, authority: str = "web", **status: str) -> list[Any]:
    """The revocations beside that of a key with these certificates."""
    await here.put(
        SigningKey(
            metadata=ObjectMeta(name="web-1", uid="k"),
            spec=SigningKeySpec(authority=authority),
            status=SigningKeyStatus(**status),
        )
    )
    random = cast(Randomness, SimpleNamespace(uid=lambda: "u1"))
    policy = CertifiedKeys(here.feed, random, lambda name: f"of {name}", lambda _spec: [*already])
    found: Any = policy.revocations(a_request(TARGET), OF_KEY, "web-1")
    return list(found)


async def recorded(here: World, chain: str, sha256: str = "") -> None:
    facts = read_issued(chain.encode())
    spec = IssuedCertificateSpec(
        serial_number=facts.serial,
        sha256=sha256 or facts.sha256,
        signer_name=SIGNER,
        not_after=facts.not_after,
    )
    await here.put(IssuedCertificate(metadata=ObjectMeta(name=facts.serial, uid="c"), spec=spec))


async def test_each_certificate_by_another_key_is_revoked(here: World) -> None:
    """With its signer, so that the list of its issuer has it; a root is on no list."""
    await recorded(here, BELOW)

    below, cross = await revoked(here, certificate=BELOW, cross_certificate=CROSS)

    facts = read_issued(BELOW.encode())
    assert below.spec.certificate == RevokedCertificate(
        sha256=facts.sha256,
        signer_name=SIGNER,
        serial_number=facts.serial,
        authority_key=facts.authority_key,
    )
    assert (below.spec.reason, below.status.author) == ("keyCompromise", EVE.username)
    assert below.status.expires == facts.not_after
    assert "leaked" in below.spec.message
    assert below.metadata.name == "certified-u1"
    assert (below.metadata.uid, below.metadata.generation) == ("u1", 1)
    assert below.metadata.creation_timestamp == NOW
    assert (below.kind, below.api_version) == ("CredentialRevocation", REVOCABLE[0].api_version)
    assert cross.spec.certificate.signer_name == "of web"
    assert await revoked(here, certificate=ROOT) == []


async def test_a_certificate_from_elsewhere_has_only_its_digest(here: World) -> None:
    """Also if a record has its number: serials are unique for one issuer only."""
    (one,) = await revoked(here, certificate=BELOW)
    await recorded(here, BELOW, sha256="0" * 64)
    (same,) = await revoked(here, certificate=BELOW)

    for found in (one, same):
        assert found.spec.certificate == RevokedCertificate(
            sha256=read_issued(BELOW.encode()).sha256
        )


async def test_a_recorded_cross_certificate_has_the_signer_of_its_record(here: World) -> None:
    await recorded(here, CROSS)

    (found,) = await revoked(here, certificate=ROOT, cross_certificate=CROSS)

    assert found.spec.certificate.signer_name == SIGNER


async def test_keys_of_tokens_and_of_nobody_have_none(here: World) -> None:
    assert await revoked(here, authority="", certificate=BELOW) == []
    random = cast(Randomness, SimpleNamespace(uid=lambda: "u1"))
    policy = CertifiedKeys(here.feed, random, lambda _name: "", lambda _spec: [])
    assert policy.revocations(a_request(TARGET), OF_KEY, "gone") == ()


async def test_what_another_one_covers_is_not_revoked_again(here: World) -> None:
    """One for a lesser reason does not cover it."""
    (made,) = await revoked(here, certificate=BELOW)
    for reason, count in (("keyCompromise", 0), ("certificateHold", 1)):
        spec = CredentialRevocationSpec(certificate=made.spec.certificate, reason=reason)
        meta = ObjectMeta(name="earlier", uid="e")
        await here.put(CredentialRevocation(metadata=meta, spec=spec, status=made.status))
        key = REVOCABLE[0].key("", "earlier")
        assert len(await revoked(here, key, certificate=BELOW)) == count
