"""Limits of one address: requests at once, and in a second."""

import pytest

from orchid.features.introspection.addresses import (
    MOST_CONCURRENT,
    PER_SECOND,
    AddressLimits,
    AddressOverLimit,
)
from tests.unit.kernel.access.presenting import FakeClock

HERE, OTHER = "192.0.2.1:5", "192.0.2.2:5"


def test_one_address_has_so_many_requests_at_once() -> None:
    """Those of another address do not count, and one that was answered counts no more."""
    clock = FakeClock()
    limits = AddressLimits(clock.monotonic)
    places = [limits.enter(HERE) for _ in range(MOST_CONCURRENT)]

    with pytest.raises(AddressOverLimit) as over:
        limits.enter(HERE)
    limits.enter(OTHER)
    limits.leave(places[0])
    limits.enter(HERE)

    assert over.value.retry_after == 1
    with pytest.raises(AddressOverLimit):
        limits.enter(HERE)


def test_a_network_of_the_new_protocol_is_one_address() -> None:
    clock = FakeClock()
    limits = AddressLimits(clock.monotonic)
    for number in range(MOST_CONCURRENT):
        limits.enter(f"[2001:db8::{number + 1:x}]:{number}")

    with pytest.raises(AddressOverLimit):
        limits.enter("[2001:db8::ffff]:5")
    limits.enter("[2001:db8:0:1::1]:5")


def test_one_address_has_so_many_requests_in_a_second() -> None:
    """Refused requests are not answered, so they leave nothing behind."""
    clock = FakeClock()
    limits = AddressLimits(clock.monotonic)
    for _ in range(PER_SECOND):
        limits.leave(limits.enter(HERE))

    with pytest.raises(AddressOverLimit) as over:
        limits.enter(HERE)
    clock.advance(1.0)
    for _ in range(MOST_CONCURRENT):
        limits.enter(HERE)

    assert over.value.retry_after == 1
