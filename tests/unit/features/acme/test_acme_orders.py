"""States of ACME orders and their indexes: own records only, and no walk over all orders."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from orchid.features.acme.acme_orders import READY, VALID, AcmeOrders, OrderState
from orchid.features.acme.kinds import acme_order
from orchid.features.acme.kinds.acme_order import (
    AcmeIdentifier,
    AcmeOrder,
    AcmeOrderSpec,
    AcmeOrderStatus,
)
from orchid.features.authorities.authority_spec import CertificateAuthoritySpec
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.certificates.kinds import certificate_signing_request, issued_certificate
from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    IssuedCertificateSpec,
    IssuedFor,
    Requester,
)
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import UserInfo
from tests.unit.kernel.access.world import World, world_of

SIGNER = "example.com/web"
USER = UserInfo(username="system:serviceaccount:web:frontend", uid="u1")
AUTHORITY = CertificateAuthority(spec=CertificateAuthoritySpec(signer_name=SIGNER))
OLD = "AAAA.BBBB"


@pytest.fixture
async def here() -> AsyncIterator[World]:
    kinds = acme_order, certificate_signing_request, issued_certificate
    async with world_of(*(kind.declare(ORCH) for kind in kinds)) as made:
        yield made


@pytest.fixture
def orders(here: World) -> AcmeOrders:
    return AcmeOrders(here.feed, here.clock)


def order(here: World, name: str = "one", namespace: str = "web", **spec: Any) -> AcmeOrder:
    parts = {
        "account": "a",
        "identifiers": (AcmeIdentifier(type="dns", value="a.example.com"),),
        "expires": here.clock.now() + timedelta(hours=1),
        "replaces": OLD,
        **spec,
    }
    meta = ObjectMeta(name=name, namespace=namespace, uid=f"{namespace}-{name}")
    return AcmeOrder(metadata=meta, spec=AcmeOrderSpec(**parts))


def record(name: str, order: str = "one", **spec: Any) -> IssuedCertificate:
    parts = {
        "signer_name": SIGNER,
        "request": IssuedFor(name=f"acme-{order}"),
        "requester": Requester(username=USER.username, uid=USER.uid),
        "certificate": b"der",
        **spec,
    }
    return IssuedCertificate(
        metadata=ObjectMeta(name=name, uid=name), spec=IssuedCertificateSpec(**parts)
    )


async def test_a_record_makes_an_order_valid(here: World, orders: AcmeOrders) -> None:
    """Of the same user, by uid, and of the same signer."""
    made = await here.put(order(here))

    assert orders.state(made, USER, AUTHORITY).status == READY
    await here.put(record("0a", requester=Requester(username="other", uid="u1")))
    await here.put(record("0d", requester=Requester(username=USER.username, uid="u0")))
    await here.put(record("0b", signer_name="example.com/other"))
    assert orders.state(made, USER, AUTHORITY).status == READY
    await here.put(record("0c"))
    assert orders.state(made, USER, AUTHORITY).status == VALID


async def test_a_record_of_a_cluster_makes_no_order_valid(here: World, orders: AcmeOrders) -> None:
    made = await here.put(order(here))
    await here.put(record("prod.0a", cluster="prod"))

    assert orders.state(made, USER, AUTHORITY).status == READY
    assert list(orders.replacing(OLD)) == []


def replacing(orders: AcmeOrders) -> list[str]:
    return [f"{one.namespace}/{one.name}" for one in orders.replacing(OLD)]


async def test_only_orders_with_a_certificate_replace_one(here: World, orders: AcmeOrders) -> None:
    """Whatever comes first, and until the record or the order is gone."""
    for number in range(3):
        await here.put(order(here, f"n{number}"))
    made = await here.put(order(here))
    other = await here.put(order(here, namespace="other"))
    await here.put(order(here, "two", replaces="CCCC.DDDD"))
    assert replacing(orders) == []

    first, second = await here.put(record("0a")), await here.put(record("0b"))
    await here.put(record("0c", "two"))
    assert sorted(replacing(orders)) == ["other/one", "web/one"]
    await here.delete(first)
    await here.delete(other)
    assert replacing(orders) == ["web/one"]
    await here.delete(made)
    assert replacing(orders) == []
    await here.put(order(here))
    assert replacing(orders) == ["web/one"]
    await here.delete(second)
    assert replacing(orders) == []


async def test_orders_that_replace_are_counted_until_they_are_fetched_or_expire(
    here: World, orders: AcmeOrders
) -> None:
    now = here.clock.now()
    await here.put(order(here, "other", replaces="CCCC.DDDD"))
    await here.put(order(here, "ended", expires=now))
    made = await here.put(order(here))
    gone = await here.put(order(here, "gone"))
    assert orders.count_replacing(OLD) == 2

    await here.put(replace(made, status=AcmeOrderStatus(fetched=now)))
    assert orders.count_replacing(OLD) == 1
    await here.delete(gone)
    assert orders.count_replacing(OLD) == 0


async def test_the_certificate_of_an_order_is_that_of_its_request(
    here: World, orders: AcmeOrders
) -> None:
    """By uid: another request of the same name may have been there. Or what the state has."""
    first, second = record("0a"), record("0b")
    for one, uid in ((first, "r1"), (second, "r2")):
        issued_for = IssuedFor(name="acme-one", uid=uid)
        await here.put(replace(one, spec=replace(one.spec, request=issued_for)))

    def request(uid: str) -> CertificateSigningRequest:
        return CertificateSigningRequest(metadata=ObjectMeta(name="acme-one", uid=uid))

    def found(**state: Any) -> str | None:
        one = orders.record_of(OrderState(VALID, **state))
        return one.name if one else None

    assert [found(request=request(uid)) for uid in ("r1", "r2", "r3")] == ["0a", "0b", None]
    assert found(record=first) == "0a"
    assert found(record=first, request=request("r2")) == "0a"
    assert found() is None
