"""Delete the records of certificates that expired long ago.

Reads    all issuedcertificates, at start and then every hour
Deletes  those whose certificate expired more than `--issued-retention` ago,
         and those of clusters that were removed
Never    another record of a valid certificate; the server would refuse that too
"""

from datetime import timedelta

from orchid.client.client import Client, ListSelection
from orchid.clock import Clock
from orchid.controllers.runtime.declaration import ControllerDeclaration
from orchid.controllers.runtime.loop import Sweeper
from orchid.kinds.cluster import Cluster
from orchid.kinds.issued_certificate import IssuedCertificate
from orchid.kinds.role import READ, rule


class CleanIssued(Sweeper):
    name = "issued-cleaner"
    every = timedelta(hours=1)

    def __init__(self, client: Client, clock: Clock, retention: timedelta) -> None:
        self._client = client
        self._clock = clock
        self._retention = retention
        self._clusters: dict[str, bool] = {}  # which exist, as of this sweep

    async def sweep(self) -> None:
        oldest, self._clusters = self._clock.now() - self._retention, {}
        async for issued in self._client.scan(ListSelection(IssuedCertificate)):
            end = issued.spec.not_after
            if (end is not None and end < oldest) or await self._is_orphan(issued):
                await self._client.delete_gone(IssuedCertificate, issued)

    async def _is_orphan(self, issued: IssuedCertificate) -> bool:
        """Whether it is of a cluster that was removed."""
        name = issued.spec.cluster
        if name and name not in self._clusters:
            self._clusters[name] = await self._client.find(Cluster, name) is not None
        return bool(name) and not self._clusters[name]


CONTROLLER = ControllerDeclaration(
    name="issued-cleaner",
    long_name="issuedcertificate-cleaner-controller",
    account="issued-cleaner",
    rights=lambda names: (
        rule(("delete", *READ), names.identity, ("issuedcertificates",)),
        rule(("get",), names.identity, ("clusters",)),
    ),
    build=lambda client, context, events: CleanIssued(
        client, context.clock, context.issued_retention
    ),
)
