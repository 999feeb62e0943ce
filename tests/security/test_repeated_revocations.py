"""The attack: revocations without number and end, or revocations as a way to learn what exists."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchid.features.revoking.policies.repeated_revocations import (
    MOST_OF_ONE_TARGET,
    RepeatedRevocations,
)
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.text import timestamp
from tests.api.world import ALICE, Api
from tests.security.certified import cluster_authority, issued
from tests.security.test_revocations import (
    GRANTS,
    REVOCATIONS,
    fingerprint,
    known,
    on_record,
    revoke,
    revoked,
)
from tests.unit.features.beside import MovingClock

ROBOT = {"namespace": "default", "name": "robot"}
RBAC = "/apis/rbac.authorization.orch.io/v1"


async def permit(server: Api, *rules: dict[str, Any], verbs: tuple[str, ...] = ("create",)) -> None:
    """Give alice these verbs on revocations, and further rules."""
    own = {
        "apiGroups": ["identity.orch.io"],
        "resources": ["credentialrevocations"],
        "verbs": list(verbs),
    }
    role = {"metadata": {"name": "revoker"}, "rules": [own, *rules]}
    await server.make(f"{RBAC}/clusterroles", role)
    reference = {"apiGroup": ORCH.rbac, "kind": "ClusterRole", "name": "revoker"}
    subjects = [{"kind": "User", "name": "alice", "apiGroup": ORCH.rbac}]
    binding = {"metadata": {"name": "revoker"}, "subjects": subjects, "roleRef": reference}
    await server.make(f"{RBAC}/clusterrolebindings", binding)


async def every_target(server: Api) -> dict[str, dict[str, Any]]:
    """A revocation of each kind of target, of what exists."""
    serial, _ = await on_record(server, "jane")
    await server.account("robot")
    past = {"issuedBefore": timestamp(datetime.now(UTC))}
    return {
        "certificate": {"certificate": {"serialNumber": serial, "signerName": ORCH.client_signer}},
        "unseen": {"certificate": {"sha256": "0" * 64}},
        "token": {"token": {"jti": "x", **ROBOT}},
        "account": {"account": {**ROBOT, **past}},
        "authority": {"authority": {"signerName": ORCH.client_signer, **past}},
    }


async def test_a_second_revocation_of_the_same_is_refused_and_names_the_first(server: Api) -> None:
    """So that nobody fills the store with revocations that no one can delete."""
    for name, spec in (await every_target(server)).items():
        await revoked(server, name, **spec, reason="superseded")

        again = await revoke(server, f"{name}-2", {**spec, "reason": "affiliationChanged"})
        held = await revoke(server, f"{name}-3", {**spec, "reason": "certificateHold"})

        assert (again.status, held.status) == (409, 409), name
        assert again.json["reason"] == "AlreadyExists"
        assert again.json["details"]["name"] == name
        assert f'"{name}" already revokes this' in again.json["message"]
    assert len((await server.call("GET", REVOCATIONS)).json["items"]) == 5


async def test_a_hold_is_made_final_and_a_reason_more_serious(server: Api) -> None:
    """Never the other way round; each later one supersedes those before."""
    for name, spec in (await every_target(server)).items():
        for reason in ("certificateHold", "unspecified", "superseded", "keyCompromise"):
            answer = await revoke(server, f"{name}-{reason.lower()}", {**spec, "reason": reason})
            assert answer.status == 201, answer.text

        assert len(answer.warnings) == 1 if name != "unseen" else 2
        assert any('-certificatehold\\" and 2 more' in one for one in answer.warnings)
        kept = await server.call("DELETE", f"{REVOCATIONS}/{name}-keycompromise")
        gone = [
            (await server.call("DELETE", f"{REVOCATIONS}/{name}-{reason}")).status
            for reason in ("superseded", "unspecified", "certificatehold")
        ]
        assert (kept.status, gone) == (403, [200, 200, 200]), kept.text


async def test_tokens_issued_since_are_revoked_again_but_not_without_limit(
    server: Api, clock: MovingClock
) -> None:
    """One that reaches further is needed; that there were others is one sentence, not many."""
    await server.account("robot")
    answers = []
    for number in range(MOST_OF_ONE_TARGET + 1):
        clock.ahead += timedelta(seconds=1)
        answers.append(await revoke(server, f"r{number}", {"account": ROBOT}))

    assert {answer.status for answer in answers[:-1]} == {201}
    assert max(len(answer.warnings) for answer in answers) == 1
    assert answers[-1].status == 403
    assert "delete those that are superseded" in answers[-1].text
    assert (await server.call("DELETE", f"{REVOCATIONS}/r7")).status == 200
    assert (await revoke(server, "next", {"account": ROBOT})).status == 201


async def test_of_duplicates_from_before_all_but_one_can_go(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whichever order, also all at once: what is revoked stays revoked."""
    jane = issued(cluster_authority(server.server.files.path), "jane")
    with monkeypatch.context() as before:
        before.setattr(RepeatedRevocations, "refuse_repeated", lambda *_: None)
        for name in ("a", "b", "c"):
            await revoked(server, name, certificate={"sha256": fingerprint(jane)})

    gone = [
        (await server.call("DELETE", f"{REVOCATIONS}/{name}")).status for name in ("a", "b", "c")
    ]

    assert gone == [403, 200, 200]
    assert await known(server, peer=jane.peer) == 401


