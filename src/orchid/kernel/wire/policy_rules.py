"""PolicyRule: verbs on resources or paths, as roles list them and controllers ask for them.

The kinds that have rules are in features/rights/kinds/role.py; the evaluator is
features/rights/authorizers/rbac.py.
"""

from collections.abc import Iterable
from typing import Annotated

from msgspec import field

from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.struct import Wire, always, describe, proto

ALL = "*"  # any verb, any group, any resource, any path
CORE = ""  # the group without a name
READ = ("get", "list", "watch")
WRITE = ("create", "delete", "deletecollection", "patch", "update")


class PolicyRule(Wire):
    """Verbs on resources, or verbs on non-resource paths; never both."""

    published_as = "rbac.v1.PolicyRule"

    verbs: Annotated[tuple[str, ...], proto(1), describe("The verbs; `*` means all.")] = always(
        lambda: ()
    )
    api_groups: Annotated[
        tuple[str, ...],
        proto(2),
        describe('The groups of the resources; "" is the core group.'),
    ] = ()
    resources: Annotated[
        tuple[str, ...], proto(3), describe("The resources, as `plural` or `plural/subresource`.")
    ] = ()
    resource_names: Annotated[
        tuple[str, ...], proto(4), describe("Only objects of these names; if empty, any.")
    ] = ()
    non_resource_urls: Annotated[
        tuple[str, ...],
        proto(5),
        describe("Non-resource paths; a final `*` matches any suffix."),
    ] = field(default=(), name="nonResourceURLs")


FULL_AUTHORITY = (
    PolicyRule(verbs=(ALL,), api_groups=(ALL,), resources=(ALL,)),
    PolicyRule(verbs=(ALL,), non_resource_urls=(ALL,)),
)


def rule(
    verbs: Iterable[str], group: str | Iterable[str], resources: Iterable[str], *called: str
) -> PolicyRule:
    """A rule on resources, with sorted lists."""
    return PolicyRule(
        verbs=tuple(sorted(verbs)),
        api_groups=(group,) if isinstance(group, str) else tuple(sorted(group)),
        resources=tuple(sorted(resources)),
        resource_names=tuple(sorted(called)),
    )


def may_record_events(naming: Naming) -> PolicyRule:
    return rule(("create", "patch", "update"), (CORE, naming.events), ("events",))
