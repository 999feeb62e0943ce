"""Rate limits by key."""

import pytest

from orchid.kernel.base import rate_limits
from orchid.kernel.base.rate_limits import RateLimit


class Time:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_is_allowed_and_then_one_for_each_step() -> None:
    """The allowance refills evenly; a refused event does not use any of it."""
    time = Time()
    limit: RateLimit[str] = RateLimit(10, 5.0, time)

    burst = [limit.wait_for("a") for _ in range(12)]
    time.now += 0.5
    later = [limit.wait_for("a"), limit.wait_for("a")]
    other = limit.wait_for("b")

    assert burst[:10] == [0.0] * 10
    assert burst[10:] == [pytest.approx(0.5)] * 2
    assert later == [0.0, pytest.approx(0.5)]
    assert other == 0.0


def test_an_idle_key_has_its_full_allowance_and_no_more() -> None:
    """However long it was idle."""
    time = Time()
    limit: RateLimit[str] = RateLimit(3, 3.0, time)
    limit.wait_for("a")

    time.now += 3600
    found = [limit.wait_for("a") for _ in range(4)]

    assert found[:3] == [0.0] * 3
    assert found[3] > 0


def test_the_least_recently_seen_key_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory is bounded; a key that is in use keeps its count."""
    monkeypatch.setattr(rate_limits, "MOST_KEYS", 2)
    limit: RateLimit[str] = RateLimit(1, 60.0, Time())

    found = [limit.wait_for(key) for key in ("a", "b", "a", "c", "a", "b")]

    assert [wait > 0 for wait in found] == [False, False, True, False, True, False]
