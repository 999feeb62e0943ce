"""A person's approval of an ACME request is not lost when the client has left.

Reads    certificatesigningrequests of ACME orders, their acmeorders and acmeaccounts,
         issuedcertificates, certificateauthorities
Writes   /approval: the condition Approved with the reason ApprovalKept
Revokes  the certificate that the approval led to before, as superseded
Deletes  an undecided request when its account sends a newer one for the same names
Never    approves what nobody approved (features/approval/kept_approvals.py `excess`), nor for
         longer than
         `spec.acme.approvalKept`

A client that waits for a person gives up after a while, and asks again later with another key. The
approval then counts for a request for the same certificate or less, until one is fetched. The
certificate in the inventory says what was approved; the server checks the approver when the
approval is written (features/approving/policies/kept_approvals.py). Start with
`KeepApprovals.reconcile`. All of this is computed from objects.
"""

import contextlib
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from orchid.features.acme.acme_accounts import is_account_of
from orchid.features.acme.kinds.acme_account import AcmeAccount
from orchid.features.acme.kinds.acme_order import REQUEST_PREFIX, AcmeOrder
from orchid.features.approval.case import SignerTerms, case_of
from orchid.features.approval.kept_approvals import (
    REASON,
    ApprovedTerms,
    KeptApproval,
    excess,
    kept_approval,
)
from orchid.features.authorities.controllers.follow_authorities import AuthorityFollower
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.features.certificates.kinds.issued_certificate import (
    Approver,
    IssuedCertificate,
    Requester,
)
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import DELETED, Client, ListSelection, WatchedChange
from orchid.kernel.credentials.authorities.validity import BACKDATE, leaf_validity
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import signing_request
from orchid.kernel.credentials.x509.requested_certificate import certified
from orchid.kernel.runtime.context import ControllerContext
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.events import EventRecorder
from orchid.kernel.runtime.loop import Controller, Start
from orchid.kernel.wire.errors import AlreadyExists, Forbidden
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import READ, may_record_events, rule
from orchid.kernel.wire.references import is_owned_by
from orchid.kernel.wire.request_conditions import APPROVED
from orchid.kernel.wire.revoked_credentials import RevokedCertificate
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import ACCOUNT_PREFIX, UserInfo, account_of

log = logging.getLogger(__name__)

ACCOUNT: Final = "acme-approvals"
_NAME: Final = b'"name":"%b' % REQUEST_PREFIX.encode()

Subject = tuple[str, str, frozenset[str]]  # user, signer and alternative names


