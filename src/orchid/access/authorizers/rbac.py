"""RBAC: a request is allowed if a role that the caller holds has a rule for it. Nothing denies.

Start with `RBAC.authorize`. How it decides, from what is cached to what is looked up:

    Grant     what is known of (caller, verb, resource, namespace): any name, some names, or none
    Bindings  every binding under each of its subjects, by namespace, kept current from the feed;
              bindings of other subjects are not looked at
    roles     looked up in the feed by name; aggregated ones are put together on demand

Grants are kept as long as no role and no binding changes, and no longer. They hold no object names
but those that rules name, so that a hundred thousand objects need no more room than one.

Who may write roles may hold as many rules as he likes. So the roles that reach a caller are picked
at the question (`Reached`), and if they are large, read and looked through in a thread.

`excess` and `rules_of` serve the escalation check (admission/role_escalation.py), `rules_for` the
SelfSubjectRulesReview. Only rules held through RBAC count there.
"""

import functools
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from orchid.access.cache_index import CacheIndex
from orchid.access.denial import joined
from orchid.access.policy.rules import (
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
from orchid.engine.offload import Offload
from orchid.engine.request import HEALTH_PAGES, Target
from orchid.kinds.role import ClusterRole, PolicyRule, Role, aggregate
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
from orchid.wire.label_selectors import LabelSelector, selects
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
AGGREGATION = b'"aggregationRule":'  # in the bytes of every role that gathers others
LEAST_OF_A_RULE = 50  # bytes in a stored role: no role has more rules than this allows
COST_OF_A_RULE = 8  # to look at one takes as long as these bytes of a body, at worst

Caller = tuple[str, tuple[str, ...]]  # a user name and its groups
Found = Entry[Role] | Entry[ClusterRole] | tuple[PolicyRule, ...]  # a role, or rules aggregated


class Held(NamedTuple):
    """A binding as one of its subjects sees it."""

    key: str
    title: str  # how a decision names it
    role: RoleRef
    namespace: str


class Reached(NamedTuple):
    """A role that reaches a caller, as it is at the question."""

    held: Held
    role: Found

    @property
    def rules(self) -> tuple[PolicyRule, ...]:
        return rules_in(self.role)


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

    def __init__(self, names: Naming, feed: Feed, offload: Offload) -> None:
        self._group = names.rbac
        self._feed = feed
        self._offload = offload
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
        if target.is_resource or not target.path.startswith(HEALTH_PAGES):
            # As fresh as a read: no right is found that was taken away before the question.
            await self._feed.fresh()
        generation = (
            self._roles.generation
            + self._cluster_roles.generation
            + self._role_bindings.generation
            + self._cluster_role_bindings.generation
        )  # each only counts up; what `_latest` gives, without a call in every request
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
            grant = self._known[caller][question]
        except KeyError:
            grant = await self._worked_out(caller, question)
        if grant.named:
            return grant.named.get(target.name, grant.otherwise)
        return grant.otherwise

    def rules_for(self, user: UserInfo, namespace: str) -> SubjectRulesReviewStatus:
        """List what a user may do in a namespace, as far as RBAC knows; not without end."""
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

    async def excess(self, user: UserInfo, namespace: str, wanted: Iterable[PolicyRule]) -> str:
        """Say which of the wanted rules a user does not hold; nothing if all are held."""
        self._catch_up()
        reached, problems = self._reaching((user.username, user.groups), namespace)
        rules = tuple(wanted)
        compared = most_rules(reached) * sum(1 + count_of_parts(rule) for rule in rules)
        return await self._offload(
            COST_OF_A_RULE * compared,
            functools.partial(told_excess, user, reached, rules, problems),
        )

    def close(self) -> None:
        for index in self._indexes:
            index.close()

    async def _worked_out(self, caller: Caller, question: tuple[str, ...]) -> Grant:
        is_path = len(question) == 2  # noqa: PLR2004 - a verb and a path
        reached, problems = self._reaching(caller, EVERYWHERE if is_path else question[-1])
        known = self._known
        grant = await self._offload(
            COST_OF_A_RULE * most_rules(reached),
            functools.partial(
                path_grant if is_path else resource_grant, reached, problems, *question
            ),
        )
        if self._known is known:  # otherwise a role or binding has changed meanwhile
            self._remember(caller, question, grant)
        return grant

    def _reaching(self, caller: Caller, namespace: str) -> tuple[list[Reached], list[str]]:
        """What a caller holds, cluster bindings first; and which of the roles are not there."""
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

    def _remember(self, caller: Caller, question: tuple[str, ...], grant: Grant) -> None:
        weight = ALLOWANCE + sum(map(len, question)) + sum(map(len, grant.named))
        if caller not in self._known:
            weight += ALLOWANCE + len(caller[0]) + sum(map(len, caller[1]))
        if self._remembered + weight > MOST_REMEMBERED:
            self._forget()
        if weight <= MOST_REMEMBERED:
            self._known.setdefault(caller, {})[question] = grant
            self._remembered += weight

    def _latest(self) -> int:
        """The generation of roles and bindings together, as they are now."""
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


def rules_in(role: Found) -> tuple[PolicyRule, ...]:
    """The rules of a role; to read them takes long if there are many."""
    return role if isinstance(role, tuple) else role.object.rules or ()


def most_rules(reached: Iterable[Reached]) -> int:
    """How many rules the roles have at most, found out without reading them."""
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


def told_excess(
    user: UserInfo, reached: list[Reached], wanted: tuple[PolicyRule, ...], problems: list[str]
) -> str:
    lacking = missing((rule for each in reached for rule in each.rules), wanted)
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
