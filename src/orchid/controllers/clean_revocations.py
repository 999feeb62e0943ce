"""Remove revocations whose work is done: what they take back has ended by itself.

Reads    all credentialrevocations, at start and then every hour
Deletes  those past `status.expires`
Never    one whose end nobody knows
"""

from datetime import timedelta

from orchid.client.client import Client, ListSelection
from orchid.clock import Clock
from orchid.controllers.runtime.declaration import ControllerDeclaration
from orchid.controllers.runtime.loop import Sweeper
from orchid.kinds.credential_revocation import CredentialRevocation
from orchid.kinds.role import READ, rule

LEEWAY = timedelta(hours=1)  # a server whose clock is behind would let the credential in again


class CleanRevocations(Sweeper):
    name = "revocation-cleaner"
    every = timedelta(hours=1)

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def sweep(self) -> None:
        oldest = self._clock.now() - LEEWAY
        async for found in self._client.scan(ListSelection(CredentialRevocation)):
            expires = found.status.expires
            if expires is not None and expires < oldest:
                await self._client.delete_gone(CredentialRevocation, found)


CONTROLLER = ControllerDeclaration(
    name="revocation-cleaner",
    long_name="credentialrevocation-cleaner-controller",
    account="revocation-cleaner",
    rights=lambda names: (rule(("delete", *READ), names.identity, ("credentialrevocations",)),),
    build=lambda client, context, events: CleanRevocations(client, context.clock),
)
