"""The RBAC evaluator: what is allowed, by what name, and that it never lags behind the policy."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchid.features.rights.authorizers import rbac as rbac_module
from orchid.features.rights.authorizers.rbac import RBAC
from orchid.features.rights.kinds.role import AggregationRule, ClusterRole, Role
from orchid.features.rights.kinds.role_binding import ClusterRoleBinding, RoleBinding
from orchid.features.rights.rules import allows_name, allows_path, allows_resource
from orchid.kernel.base.scheduling.offload import ALWAYS
from orchid.kernel.engine.interfaces import Verdict
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.policy_rules import FULL_AUTHORITY
from orchid.kernel.wire.selectors.label_selectors import LabelSelector
from orchid.kernel.wire.selectors.requirements import LabelSelectorRequirement
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import UserInfo
from tests.unit.features.rights.policy_world import (
    BOB,
    a_cluster_role,
    a_role,
    account,
    ask,
    ask_path,
    bound,
    bound_in,
    group,
    meta,
    policy_world,
    role_ref,
    rule,
    urls,
    user,
)
from tests.unit.kernel.access.world import World

NOBODY = UserInfo(username="nobody")


@pytest.fixture
async def here() -> AsyncIterator[World]:
    """A world without any role."""
    async with policy_world() as made:
        yield made


@pytest.fixture
def rbac(here: World) -> RBAC:
    """The evaluator over that world."""
    return RBAC(ORCH, here.feed, here.offload)


def gathering(name: str, *labels: tuple[str, str], **own: str) -> ClusterRole:
    selectors = tuple(LabelSelector(match_labels=dict([label])) for label in labels)
    return ClusterRole(
        metadata=meta(name, labels=own),
        aggregation_rule=AggregationRule(cluster_role_selectors=selectors),
    )


async def test_nobody_may_do_anything_without_a_binding(rbac: RBAC) -> None:
    """The evaluator has no opinion and no reason when nothing was granted."""
    decision = await rbac.authorize(BOB, ask("get", "pods"))

    assert decision.verdict is Verdict.NO_OPINION
    assert decision.reason == ""


@pytest.mark.parametrize(
    ("binding", "caller", "reason"),
    [
        (
            bound("b", "r", group("dev")),
            BOB,
            'RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to Group "dev"',
        ),
        (
            bound_in("ci", "b", "r", user("bob"), kind="ClusterRole"),
            BOB,
            'RBAC: allowed by RoleBinding "b/ci" of ClusterRole "r" to User "bob"',
        ),
        (
            bound_in("ci", "b", "r", account("ops", "app"), kind="ClusterRole"),
            UserInfo(username="system:serviceaccount:ops:app"),
            'RBAC: allowed by RoleBinding "b/ci" of ClusterRole "r" to ServiceAccount "app/ops"',
        ),
        (
            bound_in("ci", "b", "r", account("", "app"), kind="ClusterRole"),
            UserInfo(username="system:serviceaccount:ci:app"),
            'RBAC: allowed by RoleBinding "b/ci" of ClusterRole "r" to ServiceAccount "app/ci"',
        ),
    ],
)
async def test_an_allowed_request_names_the_binding(
    here: World, rbac: RBAC, binding: Any, caller: UserInfo, reason: str
) -> None:
    """The reason says which binding of which role to whom allowed it."""
    await here.put(a_cluster_role("r", rule("get", "pods")))
    await here.put(binding)

    decision = await rbac.authorize(caller, ask("get", "pods", "ci", "web"))

    assert decision.allowed
    assert decision.reason == reason


async def test_a_role_binding_holds_in_its_namespace_only(here: World, rbac: RBAC) -> None:
    """Neither another namespace nor the cluster scope is reached."""
    await here.put(a_role("ci", "r", rule("get", "pods")))
    await here.put(bound_in("ci", "b", "r", user("bob")))

    assert (await rbac.authorize(BOB, ask("get", "pods", "ci"))).allowed
    assert not (await rbac.authorize(BOB, ask("get", "pods", "other"))).allowed
    assert not (await rbac.authorize(BOB, ask("get", "pods"))).allowed


async def test_an_account_is_not_the_user_of_a_similar_name(here: World, rbac: RBAC) -> None:
    """A subject of kind User never matches a group, and vice versa."""
    await here.put(a_cluster_role("r", rule("get", "pods")))
    await here.put(bound("b", "r", user("dev")))

    assert not (await rbac.authorize(BOB, ask("get", "pods"))).allowed


async def test_resource_names_match_exactly_and_never_a_new_object(here: World, rbac: RBAC) -> None:
    """A named rule allows that name; a create has none, so it is not allowed."""
    await here.put(a_cluster_role("r", rule("get create", "signers", names=["a.io/x", "a.io/*"])))
    await here.put(bound("b", "r", user("bob")))

    allowed = [
        (await rbac.authorize(BOB, ask("get", "signers", name=name))).allowed
        for name in ("a.io/x", "a.io/*", "a.io/y", "")
    ]

    assert allowed == [True, True, False, False]
    assert not (await rbac.authorize(BOB, ask("create", "signers"))).allowed


async def test_paths_are_granted_by_cluster_bindings_only(here: World, rbac: RBAC) -> None:
    """A namespace has no paths, so a RoleBinding cannot grant one."""
    await here.put(a_cluster_role("r", urls("get", "/metrics /healthz/*")))
    await here.put(bound("b", "r", user("bob")))
    await here.put(bound_in("ci", "b", "r", user("eve"), kind="ClusterRole"))

    assert (await rbac.authorize(BOB, ask_path("get", "/healthz/x"))).allowed
    assert not (await rbac.authorize(BOB, ask_path("post", "/metrics"))).allowed
    assert not (await rbac.authorize(UserInfo("eve"), ask_path("get", "/metrics"))).allowed


async def test_a_missing_role_is_the_reason_of_a_refusal(here: World, rbac: RBAC) -> None:
    """The refusal names the missing roles of the caller's bindings."""
    await here.put(bound("b", "gone", user("bob")))

    one = await rbac.authorize(BOB, ask("get", "pods", "ci"))
    await here.put(bound_in("ci", "b", "lost", user("bob")))
    two = await rbac.authorize(BOB, ask("get", "pods", "ci"))

    first = 'clusterrole.rbac.authorization.orch.io "gone" not found'
    second = 'role.rbac.authorization.orch.io "lost" not found'
    assert one.reason == f"RBAC: {first}"
    assert two.reason == f"RBAC: [{first}, {second}]"
    assert two.verdict is Verdict.NO_OPINION


