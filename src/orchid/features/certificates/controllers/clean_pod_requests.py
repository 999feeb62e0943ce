"""Delete old PodCertificateRequests.

Reads    all podcertificaterequests, at start and then every five minutes
Deletes  those that are older than 15 minutes, settled or not: the node has given up by then
"""

from datetime import timedelta

from orchid.features.certificates.kinds.pod_certificate_request import PodCertificateRequest
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import Client, ListSelection
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.loop import Sweeper
from orchid.kernel.wire.policy_rules import READ, rule

OLD = timedelta(minutes=15)


class CleanPodRequests(Sweeper):
    name = "podcertificaterequestcleaner"
    every = timedelta(minutes=5)

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def sweep(self) -> None:
        newest = self._clock.now() - OLD
        async for request in self._client.scan(ListSelection(PodCertificateRequest)):
            created = request.metadata.creation_timestamp
            if created is not None and created <= newest:
                await self._client.delete_gone(PodCertificateRequest, request)


CONTROLLER = ControllerDeclaration(
    name="podcertificaterequestcleaner",
    long_name="podcertificaterequest-cleaner-controller",
    account="podcertificaterequestcleaner",
    rights=lambda names: (
        rule(("delete", *READ), names.certificates, ("podcertificaterequests",)),
    ),
    build=lambda client, context, events: CleanPodRequests(client, context.clock),
)
