"""What keeps an approval, and what does not: time, a fetch, another name, a policy."""

from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509

from orchid.features.acme.controllers.clean_orders import is_over
from orchid.features.acme.kinds.acme_account import AcmeAccount, AcmeAccountSpec
from orchid.features.acme.kinds.acme_order import (
    AcmeIdentifier,
    AcmeOrder,
    AcmeOrderSpec,
    AcmeOrderStatus,
)
from orchid.features.approval.kept_approvals import REASON, KeptApproval
from orchid.features.approving.controllers.keep_approvals import KeepApprovals
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest as Request,
)
from orchid.features.certificates.kinds.certificate_signing_request import (
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
from orchid.features.revocation.kinds.credential_revocation import CredentialRevocation
from orchid.kernel.client.client import DELETED
from orchid.kernel.runtime.expiring import Cleaner
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.references import owner_reference
from orchid.kernel.wire.request_conditions import APPROVED
from orchid.kernel.wire.struct import replace
from tests.unit.features.beside import MovingClock, beside
from tests.unit.kernel.credentials import samples

NOW = MovingClock().now()


def order(name: str = "one", version: str = "5", **spec: Any) -> AcmeOrder:
    given = {"account": "a", "identifiers": (AcmeIdentifier(type="dns", value="a.example.com"),)}
    given |= {"expires": NOW, **spec}
    owner = owner_reference(account(), "v1")
    meta = ObjectMeta(
        name=name, namespace="default", owner_references=(owner,), resource_version=version
    )
    return AcmeOrder(metadata=meta, spec=AcmeOrderSpec(**given))


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


# -- decisions, without a server ------------------------------------------------------------------

SIGNER, FRONTEND = "example.com/web", "system:serviceaccount:default:frontend"
SUBJECT = (FRONTEND, SIGNER, frozenset({"a.example.com"}))


AUTHORITY = CertificateAuthority(metadata=ObjectMeta(name="web", uid="w1"))
OTHER = CertificateAuthority(metadata=ObjectMeta(name="other", uid="w2"))


class FakeClient:
    """Finds what the test put there, and notes what is written."""

    def __init__(self, *there: Object) -> None:
        self.there = {(type(one), one.name): one for one in there}
        self.deleted: list[tuple[str, str]] = []
        self.created: list[CredentialRevocation] = []

    async def find(self, type_: type[Object], name: str, _namespace: str) -> Object | None:
        return self.there.get((type_, name))

    async def delete_gone(self, _type: Any, one: Object, *, resource_version: str = "") -> None:
        self.deleted.append((one.name, resource_version))

    async def create(self, new: CredentialRevocation) -> None:
        self.created.append(new)


def keeping(*there: Object) -> tuple[KeepApprovals, FakeClient]:
    client = FakeClient(*there)
    parts: Any = client, ORCH, MovingClock(), None
    keep = KeepApprovals(*parts)
    keep._authorities.of = {SIGNER: AUTHORITY, "example.com/other": OTHER}.get  # type: ignore[method-assign]  # without a server
    return keep, client


def account(**spec: Any) -> AcmeAccount:
    given = {"service_account_name": "frontend", "service_account_uid": "u1"}
    given |= {"authority": "web", "authority_uid": "w1", **spec}
    return AcmeAccount(metadata=ObjectMeta(name="a", uid="a1"), spec=AcmeAccountSpec(**given))


def csr(name: str = "acme-one", at: datetime = NOW, version: str = "7", **spec: Any) -> Request:
    given = {
        "request": samples.request("", (), alternative_names=(x509.DNSName("a.example.com"),)),
        "signer_name": SIGNER,
        "username": FRONTEND,
        "uid": "u1",
        **spec,
    }
    meta = ObjectMeta(name=name, creation_timestamp=at, resource_version=version)
    return Request(metadata=meta, spec=CertificateSigningRequestSpec(**given))


async def test_a_request_of_an_order_is_that_of_its_account() -> None:
    keep, _ = keeping(account(), order())

    assert await keep._order(csr()) == order()


@pytest.mark.parametrize(
    ("there", "asked"),
    [
        ((account(),), {}),
        ((order(),), {}),
        ((account().with_meta(uid="a2"), order()), {}),
        ((account(service_account_name="other"), order()), {}),
        ((account(service_account_uid="u2"), order()), {}),
        ((account(authority="other", authority_uid="w2"), order()), {}),
        ((account(authority_uid="w0"), order()), {}),
        ((account(), order()), {"signer_name": "example.com/other"}),
        ((account(), order()), {"signer_name": "example.com/none"}),
        ((account(), order(version="8")), {}),
        ((account(), order()), {"username": "frontend"}),
        ((account(), order(identifiers=(AcmeIdentifier(type="dns", value="b"),))), {}),
    ],
)
async def test_any_other_request_has_no_order(there: Any, asked: dict[str, str]) -> None:
    """Without an order or its account, of another service account or authority, for other names, or
    with an order that was created again after it."""
    keep, _ = keeping(*there)

    assert await keep._order(csr(**asked)) is None


async def test_the_older_request_is_deleted_as_it_was_seen() -> None:
    """Only this version of it, so that a decision made meanwhile stays."""
    old, new = csr("acme-one", version="7"), csr("acme-two", version="9")
    keep, client = keeping(account(), order("one"), order("two"))
    keep._waiting[SUBJECT] = {one.name: one for one in (old, new)}

    await keep._delete_older(old, SUBJECT)
    assert client.deleted == []
    await keep._delete_older(new, SUBJECT)
    assert client.deleted == [("acme-one", "7")]


async def test_an_older_request_without_an_order_is_not_ours_to_delete() -> None:
    keep, client = keeping(account(), order("two"))
    keep._waiting[SUBJECT] = {one.name: one for one in (csr("acme-one"),)}

    await keep._delete_older(csr("acme-two", version="9"), SUBJECT)

    assert client.deleted == []


def issued(request: str = "acme-one", at: datetime = NOW, **status: Any) -> IssuedCertificate:
    spec = IssuedCertificateSpec(
        request=IssuedFor(name=request),
        requester=Requester(username=FRONTEND, uid="u1"),
        signer_name=SIGNER,
        names=("A.example.com",),
        approver=Approver(username="alice"),
        approval=Approval(time=NOW.replace(microsecond=0)),
    )
    meta = ObjectMeta(
        name=f"0a{request[-3:].encode().hex()}", creation_timestamp=at, resource_version="8"
    )
    return IssuedCertificate(metadata=meta, spec=spec, status=IssuedCertificateStatus(**status))


def change(record: IssuedCertificate, type_: str = "MODIFIED") -> Any:
    return SimpleNamespace(object=record, type=type_)


def test_a_revoked_certificate_keeps_no_approval() -> None:
    """Nor one that is gone, or that a cluster reports, or of another request."""
    keep, _ = keeping()

    keep._take_record(change(replace(issued(), spec=replace(issued().spec, cluster="prod"))))
    keep._take_record(change(issued("web")))
    assert keep._records == {}
    for end in (change(issued(revoked=Revoked(reason="superseded"))), change(issued(), DELETED)):
        keep._take_record(change(issued()))
        assert list(keep._records) == [SUBJECT]
        keep._take_record(end)
        assert keep._records == {}


def decided(name: str, at: datetime, record: IssuedCertificate) -> Request:
    approval = KeptApproval("alice", record.spec.request.name, NOW.replace(microsecond=0), "0a")
    kept = approval._replace(certificate=record.name)
    return csr(name, at).with_condition(APPROVED, REASON, str(kept))


SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("after", "there", "revoked"),
    [
        (SECOND, (account(), order("one")), True),
        (timedelta(), (account(), order("one")), False),
        (-SECOND, (account(), order("one")), False),
        (SECOND, (account(), order("one", version="9")), False),
        (SECOND, (account(service_account_uid="u2"), order("one")), False),
        (SECOND, (), False),
        (SECOND, (account(), replace(order("one"), status=AcmeOrderStatus(fetched=NOW))), False),
    ],
)
async def test_a_certificate_that_was_left_is_superseded(
    after: timedelta, there: tuple[Object, ...], revoked: bool
) -> None:
    """Not one that was issued later, nor one that somebody fetched, also if its order was created
    again; nor by the order of somebody else."""
    keep, client = keeping(*there)
    record = issued()
    keep._records[SUBJECT] = {record.name: record}

    await keep._supersede(decided("acme-two", NOW + after, record), SUBJECT)

    assert bool(client.created) is revoked


