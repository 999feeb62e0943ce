"""DefaultRole: what a feature adds to the roles that every server starts with.

Several features may add rules to the same role. features/rights/bootstrap.py joins them.
"""

from typing import Final

import msgspec

from orchid.kernel.wire.policy_rules import PolicyRule
from orchid.kernel.wire.user import AUTHENTICATED, UNAUTHENTICATED

# What the roles `view`, `edit` and `admin` consist of; `edit` includes `view`, `admin` both.
AGGREGATED: Final = "system:aggregate-to-"
VIEW: Final = f"{AGGREGATED}view"
EDIT: Final = f"{AGGREGATED}edit"
ADMIN: Final = f"{AGGREGATED}admin"
DELEGATOR: Final = "system:auth-delegator"  # servers that ask this one about their callers
OAUTH: Final = "system:oauth-client"
# For people who request certificates, and who look up what was issued and revoked.
REQUESTER: Final = "certificate-requester"
INVENTORY: Final = "certificate-inventory-viewer"
FETCH: Final = ("get", "head")
EVERYBODY: Final = (AUTHENTICATED, UNAUTHENTICATED)


class DefaultRole(msgspec.Struct, frozen=True):
    """A ClusterRole, or the part of it that one feature declares."""

    name: str
    rules: tuple[PolicyRule, ...]
    groups: tuple[str, ...] | None = None  # with the role; None: there is no binding


def urls(*paths: str, verbs: tuple[str, ...] = ("get",)) -> PolicyRule:
    return PolicyRule(verbs=verbs, non_resource_urls=tuple(sorted(paths)))


def public(name: str, *rules: PolicyRule) -> DefaultRole:
    """A role of everybody, for pages that need no credentials."""
    return DefaultRole(name, rules, EVERYBODY)