async def test_every_change_of_the_policy_counts_at_once(here: World, rbac: RBAC) -> None:
    """A right is gone as soon as its binding, its rule or its role is."""
    question = ask("get", "pods", "ci")
    role, binding = a_role("ci", "r", rule("get", "pods")), bound_in("ci", "b", "r", user("bob"))

    async def allowed() -> bool:
        return (await rbac.authorize(BOB, question)).allowed

    await here.put(role)
    assert not await allowed()
    await here.put(binding)
    assert await allowed()
    await here.put(replace(binding, subjects=(user("eve"),)))
    assert not await allowed()
    await here.put(binding)
    await here.put(replace(role, rules=(rule("list", "pods"),)))
    assert not await allowed()
    await here.put(role)
    assert await allowed()
    await here.delete(role)
    assert not await allowed()
    await here.put(role)
    await here.delete(binding)
    assert not await allowed()


async def test_a_change_counts_before_listeners_are_notified(here: World, rbac: RBAC) -> None:
    """The evaluator reads the cache itself, so a late notification does not matter."""
    await here.put(a_cluster_role("r", rule("get", "pods")))
    binding = bound("b", "r", user("bob"))
    await here.put(binding)
    assert (await rbac.authorize(BOB, ask("get", "pods"))).allowed
    rbac.close()

    await here.delete(binding)

    assert not (await rbac.authorize(BOB, ask("get", "pods"))).allowed


