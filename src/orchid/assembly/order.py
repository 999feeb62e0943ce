"""Orders that differ from that of the features, as values, each with its reason."""

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from orchid.kernel.feature import Feature

T = TypeVar("T")

# Admission: first what completes an object and what a namespace must have, then the rules by kind.
# The first refusal is the answer, so that this order is what clients see. New ones come last.
POLICIES: Final = (
    "NamespaceLifecycle",  # first: nothing else is said about a namespace that does not exist
    "PodAccount",
    "NodeRestriction",
    "BoundObject",
    "RoleEscalation",
    "OwnerPermission",
    "UnsealedKeys",
    "SignerPermission",
    "FourEyes",
    "RevokedRequesters",
    "KeptApprovals",
    "OwnSigners",
    "AuthorityNames",
    "AuthorityDependents",
    "SubjectRestriction",
    "PolicyForecast",
    "RecordIssued",  # after all rules about the request: it only records
    "RevokedKeys",
    "SigningKeyMaterial",  # before the steps: they need the key
    "SigningKeyChains",
    "SigningKeySteps",
    "RevocationPermission",
    "ExchangePolicyAuthors",
    "ClusterRecords",
    "ClusterRevocation",
)

# Bearer tokens: most are of accounts, so that their authenticator is asked first.
TOKENS: Final = ("accounts",)

# A start: a server that cannot read its Secrets, or would forget a revocation, writes nothing;
# roles need namespaces and accounts, and the authority of the platform needs token keys.
PREPARE: Final = (
    "sealing", "revoking", "objects", "accounts", "rights", "token_keys", "certificates",
)  # fmt: skip


def policies(built: Iterable[T]) -> list[T]:
    """Policies in the order of POLICIES."""
    place = {name: number for number, name in enumerate(POLICIES)}
    return sorted(built, key=lambda policy: place.get(type(policy).__name__, len(place)))


def by_name(features: Iterable[Feature], first: Sequence[str]) -> list[Feature]:
    """The features, those that are named first."""
    place = {name: number for number, name in enumerate(first)}
    return sorted(features, key=lambda feature: place.get(feature.name, len(place)))
