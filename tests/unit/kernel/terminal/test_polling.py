"""Polling: how often one looks, and when it ends."""

import pytest

from orchid.kernel.terminal.polling import polls


class Time:
    """Sleeping moves the hand; nobody waits."""

    def __init__(self) -> None:
        self.hand, self.slept = 1000.0, list[float]()

    def monotonic(self) -> float:
        return self.hand

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.hand += seconds


def test_pauses_grow_and_end_with_the_time() -> None:
    """The last look is when the time is over, neither earlier nor later."""
    time = Time()

    looks = [time.hand - 1000 for _ in polls(10, time.monotonic, time.sleep)]

    assert looks[0] == 0
    assert looks[-1] == pytest.approx(10)
    assert time.slept[:3] == pytest.approx([0.1, 0.15, 0.225])
    assert max(time.slept) == 2.0


def test_without_patience_there_is_one_look() -> None:
    """Without waiting, the current state is reported."""
    time = Time()

    assert len(list(polls(0, time.monotonic, time.sleep))) == 1
    assert time.slept == []
