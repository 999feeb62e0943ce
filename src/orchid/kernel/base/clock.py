"""Clocks, passed in so that tests can replace them: the time of day, and a monotonic clock.

`SystemClock` is the machine's. Use `now` to compare times of day, and `monotonic` to measure
durations.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from time import monotonic
from typing import Protocol

Monotonic = Callable[[], float]  # for callers that need only this of a Clock

MILLISECOND = 0.001
LONGEST_WAIT = 5.0  # seconds, for a time of issue


class Clock(Protocol):
    def now(self) -> datetime:
        """The current time in UTC."""

    def monotonic(self) -> float:
        """Seconds since some fixed time; they never go back."""


class SystemClock:
    """The clocks of the machine.

    `now` returns the same object for a millisecond, so that `whole_seconds` finds it in its cache.
    """

    monotonic = staticmethod(monotonic)

    def __init__(self) -> None:
        self._until = 0.0
        self._now = datetime.now(UTC)

    def now(self) -> datetime:
        passed = monotonic()
        if passed >= self._until:
            self._now, self._until = datetime.now(UTC), passed + MILLISECOND
        return self._now


def utc(moment: datetime) -> str:
    """A time as the API writes it, without fractions of a second (RFC 3339)."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


async def until_reached(moment: datetime, now: datetime) -> bool:
    """Wait for a moment in the next seconds; False if it is later, as by another server's clock."""
    import asyncio  # noqa: PLC0415 -- commands have a clock, and no event loop

    wait = (moment - now).total_seconds()
    if wait > LONGEST_WAIT:
        return False
    await asyncio.sleep(wait)
    return True


@lru_cache(maxsize=16)  # cutting a time to seconds takes four times as long as reading the clock
def whole_seconds(moment: datetime) -> datetime:
    """A time in UTC without its fraction of a second, as the API shows times."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.replace(microsecond=0)
