"""The attack: to take the name under which the revocation of another credential would be created.

Everybody may revoke their own certificate, under any name. Mallory named hers as the server would
name the revocation of a token that she had stolen. The holder revoked it, the name was taken, and
that counted as revoked.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from tests.api.world import Api
from tests.security.certified import cluster_authority, issued
from tests.security.test_kept_approvals import approved
from tests.security.test_revocations import ISSUED, REVOCATIONS, fingerprint, jti_of, known
from tests.unit.features.acme.acme_client import b64
from tests.unit.features.acme.conftest import World, issuing_world
from tests.unit.features.acme.test_acme_accounts import problem
from tests.unit.features.acme.test_orders import NAME, policy
from tests.unit.features.acme.test_orders import issued as acme_certificate

APPLY = {"content-type": "application/apply-patch+yaml"}
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture
async def issuing(server_files: Path) -> AsyncIterator[World]:
    async with issuing_world(server_files) as world:
        yield world


async def take(server: Api, name: str) -> None:
    """Mallory revokes her own certificate under a name."""
    mallory = issued(cluster_authority(server.server.files.path), "mallory")
    spec = {"certificate": {"sha256": fingerprint(mallory)}}
    body = {"metadata": {"name": name}, "spec": spec}
    answer = await server.call("POST", REVOCATIONS, body, token=None, peer=mallory.peer)
    assert answer.status == 201, answer.text


async def test_the_name_of_a_stolen_token_protects_it_from_nothing(server: Api) -> None:
    await server.account("robot")
    stolen = await server.token("robot")
    await take(server, f"token-{jti_of(stolen)}")
    before = await known(server, token=stolen)

    body = urlencode({"token": stolen}).encode()
    answer = await server.call("POST", "/oauth2/revoke", body, token=None, headers=FORM)
    again = await server.call("POST", "/oauth2/revoke", body, token=None, headers=FORM)

    assert before == 201
    assert (answer.status, again.status) == (200, 200)
    assert await known(server, token=stolen) == 401
    assert len((await server.call("GET", REVOCATIONS)).json["items"]) == 2


@pytest.mark.parametrize("of", ["account", "token"])
async def test_a_token_under_a_hold_is_revoked_for_good_by_its_holder(server: Api, of: str) -> None:
    """The answer was 200, but nothing was stored: without the hold the token was valid again."""
    await server.account("robot")
    stolen = await server.token("robot")
    target: dict[str, Any] = {"namespace": "default", "name": "robot"}
    if of == "token":
        target["jti"] = jti_of(stolen)
    spec = {of: target, "reason": "certificateHold"}
    held = {"metadata": {"name": "held"}, "spec": spec}
    assert (await server.call("POST", REVOCATIONS, held)).status == 201

    body = urlencode({"token": stolen}).encode()
    answer = await server.call("POST", "/oauth2/revoke", body, token=None, headers=FORM)
    lifted = await server.call("DELETE", f"{REVOCATIONS}/held")

    assert (answer.status, lifted.status) == (200, 200)
    assert await known(server, token=stolen) == 401


async def test_a_revocation_that_is_applied_again_under_another_name_ends(server: Api) -> None:
    """Apply tried again and again, because it was refused as an object that exists: for ever."""
    await server.account("robot")
    spec = {"account": {"namespace": "default", "name": "robot"}}
    body = {"apiVersion": "identity.orch.io/v1alpha1", "spec": spec}
    first = await server.call("POST", REVOCATIONS, {**body, "metadata": {"name": "first"}})
    assert first.status == 201, first.text

    target = f"{REVOCATIONS}/second?fieldManager=mallory&force=true"
    again = {**body, "kind": "CredentialRevocation", "metadata": {"name": "second"}}
    answer = await server.call("PATCH", target, again, headers=APPLY)

    assert (answer.status, answer.json["reason"]) == (409, "AlreadyExists")
    assert answer.json["details"]["name"] == "first"


async def test_the_name_of_a_certificate_protects_it_from_no_acme_client(issuing: World) -> None:
    await policy(issuing, "*.example.com")
    client = await issuing.client()
    leaf, _ = await acme_certificate(client, NAME)
    sha256 = (await record_of(issuing, f"{leaf.serial_number:x}"))["sha256"]
    await take(issuing.api, f"acme-{sha256[:32]}-superseded")
    body = {"certificate": b64(leaf.public_bytes(Encoding.DER)), "reason": 4}

    answer = await client.post("revoke-cert", body)
    again = await client.post("revoke-cert", body)

    assert answer.status == 200, answer.text
    assert problem(again) == (400, "alreadyRevoked")
    assert f"{leaf.serial_number:x}" in await revoked_serials(issuing)


async def record_of(world: World, serial: str) -> Any:
    return (await world.api.call("GET", f"{ISSUED}/{serial}")).json["spec"]


async def revoked_serials(world: World) -> list[str]:
    found = (await world.api.call("GET", REVOCATIONS)).json["items"]
    return [one["spec"]["certificate"].get("serialNumber", "") for one in found]


async def test_the_name_of_an_unfetched_certificate_does_not_keep_it_valid(
    issuing: World,
) -> None:
    client = await issuing.client()
    await approved(issuing, client)
    (record,) = (await issuing.api.call("GET", ISSUED)).json["items"]
    serial = record["metadata"]["name"]
    await take(issuing.api, f"acme-superseded-{serial}")

    await acme_certificate(client, NAME)

    async with asyncio.timeout(20):
        while serial not in await revoked_serials(issuing):  # noqa: ASYNC110 -- as any client
            await asyncio.sleep(0.01)


async def test_a_wrong_attribute_of_a_certificate_is_named_as_in_the_api(issuing: World) -> None:
    """With the name of its field in JSON, which is the one that the caller wrote."""
    await policy(issuing, "*.example.com")
    leaf, _ = await acme_certificate(await issuing.client(), NAME)
    record = await record_of(issuing, f"{leaf.serial_number:x}")
    for field in ("serialNumber", "keySha256", "requestName"):
        certificate = {"sha256": record["sha256"], field: "00"}
        body = {"metadata": {"name": "wrong"}, "spec": {"certificate": certificate}}

        answer = await issuing.api.call("POST", REVOCATIONS, body)

        assert answer.status == 422, answer.text
        (cause,) = answer.json["details"]["causes"]
        assert cause["field"] == f"spec.certificate.{field}", answer.text
