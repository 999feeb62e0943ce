"""Delete the certificate records of clusters that were removed.

Reads    clusters; the issuedcertificates of clusters, all of them at start, and those of a cluster
         when it is removed or created
Deletes  those whose cluster does not exist, or was created again since
Never    one of an existing cluster; the server would refuse that too. Revocations stay until what
         they revoke has ended: a restore may bring the cluster back
"""

import contextlib
from typing import Final

from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.features.clusters.kinds.cluster import Cluster, is_of
from orchid.kernel.client.client import ADDED, DELETED, Client, ListSelection
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.loop import Start, Worker
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.policy_rules import READ, rule

ALL: Final = ""  # in place of the name of a cluster


class CleanClusters(Worker[str, None]):
    name = "cluster-cleaner"
    workers = 1

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client

    async def follow(self, start: Start) -> None:
        start(self._follow_clusters())

    async def _follow_clusters(self) -> None:
        selection = ListSelection(Cluster, read_as=Object)
        async with contextlib.aclosing(self._client.follow(selection)) as batches:
            async for batch in batches:
                if not batch:  # after the list, since a removal may have been missed
                    self.queue.add(ALL)
                for event in batch:
                    if event.type in (ADDED, DELETED):
                        self.queue.add(event.object.name)

    async def attend(self, name: str, value: None) -> None:
        fields = f"spec.cluster={name}" if name else "spec.cluster!="
        clusters: dict[str, Cluster | None] = {}
        async for record in self._client.scan(ListSelection(IssuedCertificate, fields=fields)):
            name = record.spec.cluster
            if name not in clusters:
                clusters[name] = await self._client.find(Cluster, name)
            cluster = clusters[name]
            if cluster is None or not is_of(record, cluster.metadata):
                with contextlib.suppress(Forbidden):  # the cluster was created meanwhile
                    await self._client.delete_gone(IssuedCertificate, record)


CONTROLLER = ControllerDeclaration(
    name="cluster-cleaner",
    long_name="cluster-cleaner-controller",
    account="cluster-cleaner",
    rights=lambda naming: (
        rule(READ, naming.identity, ("clusters",)),
        rule(("delete", "list"), naming.identity, ("issuedcertificates",)),
    ),
    build=lambda client, context, events: CleanClusters(client),
)