class KeepApprovals(Controller[CertificateSigningRequest]):
    name = "acme-approvals"
    minds_deletions = True

    def __init__(self, client: Client, naming: Naming, clock: Clock, events: EventRecorder) -> None:
        super().__init__(client, ListSelection(CertificateSigningRequest))
        self._clock = clock
        self._events = events
        self._own_user = f"{ACCOUNT_PREFIX}{naming.system_namespace}:{ACCOUNT}"
        self._others = (
            f"{ACCOUNT_PREFIX}{naming.system_namespace}:",
            naming.controller_manager_user,
        )
        self._authorities = AuthorityFollower(client)
        self._forget()

    def _forget(self) -> None:
        self._records: dict[Subject, dict[str, IssuedCertificate]] = {}  # by serial number
        self._by_request: dict[str, str] = {}
        self._waiting: dict[Subject, dict[str, CertificateSigningRequest]] = {}  # undecided
        self._successors: dict[str, str] = {}  # of a certificate: the request approved in its place

    # -- events ------------------------------------------------------------------------------

    async def follow(self, start: Start) -> None:
        self._authorities.forget()
        self._forget()
        start(self._authorities.follow(lambda authority: None))
        await self._authorities.all_loaded.wait()
        start(self._follow_records())
        await super().follow(start)

    async def _follow_records(self) -> None:
        selection = ListSelection(IssuedCertificate)
        async with contextlib.aclosing(self._client.follow(selection)) as batches:
            async for batch in batches:
                for event in batch:
                    if _NAME in bytes(event.data):
                        self._take_record(event)

    def _take_record(self, event: WatchedChange[IssuedCertificate]) -> None:
        record = event.object
        spec = record.spec
        if spec.cluster or not spec.request.name.startswith(REQUEST_PREFIX):
            return  # its API server reports whatever name it wants
        names = frozenset(name.lower() for name in spec.names)
        subject = spec.requester.username, spec.signer_name, names
        if event.type == DELETED or record.status.revoked is not None:
            self._records.get(subject, {}).pop(record.name, None)
            self._successors.pop(record.name, None)
            if not self._records.get(subject):
                self._records.pop(subject, None)
        else:
            self._records.setdefault(subject, {})[record.name] = record
            for request in self._waiting.get(subject, {}):
                self.queue.add(("", request))

    def take(self, event: WatchedChange[CertificateSigningRequest]) -> None:
        if _NAME not in bytes(event.data):
            return
        csr = event.object
        subject = subject_of(csr)
        if not csr.name.startswith(REQUEST_PREFIX) or subject is None:
            return
        waiting = self._waiting.setdefault(subject, {})
        if event.type == DELETED:
            for replaced in [name for name, new in self._successors.items() if new == csr.name]:
                del self._successors[replaced]
        if event.type == DELETED or csr.is_decided:
            waiting.pop(csr.name, None)
        else:
            waiting[csr.name] = csr
        if not waiting:
            del self._waiting[subject]
        super().take(event)

    # -- decision ----------------------------------------------------------------------------

    async def reconcile(self, request: CertificateSigningRequest) -> None:
        subject = subject_of(request)
        authority = self._authorities.of(request.spec.signer_name)
        if subject is None or authority is None or authority.spec.acme is None:
            return
        if request.is_decided:
            await self._supersede(request, subject)
            return
        order = await self._order(request)
        if order is None:
            return
        await self._delete_older(request, subject)
        requested = self._requested(request, authority)
        if requested is None:
            return
        since = self._clock.now() - authority.approval_kept
        for approval, record in list(self._approvals(subject)):
            if approval.time <= since or excess(requested, approved_terms(record)):
                continue
            if not await self._is_unfetched(record, order):
                continue
            if self._successors.setdefault(record.name, request.name) != request.name:
                continue  # until the certificate of that request is there
            if await self._approve(request, approval):
                return
            del self._successors[record.name]

    async def _approve(self, csr: CertificateSigningRequest, approval: KeptApproval) -> bool:
        """Approve a request, unless the server finds that the approval does not count any more."""
        try:
            decided = csr.with_condition(APPROVED, REASON, str(approval))
            await self._client.update(decided, "approval")
        except Forbidden as refusal:
            extra = {"object": csr.name, "why": str(refusal)}
            log.info("controller.approval_does_not_count", extra=extra)
            return False
        self._events.record(self.name, csr, REASON, str(approval))
        return True

    def _requested(
        self, csr: CertificateSigningRequest, authority: CertificateAuthority
    ) -> ApprovedTerms | None:
        """The terms of a request; None if its signer would not sign exactly these."""
        terms, end = self._authorities.terms(authority.spec.signer_name), authority.status.not_after
        if terms is None or end is None:
            return None
        try:
            return requested_terms(csr, terms, self._clock.now(), end)
        except Refusal:
            return None

    async def _order(self, csr: CertificateSigningRequest) -> AcmeOrder | None:
        """The order of a request, if its account is the requester and its names are equal."""
        spec = csr.spec
        requester = Requester(username=spec.username, uid=spec.uid)
        order = await self._order_for(csr.name, requester, spec.signer_name, csr)
        if order is None:
            return None
        request = signing_request.parse_once(spec.request or b"")
        return None if order.difference(request) else order

    async def _order_of(self, record: IssuedCertificate) -> AcmeOrder | None:
        """The order of a certificate."""
        spec = record.spec
        return await self._order_for(spec.request.name, spec.requester, spec.signer_name, record)

    async def _order_for(
        self, request: str, requester: Requester, signer: str, later: Object
    ) -> AcmeOrder | None:
        """The order of a request by its name, if it is of this requester and signer.

        None for an order that was created again under the name, after the object `later`: that
        nobody fetched its certificate says nothing of the one before.
        """
        user, authority = account_of(requester.username), self._authorities.of(signer)
        if user is None or authority is None:
            return None
        namespace, name = user
        order = await self._client.find(AcmeOrder, request.removeprefix(REQUEST_PREFIX), namespace)
        if order is None or (_revision(order) > _revision(later) and not order.status.fetched):
            return None
        account = await self._client.find(AcmeAccount, order.spec.account, namespace)
        if account is None or not is_owned_by(order, account):
            return None  # of an earlier account with this name
        if not is_account_of(account, authority):
            return None
        used = account.spec.service_account_name, account.spec.service_account_uid
        return order if used == (name, requester.uid) else None

    async def _delete_older(self, csr: CertificateSigningRequest, subject: Subject) -> None:
        """Delete undecided requests that this one replaces: nobody needs to decide about them."""
        for other in list(self._waiting.get(subject, {}).values()):
            if _age(other) < _age(csr) and await self._order(other) is not None:
                # Only this version of it: somebody may have decided meanwhile.
                version = other.metadata.resource_version
                await self._client.delete_gone(
                    CertificateSigningRequest, other, resource_version=version
                )

    def _approvals(self, subject: Subject) -> Iterator[tuple[KeptApproval, IssuedCertificate]]:
        """Approvals by people that led to a certificate, which is not revoked."""
        for record in self._records.get(subject, {}).values():
            approver, approval = record.spec.approver, record.spec.approval
            if approver.username == self._own_user:
                kept = kept_approval(approval.reason, approval.message)
                if kept is not None:
                    yield kept, record
            elif approval.time is not None and self._is_person(approver):
                request = record.spec.request.name
                yield (
                    KeptApproval(approver.username, request, approval.time, record.name),
                    record,
                )

    def _is_person(self, approver: Approver) -> bool:
        name = approver.username
        return bool(name) and not approver.policy and not name.startswith(self._others)

    async def _is_unfetched(self, record: IssuedCertificate, new: AcmeOrder) -> bool:
        """Whether nobody has fetched the certificate of a record."""
        order = await self._order_of(record)
        return order is not None and order.name != new.name and order.status.fetched is None

    async def _supersede(self, csr: CertificateSigningRequest, subject: Subject) -> None:
        """Revoke the other certificates of the approval by which a request was approved."""
        kept = csr.kept_approval
        for approval, record in list(self._approvals(subject)):
            if approval != kept or record.spec.request.name == csr.name:
                continue
            if self._successors.get(record.name) == csr.name or await self._is_left(record, csr):
                await self._revoke(record, csr)

    async def _is_left(self, record: IssuedCertificate, csr: CertificateSigningRequest) -> bool:
        """Whether a certificate was there before a request, and nobody fetched it."""
        issued, created = record.metadata.creation_timestamp, csr.metadata.creation_timestamp
        if not issued or not created or issued >= created:
            return False
        order = await self._order_of(record)
        return order is not None and order.status.fetched is None

    async def _revoke(self, record: IssuedCertificate, csr: CertificateSigningRequest) -> None:
        spec = record.spec
        revocation = CredentialRevocation(
            metadata=ObjectMeta(generate_name=f"acme-superseded-{record.name}-"),
            spec=CredentialRevocationSpec(
                certificate=RevokedCertificate(
                    serial_number=spec.serial_number, signer_name=spec.signer_name
                ),
                reason="superseded",
                message=f"nobody fetched it, and {csr.name} replaces it",
            ),
        )
        with contextlib.suppress(AlreadyExists):  # of another revocation of this certificate
            await self._client.create(revocation)


