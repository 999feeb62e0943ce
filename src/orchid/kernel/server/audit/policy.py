"""The audit policy: which requests are recorded, and at which level.

`load` parses the policy file strictly and raises `BadPolicy` with a message for its author;
`Policy.plan` returns the plan for one request. The first rule that matches decides; a request
without a matching rule is not recorded.

Rules match the authenticated user, not the impersonated one. Confidential kinds are never recorded
beyond `Metadata`, whatever a rule says: the kinds declare it, and trail.py checks it.
"""

import enum
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from orchid.kernel.engine.request import Target
from orchid.kernel.wire.codec import yaml_text
from orchid.kernel.wire.naming import SETS
from orchid.kernel.wire.text import field_problem
from orchid.kernel.wire.user import UserInfo

REQUEST_RECEIVED: Final = "RequestReceived"
RESPONSE_STARTED: Final = "ResponseStarted"
RESPONSE_COMPLETE: Final = "ResponseComplete"
PANIC: Final = "Panic"
STAGES: Final = (REQUEST_RECEIVED, RESPONSE_STARTED, RESPONSE_COMPLETE, PANIC)


class BadPolicy(ValueError):
    """An invalid policy; the message has the path and the reason."""


class AuditLevel(enum.IntEnum):
    """The level of detail; each level adds to the one before."""

    NONE = 0
    METADATA = 1
    REQUEST = 2
    REQUEST_RESPONSE = 3


LEVELS: Final = {
    "None": AuditLevel.NONE,
    "Metadata": AuditLevel.METADATA,
    "Request": AuditLevel.REQUEST,
    "RequestResponse": AuditLevel.REQUEST_RESPONSE,
}
LEVEL_NAMES: Final = tuple(LEVELS)  # by number


class Plan(NamedTuple):
    """The parts of one request to record."""

    level: AuditLevel
    omitted_stages: frozenset[str] = frozenset()
    omits_managed_fields: bool = False


NOTHING: Final = Plan(AuditLevel.NONE)
Matcher = Callable[[UserInfo | None, Target], bool]


class Policy:
    """The compiled rules: each a list of conditions, and the plan if all of them hold."""

    def __init__(self, rules: list[tuple[list[Matcher], Plan]]) -> None:
        self._rules = [(tuple(matchers), plan) for matchers, plan in rules]

    def plan(self, user: UserInfo | None, target: Target) -> Plan:
        """The plan for a request; `user` is None without authentication."""
        for matchers, plan in self._rules:
            for matches in matchers:
                if not matches(user, target):
                    break
            else:
                return plan
        return NOTHING


# --- the file -------------------------------------------------------------------------------------


