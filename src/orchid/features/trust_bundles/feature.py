"""Trust bundles: published to namespaces, and below /trust/ to any client.

Kinds      ClusterTrustBundle, PublishedBundle
Pages      /trust/
Uses       objects, approval, accounts, authorities
Read first pages.py
"""

from orchid.features.trust_bundles import server as trust_server
from orchid.features.trust_bundles.controllers import (
    publish_bundles,
    publish_root_ca,
    publish_trust_bundles,
)
from orchid.features.trust_bundles.kinds import cluster_trust_bundle, published_bundle
from orchid.features.trust_bundles.roles import roles
from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="trust_bundles",
    kinds=(cluster_trust_bundle.declare, published_bundle.declare),
    controllers=(
        publish_bundles.CONTROLLER,
        publish_root_ca.CONTROLLER,
        publish_trust_bundles.CONTROLLER,
    ),
    identities=(trust_server.IDENTITY,),
    roles=roles,
    documentation="trust.md",
)