async def test_a_hold_is_lifted_only_with_the_verb_revoke(server: Api) -> None:
    """The right to delete revocations alone releases nothing."""
    serial, peer = await on_record(server, "jane")
    named = {"serialNumber": serial, "signerName": ORCH.client_signer}
    await revoked(server, "hold", certificate=named, reason="certificateHold")
    await permit(server, GRANTS["approve"], verbs=("create", "delete"))

    refused = await server.call("DELETE", f"{REVOCATIONS}/hold", token=ALICE)

    assert refused.status == 403
    assert "not permitted to revoke" in refused.text
    assert await known(server, peer=peer) == 401


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        ({"account": ROBOT}, {"account": {**ROBOT, "name": "nobody"}}),
        ({"token": {"jti": "x", **ROBOT}}, {"token": {"jti": "x", **ROBOT, "name": "nobody"}}),
        (
            {"authority": {"signerName": ORCH.client_signer}},
            {"authority": {"signerName": "example.com/none"}},
        ),
        (
            {"certificate": {"requestName": "asked"}},
            {"certificate": {"requestName": "never"}},
        ),
        (
            {"certificate": {"serialNumber": "SERIAL", "signerName": "example.com/mine"}},
            {"certificate": {"serialNumber": "7", "signerName": "example.com/mine"}},
        ),
        ({"certificate": {"sha256": "SHA256"}}, {"certificate": {"sha256": "0" * 64}}),
    ],
)
async def test_who_may_not_revoke_learns_nothing_of_what_exists(
    server: Api, there: dict[str, Any], missing: dict[str, Any]
) -> None:
    """The same answer for accounts, signers and certificates that exist and that do not."""
    serial, _ = await on_record(server, "jane")
    await server.account("robot")
    record = await server.call(
        "GET", f"/apis/identity.orch.io/v1alpha1/issuedcertificates/{serial}"
    )
    mine = {**GRANTS["signer"], "resourceNames": ["example.com/mine"]}
    await permit(server, mine)
    if named := there.get("certificate"):
        named = {
            key: value.replace("SERIAL", serial).replace("SHA256", record.json["spec"]["sha256"])
            for key, value in named.items()
        }
        there = {"certificate": named}

    first = await revoke(server, "probe", there, token=ALICE)
    second = await revoke(server, "probe", missing, token=ALICE)

    def shape(answer: Any, spec: dict[str, Any]) -> tuple[int, str]:
        text = answer.json["message"]
        for value in sorted((str(one) for one in next(iter(spec.values())).values()), key=len):
            text = text.replace(value, "NAME")
        return answer.status, text

    assert shape(first, there) == shape(second, missing)
    assert first.status in (403, 422)
