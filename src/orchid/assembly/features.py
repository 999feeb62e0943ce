"""The features of this server: a new one is a folder of features/ and one line here.

The order is that of docs/architecture.md: a feature may use those before it.
"""

from typing import Final

from orchid.features.accounts import feature as accounts
from orchid.features.acme import feature as acme
from orchid.features.approval import feature as approval
from orchid.features.approving import feature as approving
from orchid.features.authorities import feature as authorities
from orchid.features.certificates import feature as certificates
from orchid.features.clusters import feature as clusters
from orchid.features.console import feature as console
from orchid.features.exchange import feature as exchange
from orchid.features.hosts import feature as hosts
from orchid.features.introspection import feature as introspection
from orchid.features.ledger import feature as ledger
from orchid.features.nodes import feature as nodes
from orchid.features.notices import feature as notices
from orchid.features.objects import feature as objects
from orchid.features.revocation import feature as revocation
from orchid.features.revoking import feature as revoking
from orchid.features.rights import feature as rights
from orchid.features.sealing import feature as sealing
from orchid.features.sign_in import feature as sign_in
from orchid.features.token_keys import feature as token_keys
from orchid.features.trust_bundles import feature as trust_bundles
from orchid.kernel.feature import Feature
from orchid.kernel.runtime.declaration import ComponentIdentity, ControllerDeclaration

FEATURES: Final[tuple[Feature, ...]] = (
    sealing.FEATURE,
    ledger.FEATURE,
    rights.FEATURE,
    objects.FEATURE,
    revocation.FEATURE,
    sign_in.FEATURE,
    token_keys.FEATURE,
    approval.FEATURE,
    accounts.FEATURE,
    trust_bundles.FEATURE,
    authorities.FEATURE,
    certificates.FEATURE,
    nodes.FEATURE,
    introspection.FEATURE,
    exchange.FEATURE,
    revoking.FEATURE,
    acme.FEATURE,
    hosts.FEATURE,
    approving.FEATURE,
    clusters.FEATURE,
    notices.FEATURE,
    console.FEATURE,
)
CONTROLLERS: Final[tuple[ControllerDeclaration, ...]] = tuple(
    controller for feature in FEATURES for controller in feature.controllers
)
# All components that use the API with an account of their own.
IDENTITIES: Final[tuple[ComponentIdentity, ...]] = (
    *CONTROLLERS,
    *(identity for feature in FEATURES for identity in feature.identities),
)