async def test_the_certificate_before_is_superseded_whenever_it_was_issued() -> None:
    """The request waited for it."""
    keep, client = keeping(account(), order("one"))
    record, later = issued(), issued("acme-six")
    keep._records[SUBJECT] = {one.name: one for one in (record, later)}
    keep._successors = {record.name: "acme-two", later.name: "acme-six"}

    await keep._supersede(decided("acme-two", NOW - SECOND, record), SUBJECT)

    assert [one.spec.certificate.serial_number for one in client.created] == [""]
    assert f"acme-superseded-{record.name}-" == client.created[0].metadata.generate_name


async def test_nothing_else_is_superseded() -> None:
    """Of another approval, or the certificate of the request itself."""
    keep, client = keeping(account(), order("one"))
    record = issued()
    keep._records[SUBJECT] = {record.name: record}

    other = replace(issued(), metadata=ObjectMeta(name="0b"))
    await keep._supersede(decided("acme-two", NOW + SECOND, other), SUBJECT)
    await keep._supersede(decided("acme-one", NOW + SECOND, record), SUBJECT)
    await keep._supersede(csr("acme-two", NOW + SECOND), SUBJECT)

    assert client.created == []


FETCHED = replace(order("one", version="9"), status=AcmeOrderStatus(fetched=NOW))


@pytest.mark.parametrize(
    ("there", "unfetched"),
    [
        ((account(), order("one")), True),
        ((account(), FETCHED), False),
        ((account(), order("one", version="9")), False),
        ((order("one"),), False),
        ((account(authority="other", authority_uid="w2"), order("one")), False),
        ((), False),
    ],
    ids=["left", "fetched", "created again", "of no account", "of another authority", "gone"],
)
async def test_an_approval_is_kept_while_the_order_of_its_certificate_is_there(
    there: tuple[Object, ...], unfetched: bool
) -> None:
    """One that somebody creates again under its name says that nobody fetched anything."""
    keep, _ = keeping(*there)

    assert await keep._is_unfetched(issued(), order("two")) is unfetched


def test_a_request_that_is_gone_has_superseded_nothing() -> None:
    keep, _ = keeping()
    keep._successors = {"0a": "acme-one", "0b": "acme-two"}
    event: Any = SimpleNamespace(
        object=csr("acme-one"), type=DELETED, data=b'"name":"acme-one"', key=("", "acme-one")
    )

    keep.take(event)

    assert keep._successors == {"0b": "acme-two"}


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
        old = await world.admin.create(order("old", "", expires=NOW - timedelta(days=8)))
        new = await world.admin.create(order("new", "", expires=NOW + timedelta(hours=1)))
        (cleaner,) = world.made("acme-order-cleaner")
        assert isinstance(cleaner, Cleaner)

        await cleaner.sweep()

        assert await world.admin.find(AcmeOrder, old.name, "default") is None
        assert await world.admin.find(AcmeOrder, new.name, "default") is not None
