"""Remove revocations whose work is done: what they take back has ended by itself.

Reads    all credentialrevocations, at start and then every hour
Deletes  those past `status.expires` (of certificates: a week later, when lists no longer need
         them), and those of accounts that are gone or were made anew since
Never    one whose end nobody knows: of tokens that do not end by themselves
"""

from datetime import datetime, timedelta

from orchid.client.client import Client, ListSelection
from orchid.clock import Clock
from orchid.controllers.runtime.declaration import ControllerDeclaration
from orchid.controllers.runtime.loop import Sweeper
from orchid.kinds.credential_revocation import CredentialRevocation
from orchid.kinds.role import CORE, READ, rule
from orchid.kinds.service_account import ServiceAccount

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
            if await self._is_over(found, oldest):
                await self._client.delete_gone(CredentialRevocation, found)

    async def _is_over(self, found: CredentialRevocation, oldest: datetime) -> bool:
        if found.has_expired(oldest):
            return True
        made = found.metadata.creation_timestamp
        if found.account is None or made is None or made > oldest:
            return False
        namespace, name = found.account
        account = await self._client.find(ServiceAccount, name, namespace)
        return found.outlives_account(account.metadata.creation_timestamp if account else None)


CONTROLLER = ControllerDeclaration(
    name="revocation-cleaner",
    long_name="credentialrevocation-cleaner-controller",
    account="revocation-cleaner",
    rights=lambda names: (
        rule(("delete", *READ), names.identity, ("credentialrevocations",)),
        rule(("get",), CORE, ("serviceaccounts",)),
    ),
    build=lambda client, context, events: CleanRevocations(client, context.clock),
)
