"""When certificate requests are deleted: the contract's table, and one sweep."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from orchid.features.certificates.controllers.clean_requests import is_over
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest as Request,
)
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequestStatus as Status,
)
from orchid.kernel.client.client import ListSelection
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.runtime.expiring import Cleaner
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.request_conditions import CertificateSigningRequestCondition as Condition
from tests.unit.features.beside import Beside
from tests.unit.kernel.credentials import samples

NOW = datetime(2026, 5, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


def aged(*types: str, age: timedelta, certificate: bytes = b"") -> Request:
    conditions = tuple(Condition(type=t, status="True", last_update_time=NOW - age) for t in types)
    return Request(
        metadata=ObjectMeta(name="r", creation_timestamp=NOW - age),
        status=Status(conditions=conditions, certificate=certificate),
    )


@pytest.mark.parametrize(
    ("types", "certificate", "limit"),
    [
        (("Approved",), b"any", HOUR),
        (("Denied",), b"", HOUR),
        (("Approved", "Failed"), b"", HOUR),
        ((), b"", 24 * HOUR),
        (("Approved",), b"", 24 * HOUR),
    ],
)
def test_request_goes_once_it_is_older_than_its_limit(
    types: tuple[str, ...], certificate: bytes, limit: timedelta
) -> None:
    """Exactly at the limit it stays; a second later it goes."""
    assert not is_over(aged(*types, age=limit, certificate=certificate), NOW)
    assert is_over(aged(*types, age=limit + SECOND, certificate=certificate), NOW)


def test_request_with_conditions_of_others_alone_stays() -> None:
    """A request with other conditions is left to the client that set them."""
    assert not is_over(aged("Custom", age=1000 * HOUR), NOW)


def test_condition_without_a_time_never_counts() -> None:
    """No time is not a very old time."""
    silent = Request(
        status=Status(conditions=(Condition(type="Denied", status="True"),)),
        metadata=ObjectMeta(name="r"),
    )

    assert not is_over(silent, NOW)


def test_expired_certificate_ends_its_request_at_once() -> None:
    """At any age: the certificate cannot be used any more."""
    authority = Authority.create("ca", now=NOW - 10 * HOUR)
    issued = authority.issue_client("u", lifetime=HOUR, now=NOW - 3 * HOUR)

    assert is_over(aged("Approved", age=SECOND, certificate=issued.chain), NOW)


async def test_sweep_deletes_what_is_over_and_nothing_else(world: Beside) -> None:
    """A denied request goes after an hour, a pending one stays until a day is over."""
    await world.request("pending", samples.request("alice"))
    made = await world.request("denied", samples.request("alice"))
    await world.admin.update(made.with_condition("Denied", "ByTest", "said the test"), "approval")
    (controller,) = world.made("csrcleaner")
    assert isinstance(controller, Cleaner)
    found = []

    for age in (timedelta(), timedelta(hours=1, minutes=1), timedelta(hours=24, minutes=1)):
        world.clock.ahead = age
        await controller.sweep()
        there = [name for name in ("pending", "denied") if await world.admin.find(Request, name)]
        found.append(there)

    assert found == [["pending", "denied"], ["pending"], []]


async def test_request_created_again_during_a_sweep_stays(world: Beside) -> None:
    """The sweep deletes the object that it has read, and no other one of its name."""
    old = await world.request("r", samples.request("alice"))
    (controller,) = world.made("csrcleaner")
    assert isinstance(controller, Cleaner)
    world.clock.ahead = timedelta(hours=24, minutes=1)

    scan = controller._client.scan

    async def replaced(selection: ListSelection[Request]) -> AsyncIterator[Request]:
        async for request in scan(selection):
            await world.admin.delete(Request, request.name)
            await world.request("r", samples.request("alice"))
            yield request

    controller._client.scan = replaced  # type: ignore[method-assign]  # replaces between read and delete
    await controller.sweep()

    assert (await world.admin.get(Request, "r")).metadata.uid != old.metadata.uid
