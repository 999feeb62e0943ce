"""Budgets: who has to go when all together, or one address, hold too much."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.http.budget import Budget, network_of


def test_the_oldest_of_an_address_goes_when_it_holds_too_much() -> None:
    """Others are not touched by what one address does."""
    budget = Budget[str](most=100, most_per_address=10)
    budget.hold("old", "elsewhere", 10)
    budget.hold("first", "here", 6)
    budget.hold("second", "here", 4)
    at_the_limit = budget.excess("here")
    budget.hold("second", "here", 5)

    assert at_the_limit is None
    assert budget.excess("here") == "first"
    assert budget.excess("elsewhere") is None


def test_the_oldest_of_all_goes_when_there_are_too_many() -> None:
    """Growing does not make a holder younger."""
    budget = Budget[str](most=2, most_per_address=2)
    for number in range(3):
        budget.hold(f"holder {number}", f"address {number}")
    budget.hold("holder 0", "address 0", 1)

    assert budget.excess("address 2") == "holder 0"
    budget.release("holder 0")
    assert budget.excess("address 2") is None
    assert budget.oldest() == "holder 1"


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 9), st.booleans())))
def test_sums_are_those_of_what_is_held(steps: list[tuple[int, int, int, bool]]) -> None:
    """Whatever is held, changed and released, nothing is left over."""
    budget = Budget[int](most=10**6, most_per_address=10**6)
    held: dict[int, int] = {}
    for holder, _, amount, releases in steps:
        if releases:
            budget.release(holder)
            held.pop(holder, None)
        else:
            budget.hold(holder, f"address {holder % 3}", amount)
            held[holder] = amount
        assert budget.total == sum(held.values())
        assert set(budget) == set(held)
    for holder in held:
        budget.release(holder)

    assert (budget.total, len(budget), budget._sums, budget._by_address) == (0, 0, {}, {})


@pytest.mark.parametrize(
    ("peername", "network"),
    [
        (("192.0.2.7", 1), "192.0.2.7"),
        (("2001:db8:1:2:3:4:5:6", 1, 0, 0), "2001:db8:1:2::/64"),
        (("::ffff:192.0.2.7", 1, 0, 0), "192.0.2.7"),
        (("fe80::1%eth0", 1, 0, 2), "fe80::/64"),
        ("/a/socket", ""),
        (None, ""),
    ],
)
def test_peers_are_counted_by_address_or_network(peername: object, network: str) -> None:
    """All addresses of an IPv6 /64 count as one peer."""
    assert network_of(peername) == network
