"""Role and ClusterRole: rules that permit verbs, without subjects.

A Role applies in its namespace, a ClusterRole wherever it is bound. A
ClusterRole with an `aggregationRule` has the rules of all roles that its selectors match.
`aggregate` computes them; the evaluator calls it on read, so that a new role takes effect without
a delay, whatever is stored in `rules`.

Subjects are in role_binding.py. That users cannot grant more rights than they hold is an admission
question: see features/rights/policies/role_escalation.py.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Annotated, TypeVar

from orchid.kernel.engine.kind import Column, Kind, Scope
from orchid.kernel.engine.request import Request
from orchid.kernel.engine.strategy import Strategy
from orchid.kernel.wire.fields import FieldError, Path, invalid, required, too_many
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import PolicyRule
from orchid.kernel.wire.rules.names import path_segment_errors
from orchid.kernel.wire.selectors.label_selectors import (
    LabelSelector,
    conditions_of,
    selector_errors,
)
from orchid.kernel.wire.struct import Wire, always, describe, null, proto, replace
from orchid.kernel.wire.text import timestamp

RULES = Path() / "rules"
SELECTORS = Path() / "aggregationRule" / "clusterRoleSelectors"

# Limits of an aggregationRule; all of it is evaluated for every role whenever a role changes.
MOST_CONDITIONS = 200


class AggregationRule(Wire):
    """Selectors of the roles whose rules are aggregated."""

    cluster_role_selectors: Annotated[
        tuple[LabelSelector, ...], proto(1), describe("The selectors; one match suffices.")
    ] = ()


class Role(Object):
    """Permissions in one namespace."""

    rules: Annotated[tuple[PolicyRule, ...] | None, proto(2), describe("The rules.")] = always(null)


class ClusterRole(Object):
    """Permissions in all namespaces or on cluster-scoped resources."""

    rules: Annotated[tuple[PolicyRule, ...] | None, proto(2), describe("The rules.")] = always(null)
    aggregation_rule: Annotated[
        AggregationRule | None,
        proto(3),
        describe("Aggregate the rules of other roles; the server then maintains `rules`."),
    ] = None


R = TypeVar("R", Role, ClusterRole)


class StoredRules(Strategy[R]):
    """Empty rules are stored as null, also if an empty list was sent and is owned by its sender."""

    def prepare_for_create(self, new: R, request: Request) -> R:
        return replace(new, rules=None) if new.rules == () else new

    def prepare_for_update(self, new: R, old: R, request: Request) -> R:
        return self.prepare_for_create(new, request)


class RoleRules(StoredRules[Role]):
    def name_errors(self, name: str, prefix: bool) -> Iterable[str]:
        return path_segment_errors(name, prefix)

    def validate(self, new: Role) -> Iterator[FieldError]:
        yield from rules_errors(new.rules or (), namespaced=True)


class ClusterRoleRules(StoredRules[ClusterRole]):
    def name_errors(self, name: str, prefix: bool) -> Iterable[str]:
        return path_segment_errors(name, prefix)

    def validate(self, new: ClusterRole) -> Iterator[FieldError]:
        yield from rules_errors(new.rules or (), namespaced=False)
        if new.aggregation_rule is not None:
            yield from aggregation_errors(new.aggregation_rule)


def declare(naming: Naming) -> tuple[Kind[Role], Kind[ClusterRole]]:
    role = Kind(
        type=Role,
        group=naming.rbac,
        version="v1",
        known_versions=("v1alpha1", "v1beta1"),
        plural="roles",
        scope=Scope.NAMESPACED,
        creates_on_update=True,
        rules=RoleRules(),
        columns=COLUMNS,
    )
    cluster_role = Kind(
        type=ClusterRole,
        group=naming.rbac,
        version="v1",
        known_versions=("v1alpha1", "v1beta1"),
        plural="clusterroles",
        scope=Scope.CLUSTER,
        creates_on_update=True,
        rules=ClusterRoleRules(),
        columns=COLUMNS,
    )
    return role, cluster_role


def created(role: Object, now: datetime) -> str:
    moment = role.metadata.creation_timestamp
    return timestamp(moment) if moment else ""


COLUMNS = (
    Column("Name", lambda role, now: role.name, format="name", description="The role's name."),
    Column("Created At", created, type="date", description="When the role was created."),
)


def rules_errors(rules: tuple[PolicyRule, ...], *, namespaced: bool) -> Iterator[FieldError]:
    for index, rule in enumerate(rules):
        yield from rule_errors(rule, RULES[index], namespaced)


def rule_errors(rule: PolicyRule, path: Path, namespaced: bool) -> Iterator[FieldError]:
    if not rule.verbs:
        yield required(path / "verbs", "verbs must contain at least one value")
    if rule.non_resource_urls:
        yield from url_errors(rule, path / "nonResourceURLs", namespaced)
        return
    if not rule.api_groups:
        yield required(path / "apiGroups", "resource rules must supply at least one api group")
    if not rule.resources:
        yield required(path / "resources", "resource rules must supply at least one resource")


def url_errors(rule: PolicyRule, path: Path, namespaced: bool) -> Iterator[FieldError]:
    if namespaced:
        text = "namespaced rules cannot apply to non-resource URLs"
        yield invalid(path, rule.non_resource_urls, text)
    if rule.api_groups or rule.resources or rule.resource_names:
        text = "rules cannot apply to both regular resources and non-resource URLs"
        yield invalid(path, rule.non_resource_urls, text)


def aggregation_errors(rule: AggregationRule) -> Iterator[FieldError]:
    if not rule.cluster_role_selectors:
        text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        yield required(SELECTORS, text)
    count = sum(map(conditions_of, rule.cluster_role_selectors))
    if count > MOST_CONDITIONS:
        yield too_many(SELECTORS, count, MOST_CONDITIONS)
        return
    for index, selector in enumerate(rule.cluster_role_selectors):
        path = SELECTORS[index]
        errors = list(selector_errors(selector, path))
        yield from errors
        if errors:
            yield invalid(path, None, "invalid label selector.")


def aggregate(
    role: ClusterRole, matching: Callable[[LabelSelector], Iterable[ClusterRole]]
) -> tuple[PolicyRule, ...]:
    """Rules of an aggregated role: those of every role it reaches, without duplicates.

    `matching` returns the roles of a selector, sorted by name. Roles that aggregate each other in a
    circle all get the same rules.
    """
    gathered: dict[PolicyRule, None] = {}
    reached, waiting = {role.name}, [role]
    while waiting:
        for member in _selected(waiting.pop(), matching):
            if member.name in reached:
                continue
            reached.add(member.name)
            if member.aggregation_rule is not None:
                waiting.append(member)
            else:
                gathered.update(dict.fromkeys(member.rules or ()))
    return tuple(gathered)


def _selected(
    role: ClusterRole, matching: Callable[[LabelSelector], Iterable[ClusterRole]]
) -> Iterator[ClusterRole]:
    if role.aggregation_rule is not None:
        for selector in role.aggregation_rule.cluster_role_selectors:
            yield from matching(selector)