class _Written(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The base of the types of the file; an unknown key is an error."""


class _Resources(_Written, frozen=True):
    group: str = ""
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()


class _Rule(_Written, frozen=True):
    level: str
    users: tuple[str, ...] = ()
    user_groups: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    resources: tuple[_Resources, ...] = ()
    namespaces: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = msgspec.field(default=(), name="nonResourceURLs")
    omit_stages: tuple[str, ...] = ()
    omit_managed_fields: bool | None = None


class _File(_Written, frozen=True):
    api_version: str
    kind: str
    rules: tuple[_Rule, ...]
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    omit_stages: tuple[str, ...] = ()
    omit_managed_fields: bool = False


def load(path: Path) -> Policy:
    """The policy in a file."""
    try:
        text = path.read_bytes()
    except OSError as problem:
        raise BadPolicy(f"{path}: {problem.strerror}") from None
    try:
        return parse(text)
    except BadPolicy as problem:
        raise BadPolicy(f"{path}: {problem}") from None


def parse(text: bytes) -> Policy:
    """The policy in a text, YAML or JSON."""
    try:
        value, repeated = yaml_text.load_only(text)
    except yaml_text.YamlError as problem:
        raise BadPolicy(str(problem)) from None
    if repeated:
        raise BadPolicy(f"key {repeated[0]!r} occurs twice")
    try:
        written = msgspec.convert(value, _File)
    except msgspec.ValidationError as problem:
        raise BadPolicy(field_problem(str(problem))) from None
    _check_type(written)
    _check_stages("omitStages", written.omit_stages)
    if not written.rules:
        raise BadPolicy("rules: at least one is needed, or nothing would be recorded")
    return Policy([_compiled(written, rule, index) for index, rule in enumerate(written.rules)])


def _check_type(written: _File) -> None:
    api_versions = [f"{naming.audit}/v1" for naming in SETS.values()]
    if written.kind != "Policy" or written.api_version not in api_versions:
        raise BadPolicy(
            f"a Policy of {' or '.join(api_versions)} is expected, "
            f"not {written.kind!r} of {written.api_version!r}"
        )


def _check_stages(path: str, stages: tuple[str, ...]) -> None:
    for stage in stages:
        if stage not in STAGES:
            raise BadPolicy(f"{path}: {stage!r} is none of {', '.join(STAGES)}")


def _compiled(written: _File, rule: _Rule, index: int) -> tuple[list[Matcher], Plan]:
    path = f"rules[{index}]"
    _check_rule(rule, path)
    omits = rule.omit_managed_fields
    plan = Plan(
        LEVELS[rule.level],
        frozenset(written.omit_stages + rule.omit_stages),
        written.omit_managed_fields if omits is None else omits,
    )
    return _matchers(rule), plan


def _check_rule(rule: _Rule, path: str) -> None:
    if rule.level not in LEVELS:
        raise BadPolicy(f"{path}.level: {rule.level!r} is none of {', '.join(LEVELS)}")
    _check_stages(f"{path}.omitStages", rule.omit_stages)
    if rule.non_resource_urls and (rule.resources or rule.namespaces):
        raise BadPolicy(
            f"{path}.nonResourceURLs: a rule is for resources or for other URLs, not for both"
        )
    for url in rule.non_resource_urls:
        if url != "*" and not (url.startswith("/") and "*" not in url[:-1]):
            raise BadPolicy(
                f"{path}.nonResourceURLs: {url!r} must be '*' or begin with '/', "
                "with '*' only at its end"
            )
    for number, resources in enumerate(rule.resources):
        if resources.resource_names and not resources.resources:
            raise BadPolicy(f"{path}.resources[{number}].resourceNames: resources are needed too")
        if "/" in resources.group:
            raise BadPolicy(
                f"{path}.resources[{number}].group: {resources.group!r} must be a group alone, "
                "without its version"
            )


# --- conditions of a rule -------------------------------------------------------------------------


def _matchers(rule: _Rule) -> list[Matcher]:
    matchers: list[Matcher] = []
    if rule.verbs:
        matchers.append(_verb_in(frozenset(rule.verbs)))
    if rule.users:
        matchers.append(_user_in(frozenset(rule.users)))
    if rule.user_groups:
        matchers.append(_group_in(frozenset(rule.user_groups)))
    if rule.namespaces:
        matchers.append(_namespace_in(frozenset(rule.namespaces)))
    if rule.resources:
        matchers.append(_resource_in(rule.resources))
    if rule.non_resource_urls:
        matchers.append(_path_in(rule.non_resource_urls))
    return matchers


def _verb_in(verbs: frozenset[str]) -> Matcher:
    return lambda user, target: target.verb in verbs


def _user_in(users: frozenset[str]) -> Matcher:
    return lambda user, target: user is not None and user.username in users


def _group_in(groups: frozenset[str]) -> Matcher:
    return lambda user, target: user is not None and not groups.isdisjoint(user.groups)


def _namespace_in(namespaces: frozenset[str]) -> Matcher:
    return lambda user, target: target.is_resource and target.namespace in namespaces


def _resource_in(wanted: tuple[_Resources, ...]) -> Matcher:
    def matches(user: UserInfo | None, target: Target) -> bool:
        return target.is_resource and any(_fits(one, target) for one in wanted)

    return matches


def _fits(resources: _Resources, target: Target) -> bool:
    if resources.group not in ("*", target.group):
        return False
    if resources.resource_names and target.name not in resources.resource_names:
        return False
    patterns = resources.resources
    return not patterns or any(_fits_pattern(pattern, target) for pattern in patterns)


def _fits_pattern(pattern: str, target: Target) -> bool:
    """`pods`, `pods/log`, `pods/*` (with the Pods themselves), `*/status`, `*`."""
    if pattern in ("*", target.full_resource):
        return True
    resource, _, subresource = pattern.partition("/")
    if subresource == "*":
        return resource == target.resource
    return resource == "*" and bool(subresource) and subresource == target.subresource


def _path_in(patterns: tuple[str, ...]) -> Matcher:
    exact = frozenset(pattern for pattern in patterns if not pattern.endswith("*"))
    prefixes = tuple(pattern[:-1] for pattern in patterns if pattern.endswith("*"))

    def matches(user: UserInfo | None, target: Target) -> bool:
        if target.is_resource:
            return False
        return target.path in exact or target.path.startswith(prefixes)

    return matches
