"""An authority whose chain has limits: beyond them nothing is approved, and nothing is signed."""

from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest as Request,
)
from tests.unit.features.approving.test_policy_approval import (
    ALICE,
    ask,
    event_about,
    looked_at,
    may_request,
    may_use,
    write,
)
from tests.unit.features.authorities.test_keep_authorities import KEEPER, bring, create, until_ready
from tests.unit.features.authorities.test_signing_authorities import Files
from tests.unit.features.beside import Beside, beside
from tests.unit.kernel.credentials import samples
from tests.unit.kernel.credentials.authorities.test_issuer_limits import authority, constraints

SERVERS = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
KEY = samples.P256.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
)
BOTH = ["digital signature", "server auth", "client auth"]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def limited(world: Beside, *extensions: x509.ExtensionType, **issues: Any) -> None:
    """An authority from outside with limits, and a policy that allows whatever it issues."""
    await world.namespace("pki")
    chain = authority(*extensions).public_bytes(serialization.Encoding.PEM)
    await bring(world, crt=chain, key=KEY)
    reference = {"namespace": "pki", "name": "ca"}
    given = {"signerName": "example.com/web", "issues": issues}
    async with world.running(KEEPER):
        await create(world, key=None, subject=None, secretRef=reference, **given)
        await until_ready(world)
    await may_request(world)
    await may_use(world, "web")
    allows = {"dnsNames": ["*"], "usages": BOTH, "keys": ["*"], "maxDuration": "8760h"}
    await write(world, "web", allows=allows)


async def test_a_name_beyond_the_constraints_is_not_approved(world: Beside) -> None:
    """A policy allows it, the chain does not; the event says so."""
    await limited(world, constraints("+dns=web.example.com"))
    within, beyond = await ask(world, "in"), await ask(world, "out", "evil.com")

    approved, _ = await looked_at(world, within)
    left, _ = await looked_at(world, beyond)
    async with world.running("csrapproving"):
        said = await world.until(lambda: event_about(world, "out"))

    assert approved.is_approved
    assert not left.is_decided
    assert 'may not issue for the DNS name "evil.com"' in said.message


@pytest.mark.parametrize(
    ("limit", "host", "usages"),
    [
        (constraints("+dns=web.example.com"), "evil.com", ("server auth",)),
        (SERVERS, "a.web.example.com", ("client auth",)),
    ],
)
async def test_nothing_is_signed_beyond_the_limits(
    world: Beside, limit: x509.ExtensionType, host: str, usages: tuple[str, ...]
) -> None:
    """A person may approve it all the same: then it fails, and no certificate is made."""
    await limited(world, limit, usages=BOTH)
    await ask(world, "r", host, usages=usages, approved=True)

    async with world.running("csrsigning"):
        failed = await world.until_like(Request, "r", condition=lambda csr: csr.has("Failed"))

    assert not failed.is_issued
    assert "the authority may not issue for" in failed.status.conditions[-1].message


async def test_the_platform_signers_keep_the_limits_of_their_chain(
    server_files: Path, files: Files
) -> None:
    """An authority from files may be limited, too: neither approved by policy, nor signed."""
    chain = authority(constraints("+subject=dev"))
    files.write(chain.public_bytes(serialization.Encoding.PEM), KEY)
    allows = {
        "commonName": "alice",
        "organizations": ["*"],
        "usages": BOTH,
        "keys": ["*"],
        "maxDuration": "8760h",
    }
    async with beside(server_files, **files.settings) as world:
        await may_request(world)
        await may_use(world, "web")
        await write(world, "web", signerNames=["orch.io/*"], allows=allows)
        requests = [
            await world.request(name, samples.request("alice", (name,)), user=ALICE)
            for name in ("dev", "ops")
        ]
        (approved, _), (left, _) = [await looked_at(world, one) for one in requests]
        await world.approve(left)
        async with world.running("csrsigning"):
            failed = await world.until_like(Request, "ops", condition=lambda csr: csr.has("Failed"))

    assert not left.is_decided
    assert approved.is_approved
    assert 'may not issue for the subject "ops,alice"' in failed.status.conditions[-1].message


async def test_a_usage_beyond_the_limits_is_not_approved(world: Beside) -> None:
    """It was approved and then Failed; a request without usages gets those that remain."""
    await limited(world, SERVERS, usages=BOTH)

    left, _ = await looked_at(world, await ask(world, "r", usages=("client auth",)))
    approved, _ = await looked_at(world, await ask(world, "s", usages=()))
    async with world.running("csrsigning"):
        issued = await world.until_like(Request, "s", condition=lambda csr: csr.is_issued)

    leaf = x509.load_pem_x509_certificate(issued.status.certificate)
    assert not left.is_decided
    assert approved.is_approved
    assert leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value == SERVERS
