"""How often a controller corrects an object that somebody else keeps changing."""

import pytest

from orchid.kernel.runtime import corrections
from orchid.kernel.runtime.corrections import BACK_OFF, Corrections
from tests.unit.kernel.access.presenting import FakeClock


def test_each_further_correction_waits_twice_as_long() -> None:
    """Up to a minute; the first one is immediate."""
    clock = FakeClock()
    limit: Corrections[str] = Corrections(clock)
    pauses = []

    for _ in range(10):
        assert limit.wait_for("a") == 0.0
        pauses.append(limit.wait_for("a"))
        clock.advance(pauses[-1])

    assert pauses == pytest.approx([0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60])


def test_a_wait_is_no_correction() -> None:
    clock = FakeClock()
    limit: Corrections[str] = Corrections(clock)
    limit.wait_for("a")

    waits = [limit.wait_for("a") for _ in range(5)]
    clock.advance(0.5)

    assert waits == pytest.approx([0.5] * 5)
    assert limit.wait_for("a") == 0.0


def test_each_object_has_a_limit_of_its_own() -> None:
    limit: Corrections[str] = Corrections(FakeClock())
    limit.wait_for("a")

    assert limit.wait_for("b") == 0.0
    assert limit.wait_for("a") > 0


def test_an_object_that_stays_for_a_minute_starts_again() -> None:
    clock = FakeClock()
    limit: Corrections[str] = Corrections(clock)
    for _ in range(4):
        clock.advance(limit.wait_for("a"))
        limit.wait_for("a")

    clock.advance(limit.wait_for("a") + BACK_OFF.longest)

    assert limit.wait_for("a") == 0.0
    assert limit.wait_for("a") == pytest.approx(BACK_OFF.first)


def test_the_number_of_objects_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was corrected longest ago is forgotten."""
    monkeypatch.setattr(corrections, "MOST", 2)
    clock = FakeClock()
    limit: Corrections[str] = Corrections(clock)

    limit.wait_for("a")
    limit.wait_for("b")
    clock.advance(0.5)
    limit.wait_for("a")
    limit.wait_for("c")

    assert limit.wait_for("a") > 0
    assert limit.wait_for("b") == 0.0
