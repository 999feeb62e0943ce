"""RBAC: a request is allowed if a role of the user has a rule for it. Nothing denies.

Start with `RBAC.authorize`. Its data, from cached to looked up:

    Grant     cached result for (user, verb, resource, namespace): any name, some names, or none
    Bindings  every binding under each of its subjects, by namespace, updated from the feed;
              bindings of other subjects are not examined
    roles     looked up in the feed by name; aggregated ones are computed on demand

The cache of grants is valid until a role or a binding changes. Grants hold no object names but
those in rules, so that a hundred thousand objects need no more memory than one.

Roles may have any number of rules. So the roles of a user are collected first (`Reached`), and if
they are large, decoded and evaluated in a thread.

`excess` and `rules_of` serve the escalation check (features/rights/policies/role_escalation.py),
`rules_for` the SelfSubjectRulesReview. Both only use rules from RBAC.
"""

import functools
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from orchid.features.rights.kinds.role import ClusterRole, Role, aggregate
from orchid.features.rights.kinds.role_binding import (
    GROUP,
    SERVICE_ACCOUNT,
    USER,
    ClusterRoleBinding,
    RoleBinding,
    RoleRef,
    Subject,
)
from orchid.features.rights.kinds.self_subject_rules_review import (
    NonResourceRule,
    ResourceRule,
    RuleLister,
    SubjectRulesReviewStatus,
)
from orchid.features.rights.rules import (
    allows_path,
    allows_resource,
    count_of_parts,
    missing,
    printed,
    quoted_list,
)
from orchid.kernel.access.cache_index import CacheIndex
from orchid.kernel.access.denial import joined
from orchid.kernel.base.scheduling.offload import Offload
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.cache.kind_cache import KindCache
from orchid.kernel.engine.interfaces import Authorizer, Decision, Verdict
from orchid.kernel.engine.request import HEALTH_PAGES, Target
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import PolicyRule
from orchid.kernel.wire.selectors.label_selectors import LabelSelector, selects
from orchid.kernel.wire.text import quote
from orchid.kernel.wire.user import UserInfo

EVERYWHERE = ""  # the namespace of a ClusterRoleBinding's grants

# Size of the cache in characters of its keys, with an allowance for the objects around them. A
# user with many different requests only evicts entries of others.
MOST_CACHED = 16_000_000
ALLOWANCE = 400
MOST_SHARED_ROLES = 10_000
MOST_LISTED = 5_000  # rules of one user in a SelfSubjectRulesReview
AGGREGATION = b'"aggregationRule":'  # in the bytes of every aggregated role
LEAST_OF_A_RULE = 50  # bytes of a stored role: an upper bound of the number of its rules
COST_OF_A_RULE = 8  # evaluating a rule takes as long as decoding these bytes of a body, at worst

Caller = tuple[str, tuple[str, ...]]  # a user name and its groups
Found = Entry[Role] | Entry[ClusterRole] | tuple[PolicyRule, ...]  # a role, or aggregated rules


class Held(NamedTuple):
    """A binding from the view of one of its subjects."""

    key: str
    title: str  # its name in a decision
    role: RoleRef
    namespace: str


class Reached(NamedTuple):
    """A role of a user, as it is at the time of the request."""

    held: Held
    role: Found

    @property
    def rules(self) -> tuple[PolicyRule, ...]:
        return rules_in(self.role)


class Grant(msgspec.Struct, frozen=True):
    """Permissions of a user for a resource in a namespace, for any object name."""

    otherwise: Decision  # for a name that is in no rule
    named: dict[str, Decision]


