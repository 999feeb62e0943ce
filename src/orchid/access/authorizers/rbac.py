"""RBAC: a request is allowed if a role that the caller holds has a rule for it. Nothing denies.

Start with `RBAC.authorize`. How it decides, from what is cached to what is looked up:

    Grant     what is known of (caller, verb, resource, namespace): any name, some names, or none
    Bindings  every binding under each of its subjects, by namespace, kept current from the feed;
              bindings of other subjects are not looked at
    roles     looked up in the feed by name; aggregated ones are put together on demand

Grants are kept as long as no role and no binding changes, and no longer. They hold no object names
but those that rules name, so that a hundred thousand objects need no more room than one.

`excess` and `rules_of` serve the escalation check (admission/role_escalation.py), `rules_for` the
SelfSubjectRulesReview. Only rules held through RBAC count there.
"""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from orchid.access.cache_index import CacheIndex
from orchid.access.denial import joined
from orchid.access.rules import (
    allows_path,
    allows_resource,
    count_of_parts,
    missing,
    printed,
    quoted_list,
)
from orchid.engine.cache.entry import Entry
from orchid.engine.cache.feed import Feed
from orchid.engine.cache.kind_cache import KindCache
from orchid.engine.interfaces import Authorizer, Decision, Verdict
from orchid.engine.request import Target
from orchid.kinds.role import ClusterRole, LabelSelector, PolicyRule, Role, aggregate, selects
from orchid.kinds.role_binding import (
    GROUP,
    SERVICE_ACCOUNT,
    USER,
    ClusterRoleBinding,
    RoleBinding,
    RoleRef,
    Subject,
)
from orchid.kinds.self_subject_rules_review import (
    NonResourceRule,
    ResourceRule,
    RuleLister,
    SubjectRulesReviewStatus,
)
from orchid.wire.naming import Naming
from orchid.wire.text import quote
from orchid.wire.user import UserInfo

EVERYWHERE = ""  # the namespace of what a ClusterRoleBinding grants

# Characters of questions to remember, with an allowance for the objects around them. A caller who
# asks many different questions only pushes the answers for others out of the cache.
MOST_REMEMBERED = 16_000_000
ALLOWANCE = 400
MOST_SHARED_ROLES = 10_000
MOST_LISTED = 5_000  # rules of one user that are told
FEW_COMPARED = 2_000  # rules with rules, at a microsecond or two; more are compared in a thread

Caller = tuple[str, tuple[str, ...]]  # a user name and its groups


class Held(NamedTuple):
    """A binding as one of its subjects sees it."""

    key: str
    title: str  # how a decision names it
    role: RoleRef
    namespace: str


class Grant(msgspec.Struct, frozen=True):
    """What a caller may do to a resource in a namespace, whatever the object is called."""

    otherwise: Decision  # for a name that no rule names
    named: dict[str, Decision]


