"""What keeps an approval, and what does not: time, a fetch, another name, a policy."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchid.approval.kept_approvals import KeptApproval
from orchid.controllers.clean_orders import CleanOrders, is_over
from orchid.controllers.keep_approvals import KeepApprovals
from orchid.kinds.acme_order import AcmeIdentifier, AcmeOrder, AcmeOrderSpec, AcmeOrderStatus
from orchid.kinds.issued_certificate import (
    Approval,
    Approver,
    IssuedCertificate,
    IssuedCertificateSpec,
    IssuedFor,
)
from orchid.wire.meta import ObjectMeta
from tests.unit.controllers.beside import MovingClock, beside

NOW = MovingClock().now()


def order(name: str = "one", **spec: Any) -> AcmeOrder:
    given = {"account": "a", "identifiers": (AcmeIdentifier(type="dns", value="a.example.com"),)}
    given |= {"expires": NOW, **spec}
    return AcmeOrder(
        metadata=ObjectMeta(name=name, namespace="default"), spec=AcmeOrderSpec(**given)
    )


async def test_only_approvals_of_people_are_kept(tmp_path: Path) -> None:
    """Not those of a policy or of another controller; one of ours leads back to the person."""
    kept = KeptApproval("alice", "acme-0", NOW.replace(microsecond=0), "0a")
    home = "system:serviceaccount:orch-system:"
    async with beside(tmp_path / "data") as world:
        (controller,) = world.made("acme-approvals")
        assert isinstance(controller, KeepApprovals)
        subject = ("user", "signer", frozenset({"a.example.com"}))
        controller._records[subject] = {
            "1": record("acme-1", Approver(username="alice")),
            "2": record("acme-2", Approver(username="alice", policy="web")),
            "3": record("acme-3", Approver(username=f"{home}csrapproving")),
            "4": record("acme-4", Approver(username=f"{home}acme-approvals"), str(kept)),
            "5": record("acme-5", Approver(username=f"{home}acme-approvals"), "anything"),
            "6": record("acme-6", Approver()),
        }

        found = {
            one.spec.request.name: approval for approval, one in controller._approvals(subject)
        }

    assert found == {"acme-1": KeptApproval("alice", "acme-1", NOW, "acme-1"), "acme-4": kept}


def record(request: str, approver: Approver, message: str = "") -> IssuedCertificate:
    return IssuedCertificate(
        metadata=ObjectMeta(name=request, creation_timestamp=NOW),
        spec=IssuedCertificateSpec(
            request=IssuedFor(name=request),
            approver=approver,
            approval=Approval(reason="ApprovalKept", message=message, time=NOW),
        ),
    )


@pytest.mark.parametrize(("days", "over"), [(0, False), (6, False), (7, True)])
def test_an_order_is_deleted_a_week_after_its_end(days: int, over: bool) -> None:
    assert is_over(order(), NOW + timedelta(days=days)) is over


def test_a_fetched_order_ends_with_its_fetch() -> None:
    fetched = AcmeOrder(
        spec=order(expires=NOW + timedelta(days=1)).spec, status=AcmeOrderStatus(fetched=NOW)
    )

    assert is_over(fetched, NOW + timedelta(days=7))


async def test_old_orders_are_swept(tmp_path: Path) -> None:
    async with beside(tmp_path / "data") as world:
        old = await world.admin.create(order("old", expires=NOW - timedelta(days=8)))
        new = await world.admin.create(order("new", expires=NOW + timedelta(hours=1)))
        (cleaner,) = world.made("acme-order-cleaner")
        assert isinstance(cleaner, CleanOrders)

        await cleaner.sweep()

        assert await world.admin.find(AcmeOrder, old.name, "default") is None
        assert await world.admin.find(AcmeOrder, new.name, "default") is not None
