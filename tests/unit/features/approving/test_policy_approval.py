"""The approving controller decides by policy, against a real server in memory."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest
from cryptography import x509

from orchid.features.approving.controllers.approve_requests import (
    LOOK_AGAIN_SECONDS,
    ApproveRequests,
)
from orchid.features.approving.kinds.approval_policy import CANNOT_COMPILE, ApprovalPolicy
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest as Request,
)
from orchid.features.certificates.kinds.issued_certificate import Approver, IssuedCertificate
from orchid.features.objects.kinds.event import Event
from orchid.features.rights.kinds.role import ClusterRole
from orchid.features.rights.kinds.role_binding import ClusterRoleBinding, RoleRef, Subject
from orchid.kernel.client.client import ListSelection
from orchid.kernel.runtime.loop import TryAgain
from orchid.kernel.wire.conditions import Condition, with_condition
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.policy_rules import PolicyRule, rule
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import AUTHENTICATED, UserInfo
from tests.unit.features.approval.cases import spec
from tests.unit.features.beside import Beside, policies_loaded
from tests.unit.kernel.credentials import samples

ALICE = UserInfo(username="alice", groups=("web", AUTHENTICATED), extra={"env": ("prod",)})
GOOD, BAD = "a.web.example.com", "evil.com"
ALLOWS = {
    "dnsNames": ["*.web.example.com"],
    "usages": ["digital signature", "server auth"],
    "keys": ["ECDSA-P256"],
    "maxDuration": "8760h",
}
SIGNER = ORCH.legacy_signer


async def role(world: Beside, name: str, user: UserInfo, *rules: PolicyRule) -> None:
    await world.admin.create(ClusterRole(metadata=ObjectMeta(name=name), rules=rules))
    await world.admin.create(
        ClusterRoleBinding(
            metadata=ObjectMeta(name=name),
            subjects=(Subject(kind="User", api_group=ORCH.rbac, name=user.username),),
            role_ref=RoleRef(api_group=ORCH.rbac, kind="ClusterRole", name=name),
        )
    )
    await world.server.feed.fresh()


async def may_use(world: Beside, *policies: str, user: UserInfo = ALICE) -> None:
    used = rule(("use",), ORCH.identity, ("approvalpolicies",), *policies)
    await role(world, "-".join(("use", *policies)), user, used)


async def may_request(world: Beside, user: UserInfo = ALICE) -> None:
    asked = rule(("create",), ORCH.certificates, ("certificatesigningrequests",))
    await role(world, f"request-{user.username}", user, asked)


async def write(world: Beside, name: str, **terms: Any) -> ApprovalPolicy:
    given = {"signerNames": ["example.com/*"], "allows": ALLOWS, **terms}
    made = ApprovalPolicy(metadata=ObjectMeta(name=name), spec=spec(**given))
    return await world.admin.create(made)


async def ask(world: Beside, name: str, host: str = GOOD, **more: Any) -> Request:
    request = samples.request("", (), alternative_names=(x509.DNSName(host),))
    more = {"signer": "example.com/web", "usages": ("digital signature", "server auth"), **more}
    return await world.request(name, request, user=ALICE, seconds=24 * 3600, **more)


def controller_of(world: Beside) -> ApproveRequests:
    (controller,) = world.made("csrapproving")
    assert isinstance(controller, ApproveRequests)
    return controller


async def looked_at(world: Beside, csr: Request) -> tuple[Request, float | None]:
    """The request after one look of a controller that knows every policy."""
    controller = controller_of(world)
    await policies_loaded(controller)
    again = await controller.reconcile(csr)
    return await world.admin.get(Request, csr.name), again


async def test_a_policy_that_allows_approves_and_says_which(world: Beside) -> None:
    """Condition and event name the policy and its revision."""
    await may_request(world)
    await may_use(world, "web")
    policy = await write(world, "web")
    async with world.running("csrapproving"):
        await ask(world, "r")

        approved = await world.until_like(Request, "r", condition=lambda csr: csr.is_approved)
        event = await world.until(lambda: event_about(world, "r"))

    (condition,) = approved.status.conditions
    revision = policy.metadata.resource_version
    assert condition.reason == event.reason == "ApprovalPolicy"
    assert condition.message == f"Approved by ApprovalPolicy web, revision {revision}."
    assert event.message == condition.message


async def event_about(world: Beside, name: str) -> Event | None:
    found = [event async for event in world.admin.scan(ListSelection(Event))]
    return next((event for event in found if event.involved_object.name == name), None)


async def test_a_request_that_no_policy_allows_is_left_with_an_event(world: Beside) -> None:
    """An event says what is wrong with it; a person may still decide."""
    await may_request(world)
    await may_use(world, "web")
    await write(world, "web")
    async with world.running("csrapproving"):
        await ask(world, "r", BAD)

        event = await world.until(lambda: event_about(world, "r"))

    left = await world.admin.get(Request, "r")
    assert left.status.conditions == ()
    assert (event.type, event.reason) == ("Warning", "NotApproved")
    assert 'web: dnsNames does not allow "evil.com"' in event.message


async def test_what_no_policy_allows_is_denied_if_one_says_so(world: Beside) -> None:
    """With the reasons of all that select it."""
    await may_request(world)
    await may_use(world, "deny", "web")
    await write(world, "web")
    await write(world, "deny", allows={}, otherwise="deny")

    denied, _ = await looked_at(world, await ask(world, "r", BAD))

    (condition,) = denied.status.conditions
    assert (condition.type, condition.reason) == ("Denied", "ApprovalPolicy")
    assert "deny: dnsNames does not allow" in condition.message
    assert "web: dnsNames does not allow" in condition.message


@pytest.mark.parametrize("signer", ["other.com/x", ORCH.client_signer])
async def test_what_no_policy_selects_is_left_in_silence(world: Beside, signer: str) -> None:
    """As on a server without policies."""
    await may_request(world)
    await write(world, "web", otherwise="deny")
    made = await ask(world, "r", signer=signer)

    left, again = await looked_at(world, made)

    assert left == made
    assert again is None


async def test_a_policy_counts_only_for_those_who_may_use_it(world: Beside) -> None:
    """Neither its yes nor its no; the right may come later, so it is looked at again."""
    await may_request(world)
    await may_use(world, "other")
    await write(world, "web", otherwise="deny")
    made = await ask(world, "r")
    refused = await ask(world, "bad", BAD)

    before, again = await looked_at(world, made)
    not_denied, _ = await looked_at(world, refused)
    await may_use(world, "web")
    after, _ = await looked_at(world, made)

    assert before == made
    assert again == LOOK_AGAIN_SECONDS
    assert not_denied == refused
    assert after.is_approved


async def test_nothing_is_decided_before_every_policy_is_loaded(world: Beside) -> None:
    """A request of the first moment is not denied by half of the policies."""
    await may_request(world)
    await may_use(world, "web")
    await write(world, "web", otherwise="deny")
    made = await ask(world, "r", BAD)
    controller = controller_of(world)
    controller.authorities.all_loaded.set()

    with pytest.raises(TryAgain, match="not every approval policy is loaded yet"):
        await controller.reconcile(made)

    assert await world.admin.get(Request, "r") == made


async def test_nothing_is_decided_while_policies_are_reloaded(world: Beside) -> None:
    """Missed changes might have changed the verdict."""
    await may_request(world)
    await may_use(world, "web")
    await write(world, "web")
    made = await ask(world, "r")
    controller = controller_of(world)
    await policies_loaded(controller)

    controller.policies.forget()

    with pytest.raises(TryAgain, match="not every approval policy is loaded yet"):
        await controller.reconcile(made)


@pytest.mark.parametrize(
    ("host", "change"),
    [
        (GOOD, lambda world, policy: world.admin.delete(ApprovalPolicy, policy.name)),
        (GOOD, lambda world, policy: world.admin.update(replace(policy, spec=spec(allows={})))),
        (BAD, lambda world, policy: write(world, "new", allows={"dnsNames": ["*"]})),
    ],
)
async def test_a_decision_never_rests_on_an_old_policy(
    world: Beside, host: str, change: Callable[[Beside, ApprovalPolicy], Any]
) -> None:
    """A watch may be late: a policy that has changed meanwhile is evaluated again first."""
    await may_request(world)
    await may_use(world, "new", "web")
    policy = await write(world, "web", otherwise="deny")
    made = await ask(world, "r", host)
    controller = controller_of(world)
    await policies_loaded(controller)
    await change(world, policy)

    with pytest.raises(TryAgain, match="changed meanwhile"):
        await controller.reconcile(made)

    assert await world.admin.get(Request, "r") == made


async def test_a_request_whose_slow_rules_could_not_be_judged_is_looked_at_again(
    world: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in no other queue any more, so that nobody else would come back to it."""
    await may_request(world)
    await may_use(world, "web")
    policy = await write(world, "web")
    await ask(world, "r")
    controller, again = controller_of(world), []
    monkeypatch.setattr(controller.queue, "add_after", lambda *given: again.append(given))
    await policies_loaded(controller)
    await world.admin.delete(ApprovalPolicy, policy.name)

    await controller._decide_slowly("r")

    assert again == [(("", "r"), LOOK_AGAIN_SECONDS)]


