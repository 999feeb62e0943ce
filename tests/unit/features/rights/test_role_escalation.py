"""Nobody hands out more than they hold: roles, bindings, and what lifts the check."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from orchid.features.rights.authorizers.rbac import RBAC
from orchid.features.rights.kinds.role import AggregationRule
from orchid.features.rights.policies.role_escalation import RoleEscalation
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.errors import Forbidden, NotFound
from orchid.kernel.wire.meta import ManagedFieldsEntry, OwnerReference
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.policy_rules import FULL_AUTHORITY
from orchid.kernel.wire.selectors.label_selectors import LabelSelector
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import UserInfo
from tests.unit.features.asking import EVE, a_request
from tests.unit.features.rights.policy_world import (
    a_cluster_role,
    a_role,
    ask,
    bound,
    bound_in,
    policy_world,
    rule,
    urls,
    user,
)
from tests.unit.kernel.access.world import World

GATHERING = AggregationRule((LabelSelector(match_labels={"a": "b"}),))


@pytest.fixture
async def here() -> AsyncIterator[World]:
    """Eve may get pods everywhere; some roles hold more than that."""
    async with policy_world() as made:
        await made.put(a_cluster_role("eves", rule("get", "pods")))
        await made.put(bound("eves", "eves", user("eve")))
        await made.put(a_cluster_role("small", rule("get", "pods")))
        await made.put(a_cluster_role("mighty", *FULL_AUTHORITY))
        await made.put(a_role("ci", "local", rule("get", "secrets")))
        yield made


async def judge(here: World, new: Any, old: Any = None, by: UserInfo = EVE) -> None:
    """Run the admission policy for a change, as the engine does."""
    kind = here.catalog.of(type(new))
    evaluator = RBAC(ORCH, here.feed, here.offload)
    await RoleEscalation(evaluator, evaluator).review(a_request_for(new, old, by), kind, new, old)


def a_request_for(new: Any, old: Any, by: UserInfo) -> Request:
    plural = f"{type(new).__name__.lower()}s"
    name = new.name if old is not None else ""
    verb = "update" if old is not None else "create"
    return a_request(ask(verb, plural, new.namespace, name, ORCH.rbac), by)


async def test_what_one_holds_one_may_hand_out(here: World) -> None:
    """A role and a binding within the rights of their writer are allowed."""
    await judge(here, a_role("ci", "r", rule("get", "pods", names=["a"])))
    await judge(here, bound_in("ci", "b", "small", user("bob"), kind="ClusterRole"))
    await judge(here, bound("b", "small", user("bob")))


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (
            a_role("ci", "mighty", rule("get", "secrets")),
            'roles.rbac.authorization.orch.io "mighty" is forbidden: user "eve" (groups=["dev"]) '
            "is attempting to grant RBAC permissions not currently held:\n"
            '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}',
        ),
        (
            a_cluster_role("m", urls("get", "/x")),
            'clusterroles.rbac.authorization.orch.io "m" is forbidden: user "eve" (groups=["dev"]) '
            "is attempting to grant RBAC permissions not currently held:\n"
            '{NonResourceURLs:["/x"], Verbs:["get"]}',
        ),
        (
            bound_in("ci", "mighty", "mighty", kind="ClusterRole"),
            'rolebindings.rbac.authorization.orch.io "mighty" is forbidden: user "eve" '
            '(groups=["dev"]) is attempting to grant RBAC permissions not currently held:\n'
            '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}\n'
            '{NonResourceURLs:["*"], Verbs:["*"]}',
        ),
        (
            bound_in("ci", "b", "local", user("eve")),
            'rolebindings.rbac.authorization.orch.io "b" is forbidden: user "eve" (groups=["dev"]) '
            "is attempting to grant RBAC permissions not currently held:\n"
            '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}',
        ),
    ],
)
async def test_more_than_one_holds_is_refused(here: World, new: Any, message: str) -> None:
    """The refusal lists what is missing."""
    with pytest.raises(Forbidden) as caught:
        await judge(here, new)

    assert caught.value.message == message


async def test_masters_are_not_asked(here: World) -> None:
    """Members of system:masters hold everything without a role."""
    admin = UserInfo(username="root", groups=("system:masters",))

    await judge(here, a_role("ci", "r", *FULL_AUTHORITY), by=admin)
    await judge(here, bound("b", "nowhere", user("bob")), by=admin)


async def test_the_verb_escalate_lifts_the_check_for_roles(here: World) -> None:
    """With the verb escalate, a role may contain any rule, and aggregation."""
    await here.put(a_cluster_role("lift", rule("escalate", "roles clusterroles", ORCH.rbac)))
    await here.put(bound("lift", "lift", user("eve")))

    await judge(here, a_role("ci", "r", rule("get", "secrets")))
    await judge(here, replace(a_cluster_role("g"), aggregation_rule=GATHERING))
    with pytest.raises(Forbidden):
        await judge(here, bound("b", "mighty", user("eve")))


async def test_escalate_on_a_name_does_not_reach_new_roles(here: World) -> None:
    """A new role has no name in its path, so a named right does not match it."""
    named = rule("escalate", "roles", ORCH.rbac, ["r"])
    await here.put(a_cluster_role("lift", named))
    await here.put(bound("lift", "lift", user("eve")))
    new, old = a_role("ci", "r", rule("get", "secrets")), a_role("ci", "r")

    await judge(here, new, old)
    with pytest.raises(Forbidden):
        await judge(here, new)


async def test_the_verb_bind_lifts_the_check_for_that_role(here: World) -> None:
    """Binding a role by name is a right of its own, and works for roles yet to come."""
    await here.put(
        a_cluster_role("lift", rule("bind", "clusterroles", ORCH.rbac, ["mighty", "later"]))
    )
    await here.put(bound("lift", "lift", user("eve")))

    await judge(here, bound("b", "mighty", user("eve")))
    await judge(here, bound_in("ci", "b", "later", user("eve"), kind="ClusterRole"))
    with pytest.raises(Forbidden):
        await judge(here, bound_in("ci", "b", "local", user("eve")))


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (
            bound("b", "nowhere"),
            'clusterrolebindings.rbac.authorization.orch.io "nowhere" not found',
        ),
        (
            bound_in("ci", "b", "nowhere"),
            'rolebindings.rbac.authorization.orch.io "nowhere" not found',
        ),
        (
            bound_in("other", "b", "local"),
            'rolebindings.rbac.authorization.orch.io "local" not found',
        ),
    ],
)
async def test_a_binding_to_no_role_is_not_found(here: World, new: Any, message: str) -> None:
    """Nobody can know the rules of a role that does not exist yet."""
    with pytest.raises(NotFound) as caught:
        await judge(here, new)

    assert caught.value.message == message


async def test_gathering_by_label_takes_full_authority(here: World) -> None:
    """An aggregated role may come to hold anything; adding and removing the rule are alike."""
    plain, gathering = a_cluster_role("g"), replace(a_cluster_role("g"), aggregation_rule=GATHERING)
    text = "must have cluster-admin privileges to use the aggregationRule"

    for new, old in ((gathering, None), (gathering, plain), (plain, gathering)):
        with pytest.raises(Forbidden, match=text):
            await judge(here, new, old)
    await here.put(bound("all", "mighty", user("eve")))
    await judge(here, gathering)


async def test_upkeep_by_the_garbage_collector_passes(here: World) -> None:
    """Owners, finalizers and managed fields may change without any right to the rules."""
    old = a_cluster_role("r", *FULL_AUTHORITY)
    upkeep = {
        "owner_references": (OwnerReference(uid="u"),),
        "finalizers": ("a/b",),
        "managed_fields": (ManagedFieldsEntry(manager="m"),),
        "resource_version": "7",
    }

    await judge(here, old.with_meta(**upkeep), old)
    for change in ({"labels": {"a": "b"}}, {"annotations": {"a": "b"}}):
        with pytest.raises(Forbidden):
            await judge(here, old.with_meta(**change), old)


async def test_deleting_and_other_kinds_are_nobodys_business_here(here: World) -> None:
    """Taking a role away hands nothing out."""
    evaluator = RBAC(ORCH, here.feed, here.offload)
    policy = RoleEscalation(evaluator, evaluator)
    role = a_cluster_role("mighty", *FULL_AUTHORITY)
    kind = here.catalog.of(type(role))

    await policy.review(a_request(ask("delete", "clusterroles")), kind, None, role)

    assert await policy.admit(a_request(ask("create", "clusterroles")), kind, role, None) is role