def subject_of(csr: CertificateSigningRequest) -> Subject | None:
    """User, signer and alternative names of a request; None if it is malformed."""
    try:
        request = signing_request.parse_once(csr.spec.request or b"")
    except Refusal:
        return None
    names = {*map(str.lower, request.dns_names), *map(str, request.ip_addresses)}
    return csr.spec.username, csr.spec.signer_name, frozenset(names)


def requested_terms(
    csr: CertificateSigningRequest, terms: SignerTerms, now: datetime, end: datetime
) -> ApprovedTerms | None:
    """The terms that a signer whose authority ends at `end` would sign; raises Refusal.

    None if the request contains more than that, or the signer refuses it.
    """
    spec = csr.spec
    user = UserInfo(username=spec.username, uid=spec.uid, groups=spec.groups, extra=spec.extra)
    case = case_of(
        spec.request or b"",
        signer_name=spec.signer_name,
        usages=spec.usages,
        expiration_seconds=spec.expiration_seconds,
        user=user,
        now=now,
        terms_of=lambda signer: terms,
    )
    if case.obstacles or case.certificate.lifetime is None:
        return None
    validity = leaf_validity(case.certificate.lifetime, now, end)
    certificate = replace(case.certificate, lifetime=_from_issue(*validity))
    return ApprovedTerms(spec.username, spec.uid, spec.signer_name, certificate)


def approved_terms(record: IssuedCertificate) -> ApprovedTerms:
    """The terms of a certificate that was issued: nobody approved more than these."""
    spec, requester = record.spec, record.spec.requester
    lifetime = timedelta()
    if spec.not_before and spec.not_after:
        lifetime = _from_issue(spec.not_before, spec.not_after)
    certificate = certified(spec.certificate, spec.usages, spec.key.algorithm, lifetime)
    return ApprovedTerms(requester.username, requester.uid, spec.signer_name, certificate)


def _from_issue(not_before: datetime, not_after: datetime) -> timedelta:
    """The time from the issue of a certificate to its end."""
    return not_after - not_before - BACKDATE


def _age(csr: CertificateSigningRequest) -> tuple[datetime, int]:
    """Sort key; the revision orders requests of the same second."""
    meta = csr.metadata
    return meta.creation_timestamp or datetime.max.replace(tzinfo=UTC), _revision(csr)


def _revision(stored: Object) -> int:
    """When an object was written last, in the order of the store."""
    return int(stored.metadata.resource_version)


def build(client: Client, context: ControllerContext, events: EventRecorder) -> KeepApprovals:
    return KeepApprovals(client, context.naming, context.clock, events)


CONTROLLER = ControllerDeclaration(
    name="acme-approvals",
    long_name="acme-approvals-controller",
    account=ACCOUNT,
    rights=lambda naming: (
        rule(("delete", *READ), naming.certificates, ("certificatesigningrequests",)),
        rule(("update",), naming.certificates, ("certificatesigningrequests/approval",)),
        # Of which signers is decided by the authorities that have ACME.
        rule(("approve", "revoke"), naming.certificates, ("signers",)),
        rule(("get",), naming.identity, ("acmeaccounts", "acmeorders")),
        rule(READ, naming.identity, ("certificateauthorities", "issuedcertificates")),
        rule(("create",), naming.identity, ("credentialrevocations",)),
        may_record_events(naming),
    ),
    build=build,
)
