"""Mark revoked certificates in the inventory.

Reads   all credentialrevocations; issuedcertificates that are marked, or that a revocation names
Writes  issuedcertificates/status: time and reason of a revocation
Never   revokes or refuses anything: servers do that by the revocations themselves

A mark is computed from the existing revocations (revocation_index.py). Every mark is compared with
them at start, after a gap, every hour, and when another client writes it: a mark without a
revocation is removed, and a missing one is added. Only the mark of an expired certificate stays as
it is, because its revocation is deleted then.
"""

import asyncio
import contextlib
from datetime import timedelta
from typing import Final

from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    IssuedCertificateStatus,
)
from orchid.features.revocation.kinds.credential_revocation import CredentialRevocation
from orchid.features.revoking.controllers.revocation_index import RevocationIndex, record_name
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import DELETED, Client, ListSelection, WatchedChange
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.loop import Start, Worker
from orchid.kernel.wire.errors import Expired, NotFound
from orchid.kernel.wire.policy_rules import READ, rule
from orchid.kernel.wire.struct import replace

MARKED: Final = ListSelection(IssuedCertificate, fields="status.revoked=true")
COMPARED_EVERY: Final = timedelta(hours=1)
CERTIFICATE: Final = "certificate"
SIGNER: Final = "spec.signerName"
CLUSTER: Final = "spec.cluster"

Key = tuple[str, str]  # CERTIFICATE and the name of its record, or SIGNER or CLUSTER and its name


class MarkRevoked(Worker[Key, None]):
    name = "revocation-marker"

    def __init__(
        self, client: Client, clock: Clock, compared_every: timedelta = COMPARED_EVERY
    ) -> None:
        super().__init__()
        self._client = client
        self._clock = clock
        self._compared_every = compared_every
        self._index = RevocationIndex()

    async def follow(self, start: Start) -> None:
        listed = asyncio.Event()
        start(self._follow_revocations(listed))
        await listed.wait()
        start(self._follow_marks())
        await asyncio.sleep(self._compared_every.total_seconds())
        raise Expired("all marks are compared again")

    async def attend(self, key: Key, value: None) -> None:
        what, name = key
        if what != CERTIFICATE:
            await self._compare_all(f"{what}={name}")
            return
        record = await self._client.find(IssuedCertificate, name)
        if record is None or self._is_right(record):
            return
        status = IssuedCertificateStatus(revoked=self._index.revoked(record))
        with contextlib.suppress(NotFound):  # it expired long ago
            await self._client.update_status(replace(record, status=status))

    async def _compare_all(self, fields: str) -> None:
        async for record in self._client.scan(ListSelection(IssuedCertificate, fields=fields)):
            self._compare(record)

    def _compare(self, record: IssuedCertificate) -> None:
        if not self._is_right(record):
            self.queue.add((CERTIFICATE, record.name))

    def _is_right(self, record: IssuedCertificate) -> bool:
        there, wanted = record.status.revoked, self._index.revoked(record)
        return there == wanted or (wanted is None and self._has_ended(record))

    def _has_ended(self, record: IssuedCertificate) -> bool:
        end = record.spec.not_after
        return end is not None and end <= self._clock.now()

    # -- revocations --------------------------------------------------------------------------

    async def _follow_revocations(self, listed: asyncio.Event) -> None:
        # A new list replaces the index when it is complete: with half of the revocations the marks
        # of the other half would be removed.
        index = RevocationIndex()
        selection = ListSelection(CredentialRevocation)
        async with contextlib.aclosing(self._client.follow(selection)) as batches:
            async for batch in batches:
                for event in batch:
                    self._take(event, index)
                if not batch:
                    self._index = index
                    listed.set()

    def _take(self, event: WatchedChange[CredentialRevocation], index: RevocationIndex) -> None:
        revocation = event.object
        if event.type == DELETED:
            index.remove(revocation.name)
        else:
            index.put(revocation)
        if index is not self._index:
            return  # all is compared when everything is listed
        if name := record_name(revocation):
            self.queue.add((CERTIFICATE, name))
        elif revocation.spec.authority:
            self.queue.add((SIGNER, revocation.spec.authority.signer_name))
        elif revocation.spec.username:
            self.queue.add((CLUSTER, revocation.spec.cluster))

    # -- marks --------------------------------------------------------------------------------

    async def _follow_marks(self) -> None:
        marked: set[str] | None = set()
        async with contextlib.aclosing(self._client.follow(MARKED)) as batches:
            async for batch in batches:
                for event in batch:
                    record = event.object
                    if event.type == DELETED:  # of the record, or of its mark
                        self.queue.add((CERTIFICATE, record.name))
                        continue
                    self._compare(record)
                    if marked is not None:
                        marked.add(record.name)
                if not batch and marked is not None:
                    self._add_missing(marked)
                    marked = None

    def _add_missing(self, marked: set[str]) -> None:
        for name in self._index.records - marked:
            self.queue.add((CERTIFICATE, name))
        for signer in self._index.signers:
            self.queue.add((SIGNER, signer))
        for cluster in self._index.clusters:
            self.queue.add((CLUSTER, cluster))


CONTROLLER = ControllerDeclaration(
    name="revocation-marker",
    long_name="credentialrevocation-marker-controller",
    account="revocation-marker",
    rights=lambda naming: (
        rule(READ, naming.identity, ("credentialrevocations", "issuedcertificates")),
        rule(("update",), naming.identity, ("issuedcertificates/status",)),
    ),
    build=lambda client, context, events: MarkRevoked(client, context.clock),
)
