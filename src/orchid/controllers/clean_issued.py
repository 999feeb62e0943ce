"""Delete the records of certificates that expired long ago.

Reads    all issuedcertificates, at start and then every hour
Deletes  those whose certificate expired more than `--issued-retention` ago
         (of removed clusters: clean_clusters.py)
Never    the record of a valid certificate; the server would refuse that too
"""

from datetime import timedelta

from orchid.client.client import Client, ListSelection
from orchid.clock import Clock
from orchid.controllers.runtime.declaration import ControllerDeclaration
from orchid.controllers.runtime.loop import Sweeper
from orchid.kinds.issued_certificate import IssuedCertificate
from orchid.kinds.role import READ, rule


class CleanIssued(Sweeper):
    name = "issued-cleaner"
    every = timedelta(hours=1)

    def __init__(self, client: Client, clock: Clock, retention: timedelta) -> None:
        self._client = client
        self._clock = clock
        self._retention = retention

    async def sweep(self) -> None:
        oldest = self._clock.now() - self._retention
        async for issued in self._client.scan(ListSelection(IssuedCertificate)):
            end = issued.spec.not_after
            if end is not None and end < oldest:
                await self._client.delete_gone(IssuedCertificate, issued)


CONTROLLER = ControllerDeclaration(
    name="issued-cleaner",
    long_name="issuedcertificate-cleaner-controller",
    account="issued-cleaner",
    rights=lambda names: (rule(("delete", *READ), names.identity, ("issuedcertificates",)),),
    build=lambda client, context, events: CleanIssued(
        client, context.clock, context.issued_retention
    ),
)