class Bindings:
    """Every binding under each of its subjects, by namespace."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str, str], dict[str, Held]] = {}
        self._entries: dict[str, tuple[tuple[str, str, str], ...]] = {}
        self._roles: dict[RoleRef, RoleRef] = {}  # bindings to one role share one object

    def put(self, key: str, binding: RoleBinding | ClusterRoleBinding | None) -> None:
        """Add or replace a binding; None removes it."""
        for holder in self._entries.pop(key, ()):
            held = self._held[holder]
            del held[key]
            if not held:
                del self._held[holder]
        if binding is not None:
            self._add(key, binding)

    def forget(self, prefix: str) -> None:
        """Remove all bindings of one kind."""
        for key in [key for key in self._entries if key.startswith(prefix)]:
            self.put(key, None)

    def of(self, caller: Caller, namespace: str) -> list[Held]:
        """The bindings of a user in one namespace, sorted by name."""
        username, groups = caller
        bindings = dict(self._held.get((USER, username, namespace), {}))
        for group in groups:
            for key, held in self._held.get((GROUP, group, namespace), {}).items():
                bindings.setdefault(key, held)
        return [bindings[key] for key in sorted(bindings)]

    def _add(self, key: str, binding: RoleBinding | ClusterRoleBinding) -> None:
        if len(self._roles) > MOST_SHARED_ROLES:
            self._roles.clear()
        role = self._roles.setdefault(binding.role_ref, binding.role_ref)
        holders: dict[tuple[str, str, str], None] = {}
        for subject in binding.subjects:
            holder = subject_key(subject, binding.namespace)
            if holder is None or holder in holders:
                continue
            holders[holder] = None
            held = Held(key, title_of(binding, subject), role, binding.namespace)
            self._held.setdefault(holder, {})[key] = held
        self._entries[key] = tuple(holders)


class RBAC:
    """Decide by roles and bindings; allow or have no opinion."""

    def __init__(self, naming: Naming, feed: Feed, offload: Offload) -> None:
        self._group = naming.rbac
        self._feed = feed
        self._offload = offload
        self._roles = feed.of(Role)
        self._cluster_roles = feed.of(ClusterRole)
        self._bindings = Bindings()
        self._grants: dict[Caller, dict[tuple[str, ...], Grant]] = {}
        self._cache_size = 0
        self._aggregated: dict[str, tuple[PolicyRule, ...]] = {}
        self._generation = -1  # of the roles and bindings in the index
        self._role_bindings = feed.of(RoleBinding)
        self._cluster_role_bindings = feed.of(ClusterRoleBinding)
        self._indexes: tuple[CacheIndex[Any], ...] = (
            CacheIndex(self._roles, self._role_changed, self._forget),
            CacheIndex(self._cluster_roles, self._cluster_role_changed, self._forget_roles),
            self._index_of(self._role_bindings),
            self._index_of(self._cluster_role_bindings),
        )

    async def authorize(self, user: UserInfo, target: Target) -> Decision:
        if target.is_resource or not target.path.startswith(HEALTH_PAGES):
            # As fresh as a read: no permission is used that was removed before the request.
            await self._feed.fresh_for_request()
        generation = self._latest()
        if generation != self._generation:
            self._catch_up()
            self._generation = generation
        caller = (user.username, user.groups)
        question: tuple[str, ...]
        if target.is_resource:
            question = (
                target.verb,
                target.group,
                target.resource,
                target.subresource,
                target.namespace,
            )
        else:
            question = (target.verb, target.path)
        try:
            grant = self._grants[caller][question]
        except KeyError:
            grant = await self._worked_out(caller, question)
        if grant.named:
            return grant.named.get(target.name, grant.otherwise)
        return grant.otherwise

    def rules_for(self, user: UserInfo, namespace: str) -> SubjectRulesReviewStatus:
        """The rules of a user in a namespace, as far as RBAC knows them; limited in number."""
        self._catch_up()
        reached, problems = self._reaching((user.username, user.groups), namespace)
        held = (rule for each in reached for rule in each.rules)
        rules = list(islice(held, MOST_LISTED))
        return SubjectRulesReviewStatus(
            resource_rules=tuple(
                ResourceRule(rule.verbs, rule.api_groups, rule.resources, rule.resource_names)
                for rule in rules
                if rule.resources
            ),
            non_resource_rules=tuple(
                NonResourceRule(rule.verbs, rule.non_resource_urls)
                for rule in rules
                if rule.non_resource_urls
            ),
            incomplete=next(held, None) is not None,
            evaluation_error=joined(problems),
        )

    def rules_of(self, role: RoleRef, namespace: str) -> tuple[PolicyRule, ...] | None:
        """The rules of a role as seen from a namespace; None if there is no such role."""
        found = self._role(role, namespace)
        return None if found is None else rules_in(found)

    async def excess(self, user: UserInfo, namespace: str, requested: Iterable[PolicyRule]) -> str:
        """The wanted rules that the user does not hold, as text; "" if all are held."""
        self._catch_up()
        reached, problems = self._reaching((user.username, user.groups), namespace)
        rules = tuple(requested)
        compared = most_rules(reached) * sum(1 + count_of_parts(rule) for rule in rules)
        return await self._offload(
            COST_OF_A_RULE * compared,
            functools.partial(excess_text, user, reached, rules, problems),
        )

    def close(self) -> None:
        for index in self._indexes:
            index.close()

    async def _worked_out(self, caller: Caller, question: tuple[str, ...]) -> Grant:
        is_path = len(question) == 2  # noqa: PLR2004 - a verb and a path
        reached, problems = self._reaching(caller, EVERYWHERE if is_path else question[-1])
        grants = self._grants
        grant = await self._offload(
            COST_OF_A_RULE * most_rules(reached),
            functools.partial(
                path_grant if is_path else resource_grant, reached, problems, *question
            ),
        )
        if self._grants is grants:  # otherwise a role or binding has changed meanwhile
            self._store_grant(caller, question, grant)
        return grant

    def _reaching(self, caller: Caller, namespace: str) -> tuple[list[Reached], list[str]]:
        """The roles of a user, cluster bindings first; and the names of missing roles."""
        bindings = self._bindings.of(caller, EVERYWHERE)
        if namespace != EVERYWHERE:
            bindings += self._bindings.of(caller, namespace)
        reached: list[Reached] = []
        problems: list[str] = []
        for held in bindings:
            role = self._role(held.role, held.namespace)
            if role is None:
                name = quote(held.role.name)
                problems.append(f"{held.role.kind.lower()}.{self._group} {name} not found")
            else:
                reached.append(Reached(held, role))
        return reached, problems

    def _role(self, role: RoleRef, namespace: str) -> Found | None:
        if role.kind != "ClusterRole":
            return self._roles.get(namespace, role.name)
        entry = self._cluster_roles.get("", role.name)
        if entry is None or AGGREGATION not in entry.tail or not entry.object.aggregation_rule:
            return entry
        rules = self._aggregated.get(role.name)
        if rules is None:
            rules = self._aggregated[role.name] = aggregate(entry.object, self._matching)
        return rules

    def _matching(self, selector: LabelSelector) -> Iterator[ClusterRole]:
        for entry in self._cluster_roles.scan():
            if selects(selector, entry.meta.labels):
                yield entry.object

    def _store_grant(self, caller: Caller, question: tuple[str, ...], grant: Grant) -> None:
        weight = ALLOWANCE + sum(map(len, question)) + sum(map(len, grant.named))
        if caller not in self._grants:
            weight += ALLOWANCE + len(caller[0]) + sum(map(len, caller[1]))
        if self._cache_size + weight > MOST_CACHED:
            self._forget()
        if weight <= MOST_CACHED:
            self._grants.setdefault(caller, {})[question] = grant
            self._cache_size += weight

    def _latest(self) -> int:
        """The generation of roles and bindings together; each of the four only increases."""
        return (
            self._roles.generation
            + self._cluster_roles.generation
            + self._role_bindings.generation
            + self._cluster_role_bindings.generation
        )

    def _catch_up(self) -> None:
        for index in self._indexes:
            index.catch_up()

    def _forget(self) -> None:
        self._grants = {}
        self._cache_size = 0

    def _forget_roles(self) -> None:
        self._aggregated = {}
        self._forget()

    def _role_changed(self, key: str, entry: Entry[Any] | None) -> None:
        self._forget()

    def _cluster_role_changed(self, key: str, entry: Entry[Any] | None) -> None:
        self._forget_roles()

    def _index_of(self, cache: KindCache[Any]) -> CacheIndex[Any]:
        def changed(key: str, entry: Entry[Any] | None) -> None:
            self._forget()
            self._bindings.put(key, entry.object if entry else None)

        def cleared() -> None:
            self._forget()
            self._bindings.forget(cache.kind.key_prefix)

        return CacheIndex(cache, changed, cleared)


def rules_in(role: Found) -> tuple[PolicyRule, ...]:
    """The rules of a role; slow if there are many."""
    return role if isinstance(role, tuple) else role.object.rules or ()


def most_rules(reached: Iterable[Reached]) -> int:
    """Upper bound of the number of rules, without decoding the roles."""
    return sum(
        len(role) if isinstance(role, tuple) else len(role.tail) // LEAST_OF_A_RULE
        for _, role in reached
    )


def path_grant(reached: list[Reached], problems: list[str], verb: str, path: str) -> Grant:
    for each in reached:
        if any(allows_path(rule, verb, path) for rule in each.rules):
            return Grant(allowed(each.held), {})
    return Grant(undecided(problems), {})


def resource_grant(  # noqa: PLR0917 - a question, spread out
    reached: list[Reached],
    problems: list[str],
    verb: str,
    group: str,
    resource: str,
    subresource: str,
    _namespace: str,
) -> Grant:
    named: dict[str, Decision] = {}
    for each in reached:
        for rule in each.rules:
            if not allows_resource(rule, verb, group, resource, subresource):
                continue
            decision = allowed(each.held)
            if not rule.resource_names:
                return Grant(decision, {})
            for name in rule.resource_names:
                named.setdefault(name, decision)
    return Grant(undecided(problems), named)


def excess_text(
    user: UserInfo, reached: list[Reached], requested: tuple[PolicyRule, ...], problems: list[str]
) -> str:
    lacking = missing((rule for each in reached for rule in each.rules), requested)
    if not lacking:
        return ""
    lines = "\n".join(sorted({printed(rule) for rule in lacking}))
    text = (
        f"user {quote(user.username)} (groups={quoted_list(user.groups)}) is attempting to "
        f"grant RBAC permissions not currently held:\n{lines}"
    )
    return f"{text}; resolution errors: [{joined(problems)}]" if problems else text


def subject_key(subject: Subject, namespace: str) -> tuple[str, str, str] | None:
    """The user or group name, and the namespace, under which a subject's binding is indexed."""
    if subject.kind in (USER, GROUP):
        return subject.kind, subject.name, namespace
    home = subject.namespace or namespace
    if subject.kind == SERVICE_ACCOUNT and home:
        return USER, f"system:serviceaccount:{home}:{subject.name}", namespace
    return None


def title_of(binding: RoleBinding | ClusterRoleBinding, subject: Subject) -> str:
    kind, name, who = "ClusterRoleBinding", binding.name, subject.name
    if isinstance(binding, RoleBinding):
        kind, name = "RoleBinding", f"{binding.name}/{binding.namespace}"
    if subject.kind == SERVICE_ACCOUNT:
        who = f"{subject.name}/{subject.namespace or binding.namespace}"
    role = binding.role_ref
    return f"{kind} {quote(name)} of {role.kind} {quote(role.name)} to {subject.kind} {quote(who)}"


def allowed(held: Held) -> Decision:
    return Decision(Verdict.ALLOW, f"RBAC: allowed by {held.title}")


def undecided(problems: list[str]) -> Decision:
    return Decision(Verdict.NO_OPINION, f"RBAC: {joined(problems)}" if problems else "")


_: type[Authorizer] = RBAC
__: type[RuleLister] = RBAC
