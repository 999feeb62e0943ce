"""RBAC with its index and its cached grants against the definition of RBAC, word by word.

`compare` takes any bytes as a sequence of steps: roles and bindings are written and deleted. After
each step an evaluator that has seen all steps, and a new one, answer every question of a small
world, and `plainly_allowed` says what the answer must be. It shares no code with the evaluators.

The escalation check is compared as well: if nothing is said to be missing, then nothing that the
wanted rule allows may be refused to its writer.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any, Final, TypeVar

from orchid.features.rights.authorizers.rbac import RBAC
from orchid.features.rights.kinds.role import AggregationRule, ClusterRole, LabelSelector, Role
from orchid.features.rights.kinds.role_binding import ClusterRoleBinding, RoleBinding
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.policy_rules import PolicyRule
from orchid.kernel.wire.user import UserInfo
from tests.unit.features.rights.policy_world import (
    BOB,
    a_cluster_role,
    a_role,
    account,
    bound,
    bound_in,
    group,
    meta,
    policy_world,
    user,
)

T = TypeVar("T")

MOST_STEPS: Final = 16
NAMES: Final = ("a", "b")
NAMESPACES: Final = ("ci", "ops")
VERBS: Final = (("get",), ("list",), ("get", "delete"), ("*",))
GROUPS: Final = (("",), ("", "apps"), ("*",))
RESOURCES: Final = (
    ("pods",),
    ("pods/status",),
    ("*/status",),
    ("secrets", "pods/status"),
    ("*",),
    ("*/*",),
    ("pods/*",),
)
OBJECTS: Final = ((), (), ("a",), ("a", "b"))
PATHS: Final = (("/x",), ("/x*",), ("*",), ("/x/*", "/y"))
SUBJECTS: Final = (group("dev"), user("bob"), account("ci", "app"), account("", "app"))
CALLERS: Final = (
    BOB,
    UserInfo(username="system:serviceaccount:ci:app", groups=("dev",)),
    UserInfo(username="system:serviceaccount:ops:app"),
)
QUESTIONS: Final = (
    *(
        Target(
            verb=verb,
            is_resource=True,
            group=api_group,
            resource=resource,
            subresource=below,
            namespace=namespace,
            name=name,
        )
        for verb, api_group, resource, below, namespace, name in product(
            ("get",), ("", "apps"), ("pods", "secrets"), ("", "status"), ("", "ci"), NAMES
        )
    ),
    *(Target(verb=verb, path=path) for verb in ("get", "list") for path in ("/x", "/x/y", "/y")),
)


KINDS: Final = (
    *(ClusterRole, ClusterRole, ClusterRoleBinding, ClusterRoleBinding),
    *(Role, RoleBinding, RoleBinding, AggregationRule),
)


class Chooser:
    """Choices made by bytes; when they are used up, the first of everything."""

    def __init__(self, data: bytes) -> None:
        self._data = list(reversed(data))

    def __bool__(self) -> bool:
        return bool(self._data)

    def pick(self, among: Sequence[T]) -> T:
        return among[(self._data.pop() if self._data else 0) % len(among)]


def compare(data: bytes) -> None:
    """After any change to roles and bindings, all evaluators agree."""
    asyncio.run(_compare(Chooser(data)))


async def _compare(chosen: Chooser) -> None:
    async with policy_world() as here:
        warm = RBAC(ORCH, here.feed, here.offload)
        objects: dict[Any, Any] = {}
        for _ in range(MOST_STEPS):
            if not chosen:
                return
            thing = a_thing(chosen)
            key = (type(thing), thing.namespace, thing.name)
            if not chosen.pick((0, 0, 0, 1)):
                await here.put(thing)
                objects[key] = thing
            elif key in objects:
                await here.delete(thing)
                del objects[key]
            cold = RBAC(ORCH, here.feed, here.offload)
            try:
                await _agree(list(objects.values()), (warm, cold), a_rule(chosen))
            finally:
                cold.close()


async def _agree(objects: list[Any], evaluators: Iterable[RBAC], wanted: PolicyRule) -> None:
    for caller, evaluator in product(CALLERS, evaluators):
        for target in QUESTIONS:
            decision = await evaluator.authorize(caller, target)
            expected = plainly_allowed(objects, caller, target)
            assert decision.allowed is expected, (caller, target, objects)
        for namespace in ("", "ci"):
            if await evaluator.excess(caller, namespace, [wanted]):
                continue
            for target in QUESTIONS:
                # A rule about paths gives nothing inside of a namespace.
                counts = not namespace or target.namespace == namespace
                if counts and plainly_matches(wanted, target):
                    assert plainly_allowed(objects, caller, target), (caller, wanted, objects)


def a_thing(chosen: Chooser) -> Any:
    """A role or a binding."""
    kind = chosen.pick(KINDS)
    name = chosen.pick(NAMES)
    if kind is AggregationRule:
        selector = LabelSelector(match_labels={"to": "all"})
        rule = AggregationRule(cluster_role_selectors=(selector,))
        return ClusterRole(metadata=meta(name), aggregation_rule=rule)
    if kind in (Role, ClusterRole):
        rules = [a_rule(chosen) for _ in range(chosen.pick((1, 2, 0)))]
        if kind is Role:
            return a_role(chosen.pick(NAMESPACES), name, *rules)
        return a_cluster_role(name, *rules, **chosen.pick(({}, {"to": "all"})))
    subjects = [chosen.pick(SUBJECTS) for _ in range(chosen.pick((1, 2, 0)))]
    role = chosen.pick(NAMES)
    if kind is ClusterRoleBinding:
        return bound(name, role, *subjects)
    home, of = chosen.pick(NAMESPACES), chosen.pick(("Role", "ClusterRole"))
    return bound_in(home, name, role, *subjects, kind=of)


def a_rule(chosen: Chooser) -> PolicyRule:
    verbs = chosen.pick(VERBS)
    if chosen.pick((0, 0, 0, 1)):
        return PolicyRule(verbs=verbs, non_resource_urls=chosen.pick(PATHS))
    return PolicyRule(
        verbs=verbs,
        api_groups=chosen.pick(GROUPS),
        resources=chosen.pick(RESOURCES),
        resource_names=chosen.pick(OBJECTS),
    )


# -- the definition --------------------------------------------------------------------


def plainly_allowed(objects: list[Any], caller: UserInfo, target: Target) -> bool:
    """The definition of RBAC, without any index."""
    for binding in objects:
        everywhere = isinstance(binding, ClusterRoleBinding)
        inside = isinstance(binding, RoleBinding) and binding.namespace == target.namespace
        if not everywhere and not (inside and target.is_resource):
            continue
        reaches = any(_is(subject, binding.namespace, caller) for subject in binding.subjects)
        if reaches and any(plainly_matches(rule, target) for rule in _rules(binding, objects)):
            return True
    return False


def plainly_matches(rule: PolicyRule, target: Target) -> bool:
    if target.verb not in rule.verbs and "*" not in rule.verbs:
        return False
    if not target.is_resource:
        return any(
            target.path == pattern
            or (pattern[-1:] == "*" and target.path[: len(pattern) - 1] == pattern[:-1])
            for pattern in rule.non_resource_urls
        )
    fitting = {"*", target.resource}
    if target.subresource:
        fitting = {"*", f"{target.resource}/{target.subresource}", f"*/{target.subresource}"}
    return (
        bool({target.group, "*"} & set(rule.api_groups))
        and bool(fitting & set(rule.resources))
        and (not rule.resource_names or target.name in rule.resource_names)
    )


def _is(subject: Any, namespace: str, caller: UserInfo) -> bool:
    if subject.kind == "User":
        return bool(subject.name == caller.username)
    if subject.kind == "Group":
        return subject.name in caller.groups
    home = subject.namespace or namespace
    return bool(home) and caller.username == f"system:serviceaccount:{home}:{subject.name}"


def _rules(binding: Any, objects: list[Any]) -> Iterator[PolicyRule]:
    wanted, name = binding.role_ref.kind, binding.role_ref.name
    for one in objects:
        if type(one).__name__ != wanted or one.name != name:
            continue
        if isinstance(one, Role) and one.namespace != binding.namespace:
            continue
        gathers = isinstance(one, ClusterRole) and one.aggregation_rule is not None
        sources = [one]
        if gathers:
            sources = [
                each
                for each in objects
                if isinstance(each, ClusterRole) and each.metadata.labels.get("to") == "all"
            ]
        for source in sources:
            yield from source.rules or ()
