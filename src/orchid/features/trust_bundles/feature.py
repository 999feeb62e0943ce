"""Trust bundles: published to namespaces, and below /trust/ to any client.

Kinds      ClusterTrustBundle, PublishedBundle
Pages      /trust/
Uses       objects, approval, accounts, authorities
Read first pages.py
"""

from collections.abc import Iterable

from orchid.features.trust_bundles import pages
from orchid.features.trust_bundles.controllers import (
    publish_bundles,
    publish_root_ca,
    publish_trust_bundles,
)
from orchid.features.trust_bundles.kinds import cluster_trust_bundle, published_bundle
from orchid.features.trust_bundles.roles import roles
from orchid.features.trust_bundles.server import IDENTITY, TrustServer
from orchid.kernel.context import Context, ServerPart
from orchid.kernel.feature import Background, Feature


def _background(context: Context, controls: bool) -> Iterable[Background]:
    server = context.port(TrustServer)
    yield Background(run=server.run, stopping=server.stop_waiting, leave=server.consumers.write)


FEATURE = Feature(
    name="trust_bundles",
    kinds=(cluster_trust_bundle.declare, published_bundle.declare),
    controllers=(
        publish_bundles.CONTROLLER,
        publish_root_ca.CONTROLLER,
        publish_trust_bundles.CONTROLLER,
    ),
    identities=(IDENTITY,),
    roles=roles,
    provides=(
        ServerPart(
            TrustServer,
            lambda context: TrustServer(
                context.clients(IDENTITY.name), context.naming, context.clock
            ),
        ),
    ),
    pages=lambda context: {pages.PREFIX: context.port(TrustServer).pages},
    metrics=lambda context: context.port(TrustServer).metrics,
    background=_background,
    documentation="trust.md",
)