async def test_a_decision_made_meanwhile_is_kept(
    world: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow rules may be evaluated long after a person has approved the request."""
    await may_request(world)
    await may_use(world, "web")
    await write(world, "web")
    made = await ask(world, "r")
    await world.admin.update(made.with_condition("Approved", "ByHand"), "approval")
    by_hand = await world.admin.get(Request, "r")
    controller, again = controller_of(world), []
    monkeypatch.setattr(controller.queue, "add_after", lambda *given: again.append(given))
    await policies_loaded(controller)

    await controller._decide_slowly("r")

    assert again == []
    assert await world.admin.get(Request, "r") == by_hand


async def test_a_new_policy_is_applied_to_what_waits(world: Beside) -> None:
    """Nobody has to ask again."""
    await may_request(world)
    await may_use(world, "web")
    async with world.running("csrapproving"):
        await ask(world, "r")
        await write(world, "web")

        approved = await world.until_like(Request, "r", condition=lambda csr: csr.is_approved)

    assert approved.status.conditions[0].reason == "ApprovalPolicy"


async def not_ready(world: Beside, name: str) -> None:
    found = await world.admin.get(ApprovalPolicy, name)
    paused = Condition(type="Ready", status="False", reason="Paused", message="by a person")
    conditions = with_condition(found.status.conditions, paused, world.clock.now())
    await world.admin.update_status(
        replace(found, status=replace(found.status, conditions=conditions))
    )


async def test_a_policy_that_is_not_ready_decides_nothing(world: Beside) -> None:
    """It neither approves, nor lets another deny what it might allow."""
    await may_request(world)
    await may_use(world, "deny", "web")
    await write(world, "web")
    await write(world, "deny", allows={}, otherwise="deny")
    await not_ready(world, "web")
    made = await ask(world, "r")

    left, again = await looked_at(world, made)

    assert left == made
    assert again == LOOK_AGAIN_SECONDS
    assert not (await world.admin.get(ApprovalPolicy, "web")).is_ready


async def test_a_stored_policy_that_cannot_be_compiled_says_so(
    world: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its library a policy is not Ready; with it, it is Ready again by itself."""
    await write(world, "web", rules=[{"expression": "request.commonName == ''"}])

    with monkeypatch.context() as missing:
        missing.setitem(sys.modules, "cel_expr_python", None)
        await policies_loaded(controller_of(world))
        broken = await world.admin.get(ApprovalPolicy, "web")
    await policies_loaded(controller_of(world))
    mended = await world.admin.get(ApprovalPolicy, "web")

    (condition,) = broken.status.conditions
    assert (condition.status, condition.reason) == ("False", CANNOT_COMPILE)
    assert "no cel-expr-python for this platform" in condition.message
    assert mended.is_ready


async def test_rules_see_who_asked(world: Beside) -> None:
    """The user is the one that the server wrote down, with everything known of them."""
    await may_request(world)
    await may_use(world, "web")
    rules = [{"expression": "user.extra['env'][0] == 'prod' && 'web' in user.groups"}]
    await write(world, "web", rules=rules)

    approved, _ = await looked_at(world, await ask(world, "r"))

    assert approved.is_approved


async def test_what_the_platform_would_not_sign_is_not_approved(world: Beside) -> None:
    """The rules of the signer come before those of a policy."""
    await may_request(world)
    await may_use(world, "web")
    await write(world, "web", signerNames=["orch.io/*"])
    made = await ask(world, "r", signer=ORCH.client_signer)

    left, _ = await looked_at(world, made)

    assert left == made


async def test_a_policy_issues_from_the_platform_signers(world: Beside) -> None:
    """From the request to the certificate without a person; the inventory says by which policy."""
    await may_request(world)
    await may_use(world, "web")
    allows = {
        "commonName": "alice",
        "usages": ["digital signature", "client auth"],
        "keys": ["ECDSA-*"],
        "maxDuration": "8760h",
    }
    await write(world, "web", signerNames=[ORCH.client_signer], allows=allows)
    async with world.running("csrapproving", "csrsigning"):
        await world.request("r", samples.request("alice", ()), user=ALICE)

        issued = await world.until_like(Request, "r", condition=lambda csr: csr.is_issued)

    [record] = [one async for one in world.admin.scan(ListSelection(IssuedCertificate))]
    controller = "system:serviceaccount:orch-system:csrapproving"
    assert issued.is_approved
    assert record.spec.approver == Approver(username=controller, policy="web")


async def test_two_looks_at_once_decide_once(world: Beside) -> None:
    """The second finds the decision of the first, and leaves it."""
    await may_request(world)
    await may_use(world, "web")
    await write(world, "web")
    made = await ask(world, "r")
    controllers = [controller_of(world), controller_of(world)]
    for one in controllers:
        await policies_loaded(one)

    results = await asyncio.gather(
        *(one.reconcile(made) for one in controllers), return_exceptions=True
    )

    approved = await world.admin.get(Request, "r")
    assert [type(result).__name__ for result in results].count("Conflict") == 1
    assert len(approved.status.conditions) == 1