async def test_a_grant_that_was_found_too_late_is_not_remembered(
    here: World, rbac: RBAC, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A binding is taken away while a thread looks through the roles of the question before."""
    begun, go_on = threading.Event(), threading.Event()
    found = rbac_module.resource_grant

    def slowly(*given: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        return found(*given)

    monkeypatch.setattr(rbac_module, "resource_grant", slowly)
    monkeypatch.setattr(rbac_module, "COST_OF_A_RULE", ALWAYS)
    await here.put(a_cluster_role("r", rule("get", "pods")))
    binding = bound("b", "r", user("bob"))
    await here.put(binding)

    before = asyncio.create_task(rbac.authorize(BOB, ask("get", "pods")))
    assert await asyncio.to_thread(begun.wait, 60)
    await here.delete(binding)
    rbac.rules_for(BOB, "")  # takes in the change
    go_on.set()

    assert (await before).allowed
    assert not (await rbac.authorize(BOB, ask("get", "pods"))).allowed


async def test_an_evaluator_made_later_finds_what_is_there(here: World) -> None:
    """Objects stored before the evaluator existed are found by building the index."""
    await here.put(a_cluster_role("r", rule("get", "pods")))
    await here.put(bound("b", "r", user("bob")))

    late = RBAC(ORCH, here.feed, here.offload)

    assert (await late.authorize(BOB, ask("get", "pods"))).allowed


async def test_the_index_is_rebuilt_when_its_history_is_gone(here: World) -> None:
    """When turns it has not seen were dropped, nothing stale survives."""
    await here.put(a_cluster_role("r", rule("get", "pods")))
    binding = bound("b", "r", user("bob"))
    await here.put(binding)
    rbac = RBAC(ORCH, here.feed, here.offload)
    assert (await rbac.authorize(BOB, ask("get", "pods"))).allowed
    rbac.close()

    await here.delete(binding)
    await here.put(bound("c", "r", user("eve")))
    here.feed.forget_before(here.feed.revision)

    assert not (await rbac.authorize(BOB, ask("get", "pods"))).allowed
    assert (await rbac.authorize(UserInfo("eve"), ask("get", "pods"))).allowed


async def test_an_aggregated_role_holds_what_its_selectors_find(here: World, rbac: RBAC) -> None:
    """Rules come from matching roles, through aggregated ones too; stored ones do not count."""
    await here.put(replace(gathering("admin", ("to", "admin")), rules=FULL_AUTHORITY))
    await here.put(gathering("edit", ("to", "edit"), to="admin"))
    await here.put(a_cluster_role("parts", rule("get", "pods"), to="edit"))
    await here.put(bound("b", "admin", user("bob")))

    assert (await rbac.authorize(BOB, ask("get", "pods", "ci"))).allowed
    assert not (await rbac.authorize(BOB, ask("get", "secrets", "ci"))).allowed

    await here.put(a_cluster_role("parts", rule("get", "secrets"), to="edit"))
    assert not (await rbac.authorize(BOB, ask("get", "pods", "ci"))).allowed
    assert (await rbac.authorize(BOB, ask("get", "secrets", "ci"))).allowed


async def test_roles_that_aggregate_each_other_end_up_equal(here: World, rbac: RBAC) -> None:
    """A circle is no endless loop, and every role in it gets the same rules."""
    await here.put(gathering("a", ("in", "a"), ("to", "x"), **{"in": "b"}))
    await here.put(gathering("b", ("in", "b"), **{"in": "a"}))
    await here.put(a_cluster_role("leaf", rule("get", "pods"), to="x"))
    await here.put(a_cluster_role("other", rule("get", "nodes"), **{"in": "b"}))

    rules = {name: set(rbac.rules_of(role_ref(name), "") or ()) for name in ("a", "b")}

    assert rules["a"] == rules["b"] == {rule("get", "pods"), rule("get", "nodes")}


async def test_selectors_by_expression(here: World, rbac: RBAC) -> None:
    """In, NotIn, Exists and DoesNotExist select as label selectors do."""
    for name, labels in (("one", {"tier": "a"}), ("two", {"tier": "b", "old": "1"}), ("three", {})):
        await here.put(a_cluster_role(name, rule("get", name), **labels))

    async def found(*requirements: LabelSelectorRequirement) -> set[str]:
        selector = LabelSelector(match_expressions=requirements)
        rules = AggregationRule(cluster_role_selectors=(selector,))
        await here.put(ClusterRole(metadata=meta("all"), aggregation_rule=rules))
        return {r.resources[0] for r in rbac.rules_of(role_ref("all"), "") or ()}

    assert await found(LabelSelectorRequirement("tier", "In", ("a", "b"))) == {"one", "two"}
    assert await found(LabelSelectorRequirement("tier", "NotIn", ("a",))) == {"two", "three"}
    assert await found(LabelSelectorRequirement("old", "Exists")) == {"two"}
    assert await found(LabelSelectorRequirement("old", "DoesNotExist")) == {"one", "three"}


async def test_rules_are_listed_cluster_bindings_first(here: World, rbac: RBAC) -> None:
    """The list holds each binding's rules once, and names what could not be found."""
    await here.put(a_cluster_role("r", rule("get", "pods"), urls("get", "/x")))
    await here.put(a_role("ci", "q", rule("list", "pods", names=["a"])))
    await here.put(bound("b", "r", user("bob"), group("dev")))
    await here.put(bound_in("ci", "b", "q", user("bob")))
    await here.put(bound_in("ci", "c", "gone", user("bob")))

    listed = rbac.rules_for(BOB, "ci")

    assert [(r.verbs, r.resource_names) for r in listed.resource_rules] == [
        (("get",), ()),
        (("list",), ("a",)),
    ]
    assert [r.non_resource_urls for r in listed.non_resource_rules] == [("/x",)]
    assert listed.evaluation_error == 'role.rbac.authorization.orch.io "gone" not found'
    assert not listed.incomplete


async def test_excess_names_what_is_not_held(here: World, rbac: RBAC) -> None:
    """The sentence has the user, its groups, the rules in order and what went wrong."""
    await here.put(a_cluster_role("r", rule("get", "pods")))
    await here.put(bound("b", "r", user("bob")))
    wanted = (rule("list get", "pods secrets"), urls("get", "/x"))

    text = await rbac.excess(BOB, "ci", wanted)

    assert text == (
        'user "bob" (groups=["dev" "system:authenticated"]) is attempting to grant RBAC '
        "permissions not currently held:\n"
        '{APIGroups:[""], Resources:["pods"], Verbs:["list"]}\n'
        '{APIGroups:[""], Resources:["secrets"], Verbs:["list" "get"]}\n'
        '{NonResourceURLs:["/x"], Verbs:["get"]}'
    )
    assert await rbac.excess(BOB, "ci", (rule("get", "pods"),)) == ""
    await here.put(bound("c", "gone", user("bob")))
    broken = await rbac.excess(BOB, "ci", (rule("get", "nodes"),))
    assert broken.endswith(
        '; resolution errors: [clusterrole.rbac.authorization.orch.io "gone" not found]'
    )


async def test_memory_of_decisions_is_bounded(
    here: World, rbac: RBAC, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller with ever new questions fills no memory, and answers stay right."""
    monkeypatch.setattr(rbac_module, "MOST_CACHED", 50_000)
    await here.put(a_cluster_role("r", rule("get", "pods")))
    await here.put(bound("b", "r", user("bob")))

    for number in range(500):
        await rbac.authorize(BOB, ask("get", f"thing{number}"))
        await rbac.authorize(UserInfo(username=f"user{number}"), ask("get", "pods"))
    await rbac.authorize(BOB, ask_path("get", "/" + "x" * 100_000))

    assert sum(len(known) for known in rbac._grants.values()) < 200
    assert (await rbac.authorize(BOB, ask("get", "pods"))).allowed


async def test_names_of_objects_take_no_room(here: World, rbac: RBAC) -> None:
    """Asking about many objects of one kind is one question."""
    await here.put(a_cluster_role("r", rule("get", "pods", names=["one"])))
    await here.put(bound("b", "r", user("bob")))

    answers = [
        (await rbac.authorize(BOB, ask("get", "pods", "ci", n))).allowed for n in ("one", "2")
    ]

    assert answers == [True, False]
    assert [len(known) for known in rbac._grants.values()] == [1]


# --- against a plain evaluator --------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b"])
NAMESPACES = st.sampled_from(["ci", "ops"])
VERBS = st.sampled_from(["get", "list", "*"])
RESOURCES = st.sampled_from(["pods", "pods/status", "*/status", "secrets", "*"])
RULE = st.builds(
    lambda verbs, resources, names: rule(" ".join(verbs), " ".join(resources), names=names),
    st.lists(VERBS, min_size=1, max_size=2),
    st.lists(RESOURCES, min_size=1, max_size=2),
    st.lists(NAMES, max_size=2),
) | st.builds(urls, VERBS, st.sampled_from(["/x", "/x*", "*"]))
SUBJECTS = st.lists(
    st.sampled_from([user("bob"), user("eve"), group("dev"), account("ci", "app")]), max_size=2
)
ROLE = st.builds(
    lambda ns, n, rules: a_role(ns, n, *rules), NAMESPACES, NAMES, st.lists(RULE, max_size=2)
)
CLUSTER_ROLE = st.builds(
    lambda n, rules, to: a_cluster_role(n, *rules, **to),
    NAMES,
    st.lists(RULE, max_size=2),
    st.sampled_from([{}, {"to": "all"}]),
) | st.builds(lambda n: gathering(n, ("to", "all")), NAMES)
BINDING = st.builds(
    lambda ns, n, r, s, k: bound_in(ns, n, r, *s, kind=k),
    NAMESPACES,
    NAMES,
    NAMES,
    SUBJECTS,
    st.sampled_from(["Role", "ClusterRole"]),
) | st.builds(lambda n, r, s: bound(n, r, *s), NAMES, NAMES, SUBJECTS)
STEP = st.tuples(st.sampled_from(["put", "delete"]), ROLE | CLUSTER_ROLE | BINDING)
QUESTIONS = [
    *(
        ask(verb, resource, namespace, name)
        for verb in ("get", "watch")
        for resource in ("pods", "pods/status", "secrets")
        for namespace in ("", "ci")
        for name in ("", "a")
    ),
    ask_path("get", "/x"),
    ask_path("list", "/xy"),
]
CALLERS = [
    BOB,
    UserInfo(username="eve"),
    UserInfo(username="system:serviceaccount:ci:app", groups=("dev",)),
]


def plainly_allowed(objects: list[Any], caller: UserInfo, target: Target) -> bool:
    """The definition of RBAC, word by word, without any index."""
    roles = {(type(o), o.namespace, o.name): o for o in objects}

    def applies(binding: Any) -> bool:
        for s in binding.subjects:
            home = s.namespace or binding.namespace
            if (
                (s.kind == "User" and s.name == caller.username)
                or (s.kind == "Group" and s.name in caller.groups)
                or (
                    s.kind == "ServiceAccount"
                    and caller.username == f"system:serviceaccount:{home}:{s.name}"
                )
            ):
                return True
        return False

    def rules(binding: Any) -> Any:
        kind = ClusterRole if binding.role_ref.kind == "ClusterRole" else Role
        home = "" if kind is ClusterRole else binding.namespace
        found = roles.get((kind, home, binding.role_ref.name))
        if found is None:
            return ()
        if getattr(found, "aggregation_rule", None):
            return [
                r
                for o in objects
                if isinstance(o, ClusterRole) and o.metadata.labels.get("to") == "all"
                for r in o.rules or ()
            ]
        return found.rules or ()

    for binding in objects:
        everywhere = isinstance(binding, ClusterRoleBinding)
        here = isinstance(binding, RoleBinding) and binding.namespace == target.namespace
        if not (everywhere or here) or not applies(binding):
            continue
        for r in rules(binding):
            if target.is_resource:
                if allows_name(r, target.name) and allows_resource(
                    r, target.verb, target.group, target.resource, target.subresource
                ):
                    return True
            elif everywhere and allows_path(r, target.verb, target.path):
                return True
    return False


@settings(max_examples=60)
@given(steps=st.lists(STEP, max_size=12))
async def test_the_compiled_evaluator_agrees_with_a_plain_one(steps: list[Any]) -> None:
    """After any history of changes both say the same about everybody."""
    async with policy_world() as here:
        rbac = RBAC(ORCH, here.feed, here.offload)
        objects: dict[Any, Any] = {}
        for word, thing in steps:
            key = (type(thing), thing.namespace, thing.name)
            if word == "put":
                await here.put(thing)
                objects[key] = thing
            elif key in objects:
                await here.delete(thing)
                del objects[key]

            there = list(objects.values())
            for caller in CALLERS:
                for target in QUESTIONS:
                    decision = await rbac.authorize(caller, target)
                    assert decision.allowed is plainly_allowed(there, caller, target)
