"""Delete revocations that are no longer needed: the revoked credential has expired.

Reads    all credentialrevocations, at start and then every hour
Deletes  those a week past `status.expires`, when CRLs no longer need them, and a clock that was
         ahead is right again; and those that another one of the same target repeats or extends
Never    one without a known expiry: of tokens that never expire; one because its account or its
         cluster is gone: a restore brings it back, with its tokens
"""

import logging
from datetime import timedelta

from orchid.features.revocation.kinds.credential_revocation import CredentialRevocation
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import Client, ListSelection
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.loop import Sweeper
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.policy_rules import READ, rule

log = logging.getLogger(__name__)

LEEWAY = timedelta(hours=1)  # a server whose clock is behind would accept the credential again


class CleanRevocations(Sweeper):
    name = "revocation-cleaner"
    every = timedelta(hours=1)

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def sweep(self) -> None:
        oldest = self._clock.now() - LEEWAY
        # The name of one that stays, by target. A first one with a lesser reason stays, too, since
        # CRLs have its date.
        first: dict[tuple[tuple[str, ...], int], str] = {}
        async for revocation in self._client.scan(ListSelection(CredentialRevocation)):
            if revocation.has_expired(oldest):
                await self._delete(revocation)
                continue
            key = revocation.target, revocation.gravity
            if (name := first.setdefault(key, revocation.name)) != revocation.name:
                first[key] = await self._stays(revocation, name)

    async def _stays(self, revocation: CredentialRevocation, name: str) -> str:
        """Delete one of two revocations of a target if the other supersedes it; return the
        other.
        """
        other = await self._client.find(CredentialRevocation, name)
        if other is None:
            return revocation.name
        if revocation.is_superseded_by(other):
            await self._delete_superseded(revocation)
            return other.name
        if other.is_superseded_by(revocation):
            await self._delete_superseded(other)
            return revocation.name
        return other.name

    async def _delete_superseded(self, found: CredentialRevocation) -> None:
        # Deleting a hold would be recorded as its release; CRLs have the date of a signer's
        # revocation.
        if not found.is_hold and not found.spec.authority:
            await self._delete(found)

    async def _delete(self, found: CredentialRevocation) -> None:
        try:
            await self._client.delete_gone(CredentialRevocation, found)
        except Forbidden as problem:  # the server knows of a later expiry; continue with the others
            log.debug("revocation.stays", extra={"revocation": found.name, "why": str(problem)})


CONTROLLER = ControllerDeclaration(
    name="revocation-cleaner",
    long_name="credentialrevocation-cleaner-controller",
    account="revocation-cleaner",
    rights=lambda naming: (rule(("delete", *READ), naming.identity, ("credentialrevocations",)),),
    build=lambda client, context, events: CleanRevocations(client, context.clock),
)
