"""The attack: one user both creates a certificate request and has it approved.

Alice and Bob may create and approve requests for a signer, write policies for it, and impersonate
each other. A request that Alice created as Bob was approved by Alice; a policy that Alice wrote
approved her own request; and an approver could name any policy in the inventory.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orchid.features.approving.kinds.approval_policy import ApprovalPolicy
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest as Request,
)
from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.kernel.client.client import ListSelection
from orchid.kernel.wire.meta import ObjectMeta
from tests.api.test_approval_policies import POLICIES, body
from tests.api.test_approval_reviews import REVIEWS
from tests.api.world import ADMIN, ALICE, BOB, Answer, Api
from tests.security.test_request_rights import GROUP, RBAC, REQUESTS, RULES, condition, spec
from tests.unit.features.approving.test_policy_approval import event_about, looked_at
from tests.unit.features.beside import Beside, beside
from tests.unit.kernel.credentials import samples

WRITING = [
    *RULES,
    {
        "apiGroups": ["identity.orch.io"],
        "resources": ["approvalpolicies", "approvalreviews"],
        "verbs": ["create", "get", "update", "patch", "use"],
    },
    {
        "apiGroups": ["certificates.orch.io"],
        "resources": ["signers"],
        "resourceNames": ["example.com/*"],
        "verbs": ["approve"],
    },
]
AS_BOB = {"impersonate-user": "bob"}
AS_ALICE = {"impersonate-user": "alice"}
CONTROLLER = "system:serviceaccount:orch-system:csrapproving"


@pytest.fixture
async def world(server_files: Path) -> AsyncIterator[Beside]:
    async with beside(server_files) as made:
        server = Api(made.server)
        await server.make(f"{RBAC}/clusterroles", {"metadata": {"name": "all"}, "rules": WRITING})
        subjects = [{"kind": "User", "apiGroup": GROUP, "name": name} for name in ("alice", "bob")]
        role = {"apiGroup": GROUP, "kind": "ClusterRole", "name": "all"}
        binding = {"metadata": {"name": "all"}, "subjects": subjects, "roleRef": role}
        await server.make(f"{RBAC}/clusterrolebindings", binding)
        yield made


async def requested(
    world: Beside, token: str = ALICE, headers: dict[str, str] | None = None
) -> Request:
    sent = {"metadata": {"name": "r"}, "spec": spec()}
    answer = await Api(world.server).call("POST", REQUESTS, sent, token=token, headers=headers)
    assert answer.status == 201, answer.text
    return await world.admin.get(Request, "r")


async def written(
    world: Beside, token: str = ALICE, headers: dict[str, str] | None = None, **terms: Any
) -> ApprovalPolicy:
    answer = await Api(world.server).call(
        "POST", POLICIES, body("web", **terms), token=token, headers=headers
    )
    assert answer.status == 201, answer.text
    return await world.admin.get(ApprovalPolicy, "web")


async def approve(
    world: Beside, token: str, headers: dict[str, str] | None = None, **said: str
) -> Answer:
    server = Api(world.server)
    found = (await server.call("GET", f"{REQUESTS}/r")).json
    found["status"] = {"conditions": [condition("Approved") | said]}
    return await server.call("PUT", f"{REQUESTS}/r/approval", found, token=token, headers=headers)


@pytest.mark.parametrize(
    ("token", "headers"),
    [
        (ALICE, {}),
        (ALICE, {"impersonate-user": "root", "impersonate-group": "system:masters"}),
        (BOB, {}),
        (BOB, AS_ALICE),
    ],
    ids=["herself", "as a master", "the impersonated", "as herself"],
)
async def test_the_impersonator_of_the_creator_does_not_approve(
    world: Beside, token: str, headers: dict[str, str]
) -> None:
    """Alice created the request as Bob: neither of them approves it, under any name."""
    await requested(world, ALICE, AS_BOB)

    answer = await approve(world, token, headers)

    assert answer.status == 403, answer.text
    assert "created this request and may not approve it" in answer.text


async def test_an_administrator_approves_what_was_created_by_impersonation(world: Beside) -> None:
    """A third user is enough; the impersonator is not part of any answer."""
    await requested(world, ALICE, AS_BOB)

    answer = await approve(world, ADMIN)

    assert answer.status == 200
    assert "alice" not in answer.text


@pytest.mark.parametrize(
    ("wrote", "created"),
    [
        ((ALICE, {}), (ALICE, {})),
        ((ALICE, {}), (ALICE, AS_BOB)),
        ((ALICE, {}), (BOB, AS_ALICE)),
        ((ALICE, AS_BOB), (ALICE, {})),
        ((BOB, AS_ALICE), (ALICE, {})),
        ((ALICE, AS_BOB), (BOB, {})),
    ],
)
async def test_a_policy_does_not_approve_for_its_writer(
    world: Beside, wrote: tuple[str, dict[str, str]], created: tuple[str, dict[str, str]]
) -> None:
    """Creator and writer of the policy may each be impersonated by the other; an event says why."""
    await written(world, *wrote)
    made = await requested(world, *created)

    async with world.running("csrapproving"):
        said = await world.until(lambda: event_about(world, "r"))

    assert await world.admin.get(Request, "r") == made
    assert "last wrote policy" in said.message


async def test_a_policy_approves_for_others(world: Beside) -> None:
    """Bob requests, Alice wrote the policy."""
    await written(world, ALICE)
    made = await requested(world, BOB)

    approved, _ = await looked_at(world, made)

    assert approved.is_approved


async def test_the_last_writer_of_the_spec_counts(world: Beside) -> None:
    """A change of labels does not make a writer; a change of the spec does, also by a patch."""
    policy = await written(world, ADMIN)
    server, place = Api(world.server), f"{POLICIES}/web"
    merge = {"content-type": "application/merge-patch+json"}
    made = await requested(world, ALICE)

    for change in ({"metadata": {"labels": {"a": "b"}}}, {"spec": {"otherwise": "deny"}}):
        answer = await server.call("PATCH", place, change, token=ALICE, headers=merge)
        assert answer.status == 200, answer.text
    left, _ = await looked_at(world, made)
    again = {"spec": {"otherwise": "leave"}}
    await server.call("PATCH", place, again, token=BOB, headers=merge)
    labelled = {"metadata": {"labels": {"a": "c"}}}
    await server.call("PATCH", place, labelled, token=ALICE, headers=merge)
    approved, _ = await looked_at(world, made)

    assert policy.spec.otherwise == ""
    assert not left.is_decided
    assert approved.is_approved


async def test_another_policy_still_approves(world: Beside) -> None:
    """The policy of the requester comes first by name, and is passed over."""
    await written(world, ALICE)
    made = ApprovalPolicy(
        metadata=ObjectMeta(name="z"), spec=(await world.admin.get(ApprovalPolicy, "web")).spec
    )
    await world.admin.create(made)

    approved, _ = await looked_at(world, await requested(world, ALICE))

    assert "ApprovalPolicy z" in approved.status.conditions[0].message


async def test_a_policy_that_was_rewritten_after_the_verdict_approves_nothing(
    world: Beside,
) -> None:
    """The approval names a revision; a verdict on another one is refused by the server."""
    await written(world, ADMIN)
    await requested(world, ALICE)

    answer = await approve(
        world,
        ADMIN,
        reason="ApprovalPolicy",
        message="Approved by ApprovalPolicy web, revision 1.",
    )

    assert answer.status == 409
    assert "has changed or is gone" in answer.text


async def test_a_review_says_that_a_writer_may_not_use_the_policy(world: Beside) -> None:
    """The review explains the decision of the controller, also for impersonated creators."""
    await written(world, ALICE)
    await requested(world, ALICE, AS_BOB)
    server = Api(world.server)

    stored = await server.make(REVIEWS, {"spec": {"requestName": "r"}})
    sent = {"metadata": {"name": "new"}, "spec": spec()}
    tried = await server.call("POST", f"{REQUESTS}?dryRun=All", sent, token=ALICE, headers=AS_BOB)
    other = await server.call("POST", f"{REQUESTS}?dryRun=All", sent, token=BOB)

    assert stored["status"]["outcome"] == "Leave"
    assert stored["status"]["policies"][0]["usable"] is False
    assert "would leave this request" in tried.warnings[0]
    assert "would approve this request" in other.warnings[0]


@pytest.mark.parametrize(
    "headers",
    [{}, {"impersonate-user": CONTROLLER, "impersonate-group": "system:masters"}],
    ids=["by hand", "as the controller"],
)
async def test_only_the_controller_names_a_policy_in_the_inventory(
    world: Beside, headers: dict[str, str]
) -> None:
    """An approver who copies the controller's words has approved by hand."""
    policy = await written(world, ADMIN)
    await world.request("r", samples.request("alice", ()))
    said = f"Approved by ApprovalPolicy web, revision {policy.metadata.resource_version}."

    answer = await approve(world, ADMIN, headers, reason="ApprovalPolicy", message=said)
    async with world.running("csrsigning"):
        await world.until_like(Request, "r", condition=lambda csr: csr.is_issued)

    [record] = [one async for one in world.admin.scan(ListSelection(IssuedCertificate))]
    assert answer.status == 200, answer.text
    assert record.spec.approver.policy == ""
    assert record.spec.approver.impersonator == ("admin" if headers else "")
