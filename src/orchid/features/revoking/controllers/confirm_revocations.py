"""Set the condition Effective on a revocation when every live server refuses the credential.

Reads   credentialrevocations, and the Leases in which servers report their revision; the account,
        certificate request or authority of a revocation
Writes  /status of a revocation, and an Event about its target; deletes the Leases of servers that
        are long gone
Never   uses the times in a Lease: the age of a renewal is measured with our own clock
"""

from collections.abc import AsyncIterator

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.features.clusters.kinds.cluster import Cluster
from orchid.features.objects.kinds.lease import Lease, server_label
from orchid.features.revocation.kinds.credential_revocation import (
    EFFECTIVE,
    CredentialRevocation,
    CredentialRevocationSpec,
    shown,
)
from orchid.features.revoking.applied_revision import LASTS, applied_annotation
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import DELETED, Client, ListSelection, WatchedChange
from orchid.kernel.credentials.x509.revocation_list import UNSPECIFIED
from orchid.kernel.runtime.context import ControllerContext
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.events import EventRecorder
from orchid.kernel.runtime.loop import Controller, Key, Running, Trigger
from orchid.kernel.wire.conditions import TRUE, Condition, with_conditions
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import CORE, READ, may_record_events, rule
from orchid.kernel.wire.revoked_credentials import RevokedCertificate

LOOK_AGAIN = 1.0  # seconds
REMOVED_AFTER = 10 * LASTS


class ConfirmRevocations(Controller[CredentialRevocation]):
    name = "revocation-confirmer"
    minds_deletions = True

    def __init__(self, client: Client, naming: Naming, clock: Clock, events: EventRecorder) -> None:
        super().__init__(client, ListSelection(CredentialRevocation))
        self._naming = naming
        self._clock = clock
        self._events = events
        self._servers: dict[str, tuple[int, float]] = {}  # the revision, and when we received it
        self._waiting: set[Key] = set()
        home, label = naming.system_namespace, f"{server_label(naming)}=true"
        self.triggers = (Trigger(ListSelection(Lease, namespace=home, labels=label), self._heard),)

    async def reconcile(self, revocation: CredentialRevocation) -> float | None:
        key = (revocation.namespace, revocation.name)
        if revocation.is_effective:
            self._waiting.discard(key)
            return None
        self._waiting.add(key)
        revision, live = int(revocation.metadata.resource_version), self._live()
        if not live or min(live) < revision:
            return LOOK_AGAIN  # a crashed server is no longer counted after a while
        condition = Condition(
            type=EFFECTIVE,
            status=TRUE,
            reason="Applied",
            message=f"Refused by every server ({len(live)}).",
        )
        await self._client.update_status(
            with_conditions(revocation, [condition], self._clock.now())
        )
        self._waiting.discard(key)
        await self._record(revocation, "Revoked")
        return None

    async def gone(self, last: CredentialRevocation) -> None:
        self._waiting.discard((last.namespace, last.name))
        expires = last.status.expires
        if last.is_hold and (expires is None or expires > self._clock.now()):
            await self._record(last, "Released")

    async def _record(self, revocation: CredentialRevocation, what: str) -> None:
        """Record an Event on the account, the request or the authority."""
        about = await concerned(self._client, revocation.spec) or revocation
        reason = revocation.spec.reason or UNSPECIFIED
        text = f"{what} {shown(revocation.spec)} ({reason}), by {revocation.name}."
        self._events.record(self.name, about, what, text)

    def _live(self) -> list[int]:
        """The revision of each server with a recent renewal."""
        now = self._clock.monotonic()
        return [applied for applied, heard in self._servers.values() if now - heard <= LASTS]

    async def _heard(self, event: WatchedChange[Lease]) -> AsyncIterator[Key]:
        lease = event.object
        if event.type == DELETED:
            self._servers.pop(lease.name, None)
        else:
            text = lease.metadata.annotations.get(applied_annotation(self._naming), "")
            applied = int(text) if text.isascii() and text.isdigit() else 0
            self._servers[lease.name] = applied, self._clock.monotonic()
            await self._remove_gone()
        for key in tuple(self._waiting):
            yield key

    async def _remove_gone(self) -> None:
        limit = self._clock.monotonic() - REMOVED_AFTER
        for name in [name for name, (_, heard) in self._servers.items() if heard < limit]:
            del self._servers[name]
            lease = await self._client.find(Lease, name, self._naming.system_namespace)
            if lease is not None:
                await self._client.delete_gone(Lease, lease)


async def concerned(client: Client, spec: CredentialRevocationSpec) -> Object | None:
    """The object that a revocation is about, for its Event; None if it is gone."""
    if spec.cluster:
        cluster = await client.find(Cluster, spec.cluster)
        is_same = cluster is not None and spec.cluster_uid in ("", cluster.metadata.uid)
        return cluster if is_same else None
    if spec.certificate:
        return await _request_of(client, spec.certificate)
    if spec.authority:
        signer = spec.authority.signer_name
        selection = ListSelection(CertificateAuthority, fields=f"spec.signerName={signer}")
        return next(iter((await client.page(selection)).items), None)
    named = spec.account or spec.token
    if named is None or not named.name:
        return None
    return await client.find(ServiceAccount, named.name, named.namespace)


async def _request_of(client: Client, named: RevokedCertificate) -> Object | None:
    """The request of a certificate or, if that was deleted, its record."""
    if not named.serial_number:
        return None
    record = await client.find(IssuedCertificate, named.serial_number)
    request = await client.find(CertificateSigningRequest, named.request_name)
    if record is None or request is None or request.metadata.uid != record.spec.request.uid:
        return record
    return request


def build(client: Client, context: ControllerContext, events: EventRecorder) -> Running:
    return ConfirmRevocations(client, context.naming, context.clock, events)


CONTROLLER = ControllerDeclaration(
    name="revocation-confirmer",
    long_name="credentialrevocation-confirmer-controller",
    account="revocation-confirmer",
    rights=lambda naming: (
        rule(READ, naming.identity, ("credentialrevocations",)),
        rule(("update",), naming.identity, ("credentialrevocations/status",)),
        rule(("get",), naming.identity, ("clusters", "issuedcertificates")),
        rule(("list",), naming.identity, ("certificateauthorities",)),
        rule(("get",), naming.certificates, ("certificatesigningrequests",)),
        rule(("get",), CORE, ("serviceaccounts",)),
        may_record_events(naming),
    ),
    rights_at_home=lambda naming: (rule(("delete", *READ), naming.coordination, ("leases",)),),
    build=build,
)
