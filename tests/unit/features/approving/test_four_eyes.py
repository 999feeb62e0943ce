"""Four eyes: who counts as the creator of a request, and when it matters."""

from typing import Any

import pytest

from orchid.features.approval.deciding import BY_POLICY
from orchid.features.approving.policies.four_eyes import FourEyes
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
)
from orchid.kernel.wire.errors import Conflict, Forbidden
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import MASTERS, UserInfo
from tests.unit.features.asking import SIGNING_REQUESTS, a_request
from tests.unit.features.rights.policy_world import ask

ALICE = UserInfo(username="alice", uid="1")
BOB = UserInfo(username="bob", uid="2")
ADMIN = UserInfo(username="alice", uid="1", groups=(MASTERS,))
ROOT = UserInfo(username="root", groups=(MASTERS,))
OLD = CertificateSigningRequest(
    metadata=ObjectMeta(name="r"), spec=CertificateSigningRequestSpec(username="alice", uid="1")
)
APPROVED = OLD.with_condition("Approved", "ByHand")


class Stored:
    """A feed whose caches are empty: nothing is noted of the request."""

    def of(self, _type: type) -> "Stored":
        return self

    def get(self, _namespace: str, _name: str) -> None:
        return None


async def judge(
    user: UserInfo,
    real: UserInfo | None = None,
    new: CertificateSigningRequest | None = APPROVED,
    old: CertificateSigningRequest | None = OLD,
) -> None:
    target = ask("update", "certificatesigningrequests/approval", name="r", group=ORCH.certificates)
    request = a_request(target, user)
    request.real_user = real
    feed: Any = Stored()
    await FourEyes(feed).review(request, SIGNING_REQUESTS, new, old)


@pytest.mark.parametrize(
    ("user", "real"),
    [
        (ALICE, None),
        (UserInfo(username="alice"), None),
        (UserInfo(username="alice", uid="other"), None),
        (ALICE, BOB),
        (ALICE, ROOT),
        (BOB, ALICE),
        (ROOT, ALICE),
    ],
)
async def test_the_creator_does_not_approve(user: UserInfo, real: UserInfo | None) -> None:
    """Neither as themselves, nor behind another, nor in front of one; the uid does not matter."""
    with pytest.raises(Forbidden, match="created this request and may not approve it"):
        await judge(user, real)


@pytest.mark.parametrize(
    ("user", "real"),
    [
        (BOB, None),
        (BOB, ROOT),
        (ADMIN, None),
        (BOB, ADMIN),
    ],
)
async def test_anybody_else_may(user: UserInfo, real: UserInfo | None) -> None:
    """A master is exempt by groups of their own."""
    await judge(user, real)


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (OLD.with_condition("Denied", "ByHand"), OLD),
        (APPROVED, APPROVED),
        (APPROVED.with_meta(labels={"a": "b"}), APPROVED),
        (OLD, OLD),
        (APPROVED, None),
        (None, OLD),
    ],
)
async def test_only_an_approval_takes_another(
    new: CertificateSigningRequest | None, old: CertificateSigningRequest | None
) -> None:
    """The creator may deny the request, and may update it after the approval."""
    await judge(ALICE, None, new, old)


class Behind(Stored):
    """A feed that learns of a newer policy when it is asked to be fresh."""

    revision = 7

    def get(self, _namespace: str, name: str) -> Any:
        return self if name == "p" else None

    def notes(self) -> dict[str, str]:
        return {}

    async def fresh(self) -> None:
        self.revision = 8


async def test_a_policy_that_changed_elsewhere_approves_nothing() -> None:
    """A write of another server counts, although it has not arrived here yet."""
    claims = OLD.with_condition("Approved", BY_POLICY, "Approved by ApprovalPolicy p, revision 7.")
    target = ask("update", "certificatesigningrequests/approval", name="r", group=ORCH.certificates)
    feed: Any = Behind()

    with pytest.raises(Conflict, match='policy "p" has changed or is gone'):
        await FourEyes(feed).review(a_request(target, BOB), SIGNING_REQUESTS, claims, OLD)
