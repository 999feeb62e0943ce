"""Functions on policy rules: what a rule allows, what it covers, and its text.

`allows_resource` and `allows_path` check one request. `missing` compares rules: which of the wanted
ones are not covered by the held ones. The escalation check and the reconciliation of the bootstrap
roles use it.

Nothing here knows the holders of a rule: see features/rights/authorizers/rbac.py.
"""

from collections.abc import Collection, Iterable, Iterator

from orchid.kernel.wire.policy_rules import ALL, PolicyRule
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.text import quote

# A rule of a few kilobytes can have billions of parts. Beyond this number the rest counts as not
# held unless a single rule covers it: refusing is safe, counting for minutes is not.
MOST_PARTS = 4096
# Limit of comparisons, for the same reason: about a second, in a thread.
MOST_COMPARED = 500_000


def allows_resource(
    rule: PolicyRule, verb: str, group: str, resource: str, subresource: str
) -> bool:
    """Whether a rule allows the verb on the resource, for any name."""
    return (
        (verb in rule.verbs or ALL in rule.verbs)
        and (group in rule.api_groups or ALL in rule.api_groups)
        and names_resource(rule.resources, resource, subresource)
    )


def names_resource(resources: Collection[str], resource: str, subresource: str) -> bool:
    if ALL in resources:
        return True
    if not subresource:
        return resource in resources
    return f"{resource}/{subresource}" in resources or f"*/{subresource}" in resources


def allows_name(rule: PolicyRule, name: str) -> bool:
    return not rule.resource_names or name in rule.resource_names


def allows_path(rule: PolicyRule, verb: str, path: str) -> bool:
    return (verb in rule.verbs or ALL in rule.verbs) and any(
        path_matches(pattern, path) for pattern in rule.non_resource_urls
    )


def path_matches(pattern: str, path: str) -> bool:
    return pattern == path or (pattern.endswith(ALL) and path.startswith(pattern.rstrip(ALL)))


def missing(held: Iterable[PolicyRule], requested: Iterable[PolicyRule]) -> tuple[PolicyRule, ...]:
    """The parts of the wanted rules that no held rule covers, combined where possible."""
    holding = _Holding(held)
    lacking: list[PolicyRule] = []
    room = MOST_PARTS
    for rule in requested:
        if holding.covers(rule):
            continue
        if count_of_parts(rule) > room:
            lacking.append(rule)
            continue
        room -= count_of_parts(rule)
        lacking += (part for part in broken_down(rule) if not holding.covers(part))
    return compact(lacking)


class _Holding:
    """Held rules without duplicates, the widest first."""

    def __init__(self, rules: Iterable[PolicyRule]) -> None:
        self._rules = sorted(dict.fromkeys(rules), key=_narrowness)
        self._left = MOST_COMPARED

    def covers(self, requested: PolicyRule) -> bool:
        for own in self._rules:
            if not self._left:
                return False
            self._left -= 1
            if covers(own, requested):
                return True
        return False


def _narrowness(rule: PolicyRule) -> int:
    return sum(ALL not in values for values in (rule.verbs, rule.api_groups, rule.resources))


def count_of_parts(rule: PolicyRule) -> int:
    resources = len(rule.api_groups) * len(rule.resources) * max(len(rule.resource_names), 1)
    return len(rule.verbs) * (resources + len(rule.non_resource_urls))


def broken_down(rule: PolicyRule) -> Iterator[PolicyRule]:
    """A rule as rules of one verb on one resource (and one name, if it has names) or one path."""
    for group in rule.api_groups:
        for resource in rule.resources:
            for verb in rule.verbs:
                part = PolicyRule(verbs=(verb,), api_groups=(group,), resources=(resource,))
                if not rule.resource_names:
                    yield part
                for name in rule.resource_names:
                    yield replace(part, resource_names=(name,))
    for path in rule.non_resource_urls:
        for verb in rule.verbs:
            yield PolicyRule(verbs=(verb,), non_resource_urls=(path,))


def covers(own: PolicyRule, part: PolicyRule) -> bool:
    """Whether one rule covers another."""
    return (
        contains(own.verbs, part.verbs)
        and contains(own.api_groups, part.api_groups)
        and covers_resources(own.resources, part.resources)
        and all(covers_path(own.non_resource_urls, path) for path in part.non_resource_urls)
        and covers_names(own.resource_names, part.resource_names)
    )


def contains(own: Collection[str], wanted: Collection[str]) -> bool:
    return ALL in own or frozenset(own).issuperset(wanted)


def covers_resources(own: Collection[str], requested: Collection[str]) -> bool:
    if contains(own, requested):
        return True
    resources = frozenset(own)
    for resource in requested:
        _, slash, subresource = resource.partition("/")
        if resource not in resources and not (slash and f"*/{subresource}" in resources):
            return False
    return True


def covers_path(own: Iterable[str], wanted: str) -> bool:
    return any(path_matches(pattern, wanted) for pattern in own)


def covers_names(own: Collection[str], wanted: Collection[str]) -> bool:
    if not own:
        return True
    return bool(wanted) and frozenset(own).issuperset(wanted)


def compact(parts: Iterable[PolicyRule]) -> tuple[PolicyRule, ...]:
    """Combine the verbs of parts that are otherwise equal; paths stay separate."""
    gathered: dict[PolicyRule, dict[str, None]] = {}
    for part in parts:
        key = part if part.non_resource_urls else replace(part, verbs=())
        gathered.setdefault(key, {}).update(dict.fromkeys(part.verbs))
    return tuple(replace(key, verbs=tuple(verbs)) for key, verbs in gathered.items())


def printed(rule: PolicyRule) -> str:
    """A rule on one line, for an error: `{APIGroups:[""], Resources:["pods"], ...}`."""
    members = (
        ("APIGroups", rule.api_groups),
        ("Resources", rule.resources),
        ("NonResourceURLs", rule.non_resource_urls),
        ("ResourceNames", rule.resource_names),
        ("Verbs", rule.verbs),
    )
    shown = (f"{name}:{quoted_list(values)}" for name, values in members if values)
    return "{" + ", ".join(shown) + "}"


def quoted_list(values: Iterable[str]) -> str:
    return "[" + " ".join(quote(value) for value in values) + "]"
