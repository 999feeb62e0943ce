"""The attack: to revoke another's credential by the right of a holder to revoke their own."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.kernel.http.messages import Peer
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import RevokedCertificate
from orchid.kernel.wire.struct import replace
from tests.api.world import Api, api
from tests.security.certified import cluster_authority, issued
from tests.security.test_repeated_revocations import RBAC
from tests.security.test_revocations import (
    ISSUED,
    REVOCATIONS,
    fingerprint,
    known,
    on_record,
    revoked,
)


async def revoke_as(
    server: Api, peer: Peer, spec: dict[str, Any], headers: dict[str, str] | None = None
) -> Any:
    body = {"metadata": {"generateName": "own-"}, "spec": spec}
    return await server.call("POST", REVOCATIONS, body, token=None, peer=peer, headers=headers)


async def sha256_of(server: Api, serial: str) -> str:
    record = await server.call("GET", f"{ISSUED}/{serial}")
    found: str = record.json["spec"]["sha256"]
    return found


@pytest.mark.parametrize("by", ["sha256", "serialNumber"])
async def test_the_holder_revokes_their_own_certificate_without_a_right(
    server: Api, by: str
) -> None:
    """By showing it, since the handshake proves that they have its key."""
    serial, peer = await on_record(server, "jane", "mine")
    named = {
        "sha256": {"sha256": await sha256_of(server, serial)},
        "serialNumber": {"serialNumber": serial, "signerName": ORCH.client_signer},
    }[by]

    answer = await revoke_as(server, peer, {"certificate": named, "reason": "keyCompromise"})

    assert answer.status == 201, answer.text
    assert answer.json["spec"]["certificate"]["serialNumber"] == serial
    assert await known(server, peer=peer) == 401


async def test_the_audit_log_names_the_certificate_that_its_holder_revoked(
    server_files: Path, tmp_path: Path
) -> None:
    """By the fingerprint that the connection proved; not for a revocation by right."""
    rules, log = tmp_path / "policy.yaml", tmp_path / "audit.log"
    rules.write_text("apiVersion: audit.orch.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
    audit = {"audit_policy_file": str(rules), "audit_log_path": str(log)}
    async with api(server_files, **audit) as server:
        authority = cluster_authority(server.server.files.path)
        mine, other = issued(authority, "jane"), issued(authority, "jane")
        await revoke_as(server, mine.peer, {"certificate": {"sha256": fingerprint(mine)}})
        await revoked(server, "other", certificate={"sha256": fingerprint(other)})

    lines = [json.loads(line) for line in log.read_text().splitlines()]
    noted = [
        one.get("annotations", {}).get("orch.io/revoked-by-holder")
        for one in lines
        if one["requestURI"] == REVOCATIONS and one["stage"] == "ResponseComplete"
    ]
    assert noted == [fingerprint(mine), None]


async def test_the_holder_of_a_certificate_without_a_record_revokes_it_too(server: Api) -> None:
    """It is named by its fingerprint alone."""
    jane = issued(cluster_authority(server.server.files.path), "jane")
    peer = jane.peer

    answer = await revoke_as(server, peer, {"certificate": {"sha256": fingerprint(jane)}})

    assert answer.status == 201, answer.text
    assert await known(server, peer=peer) == 401


async def test_nothing_else_is_revoked_that_way(server: Api) -> None:
    """Neither another certificate of the same user, nor a name, nor a signer, nor an account."""
    serial, mine = await on_record(server, "jane", "mine")
    other_serial, other = await on_record(server, "jane", "other")
    await server.account("robot")
    own, others = await sha256_of(server, serial), await sha256_of(server, other_serial)
    signer = {"signerName": ORCH.client_signer}
    specs: list[dict[str, Any]] = [
        {"certificate": {"sha256": others}},
        {"certificate": {"serialNumber": other_serial, **signer}},
        {"certificate": {"sha256": own, "serialNumber": other_serial, **signer}},
        {"certificate": {"sha256": others, "serialNumber": serial, **signer}},
        {"certificate": {"requestName": "mine"}},
        {"certificate": {"requestName": "other"}},
        {"certificate": {"sha256": "0" * 64}},
        {"certificate": {}},
        {"authority": signer},
        {"account": {"namespace": "default", "name": "robot"}},
        {"token": {"jti": "x"}},
    ]

    answers = [await revoke_as(server, mine, spec) for spec in specs]

    assert [answer.status for answer in answers] == [403] * len(specs)
    assert not [answer for answer in answers if others in answer.text or "robot-" in answer.text]
    assert (await server.call("GET", REVOCATIONS)).json["items"] == []
    assert await known(server, peer=other) == 201


async def test_a_certificate_that_is_only_claimed_is_not_ones_own(server: Api) -> None:
    """Neither an id that an impersonated user is given, nor one of whom somebody acts for."""
    serial, mine = await on_record(server, "jane", "mine")
    other_serial, _ = await on_record(server, "john", "other")
    own, others = await sha256_of(server, serial), await sha256_of(server, other_serial)
    rule = {"apiGroups": ["", ORCH.authentication], "resources": ["*"], "verbs": ["impersonate"]}
    role = {"metadata": {"name": "act"}, "rules": [rule]}
    await server.make(f"{RBAC}/clusterroles", role)
    reference = {"apiGroup": ORCH.rbac, "kind": "ClusterRole", "name": "act"}
    subjects = [{"kind": "User", "name": "jane", "apiGroup": ORCH.rbac}]
    binding = {"metadata": {"name": "act"}, "subjects": subjects, "roleRef": reference}
    await server.make(f"{RBAC}/clusterrolebindings", binding)
    acting = {
        "impersonate-user": "john",
        "impersonate-group": "system:authenticated",
        f"impersonate-extra-{ORCH.credential_id.replace('/', '%2f')}": f"X509SHA256={others}",
    }

    claimed = await revoke_as(server, mine, {"certificate": {"sha256": others}}, acting)
    acted = await revoke_as(server, mine, {"certificate": {"sha256": own}}, acting)

    assert (claimed.status, acted.status) == (403, 403), claimed.text
    assert "not permitted to revoke" in claimed.text
    assert await known(server, peer=mine) == 201


async def test_a_thief_does_not_keep_a_certificate_off_the_lists(server: Api) -> None:
    """Revoked by the thief as one of another signer, it could not be revoked with its number."""
    serial, peer = await on_record(server, "jane", "mine")
    sha256 = await sha256_of(server, serial)
    named = {"sha256": sha256, "signerName": "nobody.example/none"}

    by_thief = await revoke_as(server, peer, {"certificate": named, "reason": "keyCompromise"})
    by_admin = await server.call(
        "POST", REVOCATIONS, {"metadata": {"name": "x"}, "spec": {"certificate": named}}
    )

    assert by_thief.status == by_admin.status == 422
    assert "spec.certificate.signerName" in by_thief.text


def test_a_revocation_by_fingerprint_alone_leaves_room_for_one_on_a_list() -> None:
    """It was made when the certificate had no record, so that no list names it."""
    sha256 = "0" * 64
    alone = CredentialRevocation(
        spec=CredentialRevocationSpec(
            certificate=RevokedCertificate(sha256=sha256), reason="keyCompromise"
        )
    )
    full = replace(
        alone,
        spec=replace(
            alone.spec,
            certificate=RevokedCertificate(
                sha256=sha256, signer_name=ORCH.client_signer, serial_number="1"
            ),
        ),
    )

    assert full.covers(alone)
    assert not alone.covers(full)


async def test_a_token_beside_the_certificate_changes_nothing(server: Api) -> None:
    """The certificate authenticates first; a caller by token alone has none of their own."""
    await server.account("robot")
    jane = issued(cluster_authority(server.server.files.path), "jane")
    token = await server.token("robot")
    body = {
        "metadata": {"name": "a"},
        "spec": {"certificate": {"sha256": fingerprint(jane)}},
    }

    answer = await server.call("POST", REVOCATIONS, body, token=token)

    assert answer.status == 403
