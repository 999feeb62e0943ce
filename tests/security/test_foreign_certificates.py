"""The attack: write another party's certificate into a request for a signer of the attacker.

It would be recorded as issued by that signer, and could then be revoked with the right on it.
"""

import base64
import hashlib
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.wire.naming import ORCH
from tests.api.test_certificate_authorities import AUTHORITIES, body, grant, may
from tests.api.world import ADMIN, BOB, Answer, Api
from tests.security.certified import Certified, cluster_authority, issued, other_authority
from tests.security.test_revocations import ISSUED, REQUESTS, REVOCATIONS, known
from tests.unit.kernel.credentials import samples
from tests.unit.kernel.credentials.samples import certificate_for

OWN = "example.com/web"
PLATFORM = ORCH.client_signer
ELSEWHERE = "example.com/elsewhere"
USAGES = ("digital signature", "client auth")


async def mallory(server: Api, signer: str) -> None:
    """Bob signs for one signer, and may revoke what it issued."""
    await grant(
        server,
        "bob",
        may(["sign", "revoke"], ORCH.certificates, "signers", signer),
        may(["update"], ORCH.certificates, "certificatesigningrequests/status"),
        may(["create"], "identity.orch.io", "credentialrevocations"),
    )


async def own_authority(server: Api) -> Authority:
    """An authority of its own with a certificate, as the controller would leave it."""
    made = Authority.create("Web CA", now=datetime.now(UTC))
    answer = await server.call("POST", AUTHORITIES, body(signerName=OWN))
    stored = answer.json | {"status": {"certificate": made.chain_pem.decode()}}
    assert (await server.call("PUT", f"{AUTHORITIES}/web/status", stored)).status == 200
    return made


async def approved(server: Api, signer: str, request: bytes) -> dict[str, Any]:
    spec = {
        "request": base64.b64encode(request).decode(),
        "signerName": signer,
        "usages": list(USAGES),
    }
    made = await server.make(REQUESTS, {"metadata": {"name": "asked"}, "spec": spec})
    made["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "Test"}]}
    answer = await server.call("PUT", f"{REQUESTS}/asked/approval", made)
    assert answer.status == 200, answer.text
    found: dict[str, Any] = answer.json
    return found


async def write(server: Api, request: dict[str, Any], chain: bytes, token: str = BOB) -> Answer:
    request["status"]["certificate"] = base64.b64encode(chain).decode()
    return await server.call("PUT", f"{REQUESTS}/asked/status", request, token=token)


async def inventory(server: Api) -> list[str]:
    return [one["spec"]["sha256"] for one in (await server.call("GET", ISSUED)).json["items"]]


async def revocation(server: Api, victim: Certified) -> Answer:
    spec = {"certificate": {"sha256": hashlib.sha256(victim.der).hexdigest()}}
    sent = {"metadata": {"name": "gone"}, "spec": spec}
    return await server.call("POST", REVOCATIONS, sent, token=BOB)


@pytest.mark.parametrize(
    ("signer", "status"), [(OWN, 422), (PLATFORM, 200), (ELSEWHERE, 200)], ids=str
)
async def test_nobody_revokes_a_certificate_by_writing_it_into_a_request(
    server: Api, signer: str, status: int
) -> None:
    """The administrator's certificate has no record, and stays valid."""
    await own_authority(server)
    await mallory(server, signer)
    victim = issued(cluster_authority(server.server.files.path), "jane")
    request = await approved(server, signer, samples.request("mallory"))

    written = await write(server, request, victim.chain)
    revoked = await revocation(server, victim)

    assert written.status == status, written.text
    assert await inventory(server) == []
    assert revoked.status == 403
    assert await known(server, peer=victim.peer) == 201


@pytest.mark.parametrize(("signer", "status"), [(OWN, 422), (PLATFORM, 200)], ids=str)
async def test_a_certificate_of_another_key_or_authority_is_not_recorded(
    server: Api, signer: str, status: int
) -> None:
    """The right authority alone does not do, nor the key of the request alone."""
    authority = await own_authority(server)
    if signer == PLATFORM:
        authority = cluster_authority(server.server.files.path)
    await mallory(server, signer)
    asked = samples.request("mallory")
    request = await approved(server, signer, asked)
    other_key = samples.request("mallory", key=ec.generate_private_key(ec.SECP256R1()))

    for issuer, text in ((authority, other_key), (other_authority(), asked)):
        answer = await write(server, request, certificate_for(issuer, text))
        assert answer.status == status, answer.text
        assert await inventory(server) == []
        if status == 200:
            (warning,) = answer.warnings
            assert "is not recorded" in warning
            await server.call("DELETE", f"{REQUESTS}/asked")
            request = await approved(server, signer, asked)


@pytest.mark.parametrize("signer", [OWN, PLATFORM])
async def test_a_certificate_of_the_authority_is_recorded_for_any_writer(
    server: Api, signer: str
) -> None:
    """An operator may sign by hand, with the authority's key."""
    authority = await own_authority(server)
    if signer == PLATFORM:
        authority = cluster_authority(server.server.files.path)
    await mallory(server, signer)
    asked = samples.request("mallory")
    request = await approved(server, signer, asked)
    chain = certificate_for(authority, asked)

    answer = await write(server, request, chain)

    assert (answer.status, answer.warnings) == (200, [])
    assert await inventory(server) == [hashlib.sha256(Certified(chain, b"").der).hexdigest()]


async def test_an_authority_without_a_certificate_has_issued_nothing(server: Api) -> None:
    """Until its controller has made its key, nobody hands out certificates for it."""
    await server.call("POST", AUTHORITIES, body(signerName=OWN))
    asked = samples.request("mallory")
    request = await approved(server, OWN, asked)

    answer = await write(server, request, certificate_for(other_authority(), asked), ADMIN)

    assert answer.status == 422
    assert "has no certificate" in answer.json["message"]
