"""Times of the next check: regular checks of all items together, waiting for approval, retries.

`RegularChecks` has one time for all items of an agent, so that a regular check needs one
connection. `CheckSchedule` is that of one item: the next regular check, unless the item is due for
renewal before, waits for approval or has failed.
"""

import random
from typing import Final

from orchid.kernel.base.clock import Monotonic

CHECK_SPREAD: Final = 0.2
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
LEAST_OF_LONGEST: Final = 0.8
WAITING_GROWTH: Final = 1.5
AFTER_DENIAL: Final = 3600.0
AFTER_SWAP: Final = 60.0  # a program may still be reading the files of the last generation


class RegularChecks:
    """The time of the next regular check of all items, by the monotonic clock."""

    def __init__(self, seconds: int, monotonic: Monotonic, chance: random.Random) -> None:
        self.seconds = seconds
        self._monotonic, self._chance = monotonic, chance
        self._due = 0.0
        self._is_spread = False  # whether an earlier pause was a random part of the interval

    def following(self) -> float:
        """The time of the next one, which begins where the last one is over."""
        now = self._monotonic()
        if self._due <= now:
            # Hosts may join together: the first pause spreads their checks over the interval.
            least, most = (1 - CHECK_SPREAD, 1 + CHECK_SPREAD) if self._is_spread else (0.0, 1.0)
            self._due = now + self.seconds * self._chance.uniform(least, most)
            self._is_spread = True
        return self._due


class CheckSchedule:
    """The time of the next attempt for one item, by the monotonic clock."""

    def __init__(self, regular: RegularChecks, monotonic: Monotonic, chance: random.Random) -> None:
        self.due = 0.0
        self.is_fresh = False  # by the last attempt
        self._regular = regular
        self._monotonic, self._chance = monotonic, chance
        self._failures = 0
        self._pause = FIRST_PAUSE

    def is_due(self) -> bool:
        return self._monotonic() >= self.due

    def now(self) -> None:
        self.due = 0.0

    def fresh(self, renewal_seconds: float | None) -> None:
        """The next regular check, or the renewal if that is earlier."""
        self.is_fresh, self._failures, self._pause = True, 0, FIRST_PAUSE
        self.due = self._regular.following()
        if renewal_seconds is not None:
            self.due = min(self.due, self._monotonic() + max(renewal_seconds, 1.0))

    def waiting(self) -> None:
        self._failures = 0
        self._after(self._pause)
        self._pause = min(self._pause * WAITING_GROWTH, LONGEST_PAUSE)

    def denied(self, seconds: float = AFTER_DENIAL) -> None:
        self._after(seconds)

    def failed(self, retry_after: float = 0.0) -> None:
        """Full jitter over a growing pause. The longest one varies little: by then, agents are
        spread over all of it, and short pauses would let more of them return in the same second.
        """
        longest = min(FIRST_PAUSE * 2.0**self._failures, LONGEST_PAUSE)
        least = longest * LEAST_OF_LONGEST if longest == LONGEST_PAUSE else 0.0
        self._failures = min(self._failures + 1, 16)
        self._after(max(self._chance.uniform(least, longest), retry_after))

    def after(self, seconds: float) -> None:
        self._after(seconds)

    def _after(self, seconds: float) -> None:
        self.is_fresh = False
        self.due = self._monotonic() + seconds
