"""Durations and times as people write and read them."""

import argparse
import datetime

import pytest

from orchid.kernel.terminal import times


@pytest.mark.parametrize(
    ("text", "seconds"), [("45s", 45), ("90m", 5400), ("1h30m", 5400), ("7d", 604_800)]
)
def test_durations_are_read(text: str, seconds: int) -> None:
    """One number with a unit, or several."""
    assert times.duration_of(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "h", "-5m", "1.5h", "5w", "5 m", "٣h", "9" * 40 + "s"])
def test_what_is_no_duration_is_a_mistake(text: str) -> None:
    """The message shows how one is written."""
    with pytest.raises(argparse.ArgumentTypeError, match="like 90m"):
        times.duration_of(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (-3, "0s"),
        (59, "59s"),
        (60, "1m"),
        (3661, "1h1m"),
        (86_400, "1d"),
        (90_061, "1d1h"),
    ],
)
def test_spans_take_at_most_two_steps(seconds: int, text: str) -> None:
    """Nobody wants the seconds of a day."""
    assert times.span(seconds) == text


@pytest.mark.parametrize("text", [None, "", "yesterday", "2026-01-01T00:00:00"])
def test_what_is_no_moment_has_no_age(text: object) -> None:
    """A moment without a zone is none."""
    assert times.age(text) == "unknown"


def test_past_and_future_are_distinguished() -> None:
    """An expired certificate is seen at once."""
    hour = datetime.timedelta(hours=1, seconds=1)

    assert times.until(times.now() + hour).endswith("(in 1h)")
    assert times.until(times.now() - hour).endswith("(1h ago)")
