"""Delete the records of certificates that expired long ago.

Reads    all issuedcertificates, at start and then every hour; the clusters of those that have one
Deletes  those whose certificate, or whose cluster's authorities, expired more than
         `--issued-retention` ago
         (of removed clusters: features/clusters/controllers/clean_clusters.py)
Never    the record of a valid certificate; the server would refuse that too
"""

from datetime import datetime, timedelta

from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.features.clusters.kinds.cluster import Cluster, authorities_end, is_of, record_end
from orchid.features.revocation.settings import RevocationSettings
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import Client, ListSelection
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.loop import Sweeper
from orchid.kernel.wire.policy_rules import READ, rule


class CleanIssued(Sweeper):
    name = "issued-cleaner"
    every = timedelta(hours=1)

    def __init__(self, client: Client, clock: Clock, retention: timedelta) -> None:
        self._client = client
        self._clock = clock
        self._retention = retention

    async def sweep(self) -> None:
        oldest = self._clock.now() - self._retention
        clusters: dict[str, Cluster | None] = {}
        async for issued in self._client.scan(ListSelection(IssuedCertificate)):
            end = await self._end(issued, clusters)
            if end is not None and end < oldest:
                await self._client.delete_gone(IssuedCertificate, issued)

    async def _end(
        self, issued: IssuedCertificate, clusters: dict[str, Cluster | None]
    ) -> datetime | None:
        """When a record ends; `clusters`: those that were read already, by name."""
        name = issued.spec.cluster
        if name and name not in clusters:
            clusters[name] = await self._client.find(Cluster, name)
        cluster = clusters.get(name)
        if cluster is None or not is_of(issued, cluster.metadata):
            return issued.spec.not_after
        return record_end(issued.spec.not_after, authorities_end(cluster))


CONTROLLER = ControllerDeclaration(
    name="issued-cleaner",
    long_name="issuedcertificate-cleaner-controller",
    account="issued-cleaner",
    rights=lambda naming: (
        rule(("delete", *READ), naming.identity, ("issuedcertificates",)),
        rule(("get",), naming.identity, ("clusters",)),
    ),
    build=lambda client, context, events: CleanIssued(
        client, context.clock, context.settings(RevocationSettings).issued_retention.delta
    ),
)
