"""An earlier approval counts only while its approver may still approve.

A condition Approved with the reason ApprovalKept (features/approval/kept_approvals.py) names a
person's approval that led to a certificate. It is refused unless the inventory has that approval,
for the same requester and signer; the approver may still approve for the signer, with the groups of
then; and neither the approver nor the credential that they used was revoked since. An approval by
impersonation does not count: the right to impersonate may be gone. Nothing is cached: permissions
and revocations are those of the moment in which the approval is written. Start with `review`.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.approval.kept_approvals import REASON, KeptApproval
from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.kernel.access.rights import APPROVE, CallerRights, signer_targets
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.interfaces import AdmissionPolicy, Authorizer, Rejected
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.request_conditions import APPROVED
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.text import quote
from orchid.kernel.wire.user import UserInfo, account_of

SUPERSEDED = "superseded"

RefuseAction = Callable[[UserInfo, Sequence[str], datetime], None]


class KeptApprovals(AdmissionPolicy):
    reviews = (CertificateSigningRequest,)

    def __init__(
        self,
        naming: Naming,
        feed: Feed,
        authorizer: Authorizer,
        refuse_action: RefuseAction,
    ) -> None:
        """`refuse_action`: raises Rejected if the credential with which a user acted at a moment
        is revoked; by its ids.
        """
        self._naming = naming
        self._feed = feed
        self._records = feed.of(IssuedCertificate)
        self._accounts = feed.of(ServiceAccount)
        self._rights = CallerRights(naming, authorizer)
        self._refuse_action = refuse_action

    async def review(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> None:
        if new is None or old is None or old.has(APPROVED):
            return
        if not any(
            condition.type == APPROVED and condition.reason == REASON
            for condition in new.status.conditions
        ):
            return
        await self._feed.fresh()
        problem = await self._problem(request, old, new.kept_approval)
        if problem:
            raise Forbidden(kind.about(new.name), f"the earlier approval does not count: {problem}")

    async def _problem(
        self, request: Request, csr: CertificateSigningRequest, kept: KeptApproval | None
    ) -> str:
        record = self._record(csr, kept) if kept else None
        if kept is None or record is None:
            return "the inventory does not have it for this requester and signer"
        approver = record.spec.approver
        if approver.impersonator:
            return "it was given by impersonation"
        revoked = record.status.revoked
        if revoked is not None and revoked.reason != SUPERSEDED:
            return "its certificate was revoked"
        user = UserInfo(
            username=approver.username,
            uid=approver.uid,
            groups=approver.groups,
            extra={self._naming.credential_id: approver.credential_ids},
        )
        if self._is_gone(user):
            return f"the account {quote(user.username)} is gone"
        try:
            self._refuse_action(user, approver.credential_ids, kept.time)
        except Rejected as refusal:
            return str(refusal)
        targets = signer_targets(self._naming, APPROVE, csr.spec.signer_name)
        if not await self._rights.include_any(replace(request, user=user), targets):
            return f"{quote(user.username)} may not approve for this signer any more"
        return ""

    def _record(
        self, csr: CertificateSigningRequest, kept: KeptApproval
    ) -> IssuedCertificate | None:
        """The record of the certificate that the approval led to."""
        entry = self._records.get("", kept.certificate)
        if entry is None:
            return None
        spec, asked = entry.object.spec, csr.spec
        recorded = spec.request.name, spec.approver.username, spec.approval.time, spec.signer_name
        stated = kept.request, kept.approver, kept.time, asked.signer_name
        is_same = recorded == stated and not spec.approver.policy and not spec.cluster
        owner = spec.requester.username, spec.requester.uid
        return entry.object if is_same and owner == (asked.username, asked.uid) else None

    def _is_gone(self, user: UserInfo) -> bool:
        """Whether the approver is a service account that was deleted."""
        account = account_of(user.username)
        entry = self._accounts.get(*account) if account else None
        return account is not None and (entry is None or entry.meta.uid != user.uid)
