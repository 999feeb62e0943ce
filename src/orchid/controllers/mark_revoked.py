"""Tell in the inventory which certificates were taken back.

Reads   credentialrevocations, and issuedcertificates
Writes  issuedcertificates/status: since when a certificate is revoked, and why; nothing again when
        a hold was lifted
Never   revokes or refuses anything: servers do that by the revocations themselves
"""

from collections.abc import AsyncIterator

from orchid.client.client import Client, ListSelection
from orchid.clock import Clock
from orchid.controllers.runtime.declaration import ControllerDeclaration
from orchid.controllers.runtime.loop import Controller
from orchid.credentials.revocation_list import UNSPECIFIED
from orchid.kinds.credential_revocation import CredentialRevocation, CredentialRevocationSpec
from orchid.kinds.issued_certificate import (
    IssuedCertificate,
    IssuedCertificateStatus,
    Revoked,
)
from orchid.kinds.role import READ, rule
from orchid.wire.errors import NotFound
from orchid.wire.struct import replace


class MarkRevoked(Controller[CredentialRevocation]):
    name = "revocation-marker"
    minds_deletions = True

    def __init__(self, client: Client, clock: Clock) -> None:
        super().__init__(client, ListSelection(CredentialRevocation))
        self._clock = clock

    async def reconcile(self, found: CredentialRevocation) -> None:
        told = Revoked(
            time=found.metadata.creation_timestamp, reason=found.spec.reason or UNSPECIFIED
        )
        async for record in self._hit(found.spec):
            before = record.status.revoked
            # Of several revocations the first one counts, but for a hold.
            if before is None or (before.reason == "certificateHold" and not found.is_hold):
                await self._write(record, told)

    async def gone(self, last: CredentialRevocation) -> None:
        expires = last.status.expires
        if expires is not None and expires <= self._clock.now():
            return  # it has done its work, and what it says stays true
        async for record in self._hit(last.spec):
            if record.status.revoked is not None:
                await self._write(record, await self._other(record))

    async def _hit(self, spec: CredentialRevocationSpec) -> AsyncIterator[IssuedCertificate]:
        """The records of what a revocation takes back."""
        if spec.certificate and spec.certificate.serial_number:
            record = await self._client.find(IssuedCertificate, spec.certificate.serial_number)
            if record is not None and _is_hit(record, spec):
                yield record
        elif spec.authority:
            fields = f"spec.signerName={spec.authority.signer_name}"
            async for record in self._client.scan(ListSelection(IssuedCertificate, fields=fields)):
                if _is_hit(record, spec):
                    yield record

    async def _other(self, record: IssuedCertificate) -> Revoked | None:
        """What another revocation says of a certificate, if there is one."""
        async for other in self._client.scan(ListSelection(CredentialRevocation)):
            if _is_hit(record, other.spec):
                reason = other.spec.reason or UNSPECIFIED
                return Revoked(time=other.metadata.creation_timestamp, reason=reason)
        return None

    async def _write(self, record: IssuedCertificate, told: Revoked | None) -> None:
        try:
            await self._client.update_status(
                replace(record, status=IssuedCertificateStatus(revoked=told))
            )
        except NotFound:
            return  # it ended long ago


def _is_hit(record: IssuedCertificate, spec: CredentialRevocationSpec) -> bool:
    if spec.certificate:
        return record.spec.sha256 == spec.certificate.sha256
    if not spec.authority or record.spec.signer_name != spec.authority.signer_name:
        return False
    issued, until = record.metadata.creation_timestamp, spec.authority.issued_before
    return issued is not None and until is not None and issued <= until


CONTROLLER = ControllerDeclaration(
    name="revocation-marker",
    long_name="credentialrevocation-marker-controller",
    account="revocation-marker",
    rights=lambda names: (
        rule(READ, names.identity, ("credentialrevocations", "issuedcertificates")),
        rule(("update",), names.identity, ("issuedcertificates/status",)),
    ),
    build=lambda client, context, events: MarkRevoked(client, context.clock),
)