class Bindings:
    """Who holds what: every binding under each of its subjects, by namespace."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str, str], dict[str, Held]] = {}
        self._places: dict[str, tuple[tuple[str, str, str], ...]] = {}
        self._roles: dict[RoleRef, RoleRef] = {}  # bindings to one role share one object

    def put(self, key: str, binding: RoleBinding | ClusterRoleBinding | None) -> None:
        """Add or replace a binding; None removes it."""
        for place in self._places.pop(key, ()):
            held = self._held[place]
            del held[key]
            if not held:
                del self._held[place]
        if binding is not None:
            self._add(key, binding)

    def forget(self, prefix: str) -> None:
        """Forget every binding of one kind."""
        for key in [key for key in self._places if key.startswith(prefix)]:
            self.put(key, None)

    def of(self, caller: Caller, namespace: str) -> list[Held]:
        """The bindings that reach a caller in one namespace, in the order of their names."""
        username, groups = caller
        found = dict(self._held.get((USER, username, namespace), {}))
        for group in groups:
            for key, held in self._held.get((GROUP, group, namespace), {}).items():
                found.setdefault(key, held)
        return [found[key] for key in sorted(found)]

    def _add(self, key: str, binding: RoleBinding | ClusterRoleBinding) -> None:
        if len(self._roles) > MOST_SHARED_ROLES:
            self._roles.clear()
        role = self._roles.setdefault(binding.role_ref, binding.role_ref)
        places: dict[tuple[str, str, str], None] = {}
        for subject in binding.subjects:
            place = place_of(subject, binding.namespace)
            if place is None or place in places:
                continue
            places[place] = None
            held = Held(key, title_of(binding, subject), role, binding.namespace)
            self._held.setdefault(place, {})[key] = held
        self._places[key] = tuple(places)


class RBAC:
    """Decide by roles and bindings; allow or have no opinion."""

    def __init__(self, names: Naming, feed: Feed) -> None:
        self._group = names.rbac
        self._feed = feed
        self._roles = feed.of(Role)
        self._cluster_roles = feed.of(ClusterRole)
        self._bindings = Bindings()
        self._known: dict[Caller, dict[tuple[str, ...], Grant]] = {}
        self._remembered = 0
        self._aggregated: dict[str, tuple[PolicyRule, ...]] = {}
        self._generation = -1  # of roles and bindings together, as far as they are taken in
        self._role_bindings = feed.of(RoleBinding)
        self._cluster_role_bindings = feed.of(ClusterRoleBinding)
        self._indexes: tuple[CacheIndex[Any], ...] = (
            CacheIndex(self._roles, self._role_changed, self._forget),
            CacheIndex(self._cluster_roles, self._cluster_role_changed, self._forget_roles),
            self._index_of(self._role_bindings),
            self._index_of(self._cluster_role_bindings),
        )

    async def authorize(self, user: UserInfo, target: Target) -> Decision:
        if target.is_resource:
            # As fresh as a read: no right is found that was taken away before the question. Pages
            # (health, above all) must answer also while the store does not.
            await self._feed.fresh()
        generation = (
            self._roles.generation
            + self._cluster_roles.generation
            + self._role_bindings.generation
            + self._cluster_role_bindings.generation
        )
        if generation != self._generation:  # each only counts up
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
            grant = self._known[caller][question]
        except KeyError:
            grant = self._work_out(caller, question)
        if grant.named:
            return grant.named.get(target.name, grant.otherwise)
        return grant.otherwise

    def rules_for(self, user: UserInfo, namespace: str) -> SubjectRulesReviewStatus:
        """List what a user may do in a namespace, as far as RBAC knows; not without end."""
        held, problems = self._held_rules((user.username, user.groups), namespace)
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
        if role.kind == "ClusterRole":
            return self._cluster_rules(role.name)
        entry = self._roles.get(namespace, role.name)
        return None if entry is None else entry.object.rules or ()

    async def excess(self, user: UserInfo, namespace: str, wanted: Iterable[PolicyRule]) -> str:
        """Say which of the wanted rules a user does not hold; nothing if all are held."""
        found, problems = self._held_rules((user.username, user.groups), namespace)
        held, rules = list(found), tuple(wanted)
        if len(held) * sum(1 + count_of_parts(rule) for rule in rules) <= FEW_COMPARED:
            return told_excess(user, held, rules, problems)
        return await asyncio.to_thread(told_excess, user, held, rules, problems)

    def close(self) -> None:
        for index in self._indexes:
            index.close()

    def _work_out(self, caller: Caller, question: tuple[str, ...]) -> Grant:
        if len(question) == 2:  # noqa: PLR2004 - a verb and a path
            grant = self._path_grant(caller, *question)
        else:
            grant = self._resource_grant(caller, *question)
        self._remember(caller, question, grant)
        return grant

    def _path_grant(self, caller: Caller, verb: str, path: str) -> Grant:
        problems: list[str] = []
        for held, rules in self._reaching(caller, EVERYWHERE, problems):
            if any(allows_path(rule, verb, path) for rule in rules):
                return Grant(allowed(held), {})
        return Grant(undecided(problems), {})

    def _resource_grant(  # noqa: PLR0917 - a question, spread out
        self, caller: Caller, verb: str, group: str, resource: str, subresource: str, namespace: str
    ) -> Grant:
        problems: list[str] = []
        named: dict[str, Decision] = {}
        for held, rules in self._reaching(caller, namespace, problems):
            for rule in rules:
                if not allows_resource(rule, verb, group, resource, subresource):
                    continue
                if not rule.resource_names:
                    return Grant(allowed(held), {})
                decision = allowed(held)
                for name in rule.resource_names:
                    named.setdefault(name, decision)
        return Grant(undecided(problems), named)

    def _reaching(
        self, caller: Caller, namespace: str, problems: list[str]
    ) -> Iterator[tuple[Held, tuple[PolicyRule, ...]]]:
        """What a caller holds, cluster bindings first; roles that are not there become problems."""
        for held in self._bindings.of(caller, EVERYWHERE):
            yield from self._resolved(held, problems)
        if namespace != EVERYWHERE:
            for held in self._bindings.of(caller, namespace):
                yield from self._resolved(held, problems)

    def _resolved(
        self, held: Held, problems: list[str]
    ) -> Iterator[tuple[Held, tuple[PolicyRule, ...]]]:
        rules = self.rules_of(held.role, held.namespace)
        if rules is None:
            problems.append(
                f"{held.role.kind.lower()}.{self._group} {quote(held.role.name)} not found"
            )
        else:
            yield held, rules

    def _held_rules(self, caller: Caller, namespace: str) -> tuple[Iterator[PolicyRule], list[str]]:
        """The rules, and what was wrong on the way to them, once they are all read."""
        self._catch_up()
        problems: list[str] = []
        reaching = self._reaching(caller, namespace, problems)
        return (rule for _, rules in reaching for rule in rules), problems

    def _cluster_rules(self, name: str) -> tuple[PolicyRule, ...] | None:
        entry = self._cluster_roles.get("", name)
        if entry is None:
            return None
        role = entry.object
        if role.aggregation_rule is None:
            return role.rules or ()
        rules = self._aggregated.get(name)
        if rules is None:
            rules = self._aggregated[name] = aggregate(role, self._matching)
        return rules

    def _matching(self, selector: LabelSelector) -> Iterator[ClusterRole]:
        for entry in self._cluster_roles.scan():
            if selects(selector, entry.meta.labels):
                yield entry.object

    def _remember(self, caller: Caller, question: tuple[str, ...], grant: Grant) -> None:
        weight = ALLOWANCE + sum(map(len, question)) + sum(map(len, grant.named))
        if caller not in self._known:
            weight += ALLOWANCE + len(caller[0]) + sum(map(len, caller[1]))
        if self._remembered + weight > MOST_REMEMBERED:
            self._forget()
        if weight <= MOST_REMEMBERED:
            self._known.setdefault(caller, {})[question] = grant
            self._remembered += weight

    def _catch_up(self) -> None:
        for index in self._indexes:
            index.catch_up()

    def _forget(self) -> None:
        self._known = {}
        self._remembered = 0

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


def told_excess(
    user: UserInfo, held: list[PolicyRule], wanted: tuple[PolicyRule, ...], problems: list[str]
) -> str:
    lacking = missing(held, wanted)
    if not lacking:
        return ""
    lines = "\n".join(sorted({printed(rule) for rule in lacking}))
    text = (
        f"user {quote(user.username)} (groups={quoted_list(user.groups)}) is attempting to "
        f"grant RBAC permissions not currently held:\n{lines}"
    )
    return f"{text}; resolution errors: [{joined(problems)}]" if problems else text


def place_of(subject: Subject, namespace: str) -> tuple[str, str, str] | None:
    """Under which user or group name, and in which namespace, a subject's binding is kept."""
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
