"""The certificates of the inventory are counted by signer, however they came and went."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from orchid.features.certificates.inventory_metrics import MOST_UNCOUNTED, IssuedCounts
from orchid.features.certificates.kinds import issued_certificate
from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    IssuedCertificateSpec,
    IssuedCertificateStatus,
    Revoked,
)
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from tests.unit.kernel.access.world import World, world_of

DAY = timedelta(days=1)


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world_of(issued_certificate.declare(ORCH)) as world:
        yield world


@pytest.fixture
def counts(here: World) -> IssuedCounts:
    return IssuedCounts(here.feed.of(IssuedCertificate), here.clock)


def record(here: World, number: int, signer: str = "example.com/web") -> IssuedCertificate:
    """A certificate that ends after as many days as its number."""
    return IssuedCertificate(
        metadata=ObjectMeta(name=f"{number:x}", uid=f"uid-{number}"),
        spec=IssuedCertificateSpec(signer_name=signer, not_after=here.clock.now() + number * DAY),
    )


async def test_certificates_are_counted_by_signer(here: World, counts: IssuedCounts) -> None:
    """The gauge has the first expiry; expired certificates are not counted."""
    for number in (0, 2, 1):
        await here.put(record(here, number))
    await here.put(record(here, 3, "example.com/other"))

    found = counts.ends()

    now = int(here.clock.now().timestamp())
    day = int(DAY.total_seconds())
    assert found == {
        "example.com/web": (2, now + day),
        "example.com/other": (1, now + 3 * day),
    }


async def test_a_record_that_changes_or_goes_is_counted_once(
    here: World, counts: IssuedCounts
) -> None:
    """Whether or not somebody asked in between."""
    first, second = [await here.put(record(here, number)) for number in (1, 2)]
    before = counts.live("example.com/web")
    revoked = IssuedCertificateStatus(revoked=Revoked(time=here.clock.now()))
    await here.put(replace(first, status=revoked))
    await here.delete(second)

    after = counts.live("example.com/web")

    assert (before, after) == (2, 1)


async def test_more_certificates_than_wait_to_be_counted_are_counted(
    here: World, counts: IssuedCounts
) -> None:
    """Those that nobody has asked for yet do not pile up."""
    many = MOST_UNCOUNTED + 10
    for number in range(1, many + 1):
        await here.put(record(here, number))

    assert len(counts._uncounted) < MOST_UNCOUNTED
    assert counts.live("example.com/web") == many


async def test_reloaded_objects_are_counted_again(here: World, counts: IssuedCounts) -> None:
    """Changes from before, which were not counted yet, are not counted besides."""
    for number in (1, 2):
        await here.put(record(here, number))
    cache = here.feed.of(IssuedCertificate)
    cache.load(dict(cache.entries), cache.oldest)

    loaded = counts.live("example.com/web")
    await here.put(record(here, 3))

    assert (loaded, counts.live("example.com/web")) == (2, 3)
