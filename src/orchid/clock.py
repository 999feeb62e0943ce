"""Clocks, passed in so that tests can replace them: the time of day, and a monotonic clock.

`SystemClock` is the machine's. Use `now` to compare times of day, and `monotonic` to measure
durations.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import Protocol

Monotonic = Callable[[], float]  # for callers that need only this of a Clock


class Clock(Protocol):
    def now(self) -> datetime:
        """The current time in UTC."""

    def monotonic(self) -> float:
        """Seconds since some fixed time; they never go back."""


class SystemClock:
    """The clocks of the machine."""

    now = staticmethod(partial(datetime.now, UTC))
    monotonic = staticmethod(monotonic)
