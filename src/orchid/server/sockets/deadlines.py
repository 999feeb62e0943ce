"""The time that suspended requests have: one timer of the event loop for all of them.

Nearly every request ends long before its deadline, so a timer of its own would be made only to be
cancelled. `Deadlines.add` notes a moment, and `pop` takes out who is done in time. The timer is set
for the earliest moment that was noted. When it fires it looks at all that are left; if none is, it
is not set again.
"""

import asyncio
from math import inf
from typing import Final, Protocol

from orchid.clock import Monotonic

# Seconds that an end may be late. The timer rests for so long, however many deadlines are short.
ACCURACY: Final = 0.02
_LONGEST_TIMER: Final = 86_400.0  # event loops refuse infinity


class Expiring(Protocol):
    """Somebody with a deadline."""

    def expire(self) -> None:
        """Come to an end: the deadline has passed."""


class Deadlines(dict[Expiring, float]):
    """Who has to come to an end, and when: never early, and late by `ACCURACY` at most."""

    __slots__ = ("_due", "_monotonic", "_timer")

    def __init__(self, monotonic: Monotonic) -> None:
        self._monotonic = monotonic
        self._due = inf  # when the timer fires
        self._timer: asyncio.TimerHandle | None = None

    def add(self, expiring: Expiring, seconds: float) -> None:
        """Have somebody come to an end after so many seconds, unless taken out before."""
        now = self._monotonic()
        self[expiring] = moment = now + seconds
        if moment < self._due:
            self._set_timer(moment, now)

    def close(self) -> None:
        """Forget everybody, and leave no timer behind."""
        self.clear()
        self._stop_timer()

    def _set_timer(self, moment: float, now: float) -> None:
        """Have the timer fire at a moment, or soon after it, unless it fires before anyway."""
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
        """End those whose time is over, and wait for the next of the others."""
        self._stop_timer()
        loop, now = asyncio.get_running_loop(), self._monotonic()
        for late in [one for one, moment in self.items() if moment <= now]:
            del self[late]
            loop.call_soon(late.expire)  # so that one that fails does not stop the others
        if self:
            self._set_timer(min(self.values()), now)
