"""Deadlines of suspended requests: one timer of the event loop for all of them.

Nearly every request ends long before its deadline, so a timer of its own would only be cancelled.
`Deadlines.add` adds a deadline, and `pop` removes a finished request. The timer is set for the
earliest deadline. When it fires it checks all that are left; without any, it is not set again.
"""

import asyncio
from math import inf
from typing import Final, Protocol

from orchid.kernel.base.clock import Monotonic

# Precision in seconds. The timer pauses for so long, however many deadlines are short.
ACCURACY: Final = 0.02
_LONGEST_TIMER: Final = 86_400.0  # event loops refuse infinity


class Expiring(Protocol):
    """An object with a deadline."""

    def expire(self) -> None:
        """The deadline has passed."""


class Deadlines(dict[Expiring, float]):
    """Objects and their deadlines: never early, and late by `ACCURACY` at most."""

    __slots__ = ("_due", "_monotonic", "_timer")

    def __init__(self, monotonic: Monotonic) -> None:
        self._monotonic = monotonic
        self._due = inf  # when the timer fires
        self._timer: asyncio.TimerHandle | None = None

    def add(self, expiring: Expiring, seconds: float) -> None:
        """Expire an object after so many seconds, unless it is removed before."""
        now = self._monotonic()
        self[expiring] = moment = now + seconds
        if moment < self._due:
            self._set_timer(moment, now)

    def close(self) -> None:
        """Remove all deadlines and the timer."""
        self.clear()
        self._stop_timer()

    def _set_timer(self, moment: float, now: float) -> None:
        """Make the timer fire at a time, or soon after it, unless it fires before anyway."""
        wait = min(max(moment - now, ACCURACY), _LONGEST_TIMER)
        if now + wait < self._due:
            self._stop_timer()
            self._due = now + wait
            self._timer = asyncio.get_running_loop().call_later(wait, self._look)

    def _stop_timer(self) -> None:
        self._due = inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """Expire all whose deadline has passed, and wait for the next."""
        self._stop_timer()
        loop, now = asyncio.get_running_loop(), self._monotonic()
        for late in [expiring for expiring, moment in self.items() if moment <= now]:
            del self[late]
            loop.call_soon(late.expire)  # so that a failure does not stop the others
        if self:
            self._set_timer(min(self.values()), now)
