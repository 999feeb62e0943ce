"""Each condition under which an earlier approval counts refuses it by itself."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.approval.kept_approvals import REASON, KeptApproval
from orchid.features.approving.policies.four_eyes import FourEyes
from orchid.features.approving.policies.kept_approvals import KeptApprovals
from orchid.features.certificates.kinds import certificate_signing_request
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
)
from orchid.features.certificates.kinds.issued_certificate import (
    Approval,
    Approver,
    IssuedCertificate,
    IssuedCertificateSpec,
    IssuedCertificateStatus,
    IssuedFor,
    Requester,
    Revoked,
)
from orchid.kernel.engine.interfaces import Rejected
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.request_conditions import APPROVED
from orchid.kernel.wire.struct import replace
from tests.unit.features.asking import a_request
from tests.unit.features.certificates.test_record_issued import TARGET

KIND = certificate_signing_request.declare(ORCH)
SIGNER = "example.com/web"
TIME = datetime(2026, 11, 19, 12, tzinfo=UTC)
DEPLOYER = "system:serviceaccount:web:deployer"
KEPT = KeptApproval("alice", "acme-1", TIME, "0a")
OLD = CertificateSigningRequest(
    metadata=ObjectMeta(name="acme-2"),
    spec=CertificateSigningRequestSpec(signer_name=SIGNER, username="frontend", uid="u1"),
)
RECORD = IssuedCertificate(
    spec=IssuedCertificateSpec(
        signer_name=SIGNER,
        request=IssuedFor(name="acme-1"),
        requester=Requester(username="frontend", uid="u1"),
        approver=Approver(username="alice", groups=("approvers",), credential_ids=("JTI=1",)),
        approval=Approval(time=TIME),
    )
)


def recorded(**spec: Any) -> IssuedCertificate:
    return replace(RECORD, spec=replace(RECORD.spec, **spec))


class Server:
    """A server with one record, and an approver in the group `approvers`."""

    def __init__(self, record: IssuedCertificate, *, revoked: bool, account_uid: str) -> None:
        self.record, self.revoked, self.account_uid = record, revoked, account_uid
        self.checked: list[Any] = []

    async def fresh(self) -> None:
        self.checked.append("fresh")

    def of(self, kind: Any) -> Any:
        def get(namespace: str, name: str) -> Any:
            if kind is ServiceAccount:
                meta = SimpleNamespace(uid=self.account_uid)
                return SimpleNamespace(meta=meta) if self.account_uid else None
            return SimpleNamespace(object=self.record) if name == "0a" else None

        return SimpleNamespace(get=get)

    async def authorize(self, user: Any, target: Any) -> Any:
        is_right = (target.verb, target.resource, target.name) == ("approve", "signers", SIGNER)
        return SimpleNamespace(allowed=is_right and "approvers" in user.groups)

    def refuse_action(self, user: Any, ids: Any, moment: datetime) -> None:
        self.checked.append((user.username, ids, moment))
        if self.revoked:
            raise Rejected("revoked")


async def problem(
    record: IssuedCertificate = RECORD,
    kept: object = KEPT,
    *,
    revoked: bool = False,
    account_uid: str = "u2",
) -> str:
    server: Any = Server(record, revoked=revoked, account_uid=account_uid)
    policy = KeptApprovals(ORCH, server, server, server.refuse_action)
    new = OLD.with_condition(APPROVED, REASON, str(kept))
    try:
        await policy.review(a_request(TARGET), KIND, new, OLD)
    except Forbidden as refusal:
        return str(refusal)
    assert server.checked[0] == "fresh"
    assert server.checked[1][1:] == (record.spec.approver.credential_ids, TIME)
    return ""


def approver(**parts: Any) -> IssuedCertificate:
    return recorded(approver=replace(RECORD.spec.approver, **parts))


async def test_an_approval_in_the_inventory_counts() -> None:
    by_account = approver(username=DEPLOYER, uid="u2")

    assert await problem() == ""
    assert await problem(by_account, KEPT._replace(approver=DEPLOYER)) == ""


@pytest.mark.parametrize(
    ("record", "kept"),
    [
        (RECORD, "alice said so"),
        (RECORD, KEPT._replace(certificate="0b")),
        (RECORD, KEPT._replace(request="acme-3")),
        (RECORD, KEPT._replace(approver="bob")),
        (RECORD, KEPT._replace(time=TIME + timedelta(days=1))),
        (recorded(signer_name="example.com/clients"), KEPT),
        (recorded(cluster="edge"), KEPT),
        (recorded(requester=Requester(username="other", uid="u1")), KEPT),
        (recorded(requester=Requester(username="frontend", uid="u3")), KEPT),
        (recorded(approval=Approval()), KEPT),
        (approver(policy="web"), KEPT),
    ],
)
async def test_an_approval_that_is_not_in_the_inventory_is_none(
    record: IssuedCertificate, kept: object
) -> None:
    assert "does not have it for this requester" in await problem(record, kept)


async def test_an_approval_ends_with_its_approver() -> None:
    by_account = approver(username=DEPLOYER, uid="u2")
    kept = KEPT._replace(approver=DEPLOYER)

    assert "by impersonation" in await problem(approver(impersonator="bob"))
    assert "may not approve" in await problem(approver(groups=("others",)))
    assert "revoked" in await problem(revoked=True)
    assert "is gone" in await problem(by_account, kept, account_uid="")
    assert "is gone" in await problem(by_account, kept, account_uid="u4")


@pytest.mark.parametrize(("reason", "counts"), [("superseded", True), ("keyCompromise", False)])
async def test_an_approval_ends_with_its_certificate(reason: str, counts: bool) -> None:
    """Unless an equal one superseded it, because nobody fetched it."""
    status = IssuedCertificateStatus(revoked=Revoked(reason=reason))

    assert (await problem(replace(RECORD, status=status)) == "") is counts


async def test_the_approver_then_did_not_create_the_request() -> None:
    """Four eyes, also for an earlier approval: the impersonator at the creation is the approver."""
    feed: Any = Server(RECORD, revoked=False, account_uid="")
    notes = {"createdBy": "alice"}
    entry = SimpleNamespace(notes=lambda: notes)
    feed.of = lambda kind: SimpleNamespace(get=lambda namespace, name: entry)
    new = OLD.with_condition(APPROVED, REASON, str(KEPT))

    with pytest.raises(Forbidden, match='"alice" created this request'):
        await FourEyes(feed).review(a_request(TARGET), KIND, new, OLD)
    notes.clear()
    await FourEyes(feed).review(a_request(TARGET), KIND, new, OLD)
