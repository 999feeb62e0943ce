"""Times of the next check of an item: regular checks, waiting for approval, retries."""

import random
from typing import Final

from orchid.clock import Monotonic

CHECK_SPREAD: Final = 0.2
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
WAITING_GROWTH: Final = 1.5
AFTER_DENIAL: Final = 3600.0
AFTER_SWAP: Final = 60.0  # a program may still be reading the files of the last generation


class CheckSchedule:
    """The time of the next attempt for one item, by the monotonic clock."""

    def __init__(self, check_seconds: int, monotonic: Monotonic, chance: random.Random) -> None:
        self.due = 0.0
        self._check_seconds = check_seconds
        self._monotonic, self._chance = monotonic, chance
        self._failures = 0
        self._pause = FIRST_PAUSE
        self._is_spread = False  # whether an earlier pause was a random part of the interval

    def is_due(self) -> bool:
        return self._monotonic() >= self.due

    def start_later(self) -> None:
        """The first check of something that is fresh: within one interval."""
        self._is_spread = True
        self._after(self._chance.uniform(0, self._check_seconds))

    def now(self) -> None:
        self.due = 0.0

    def fresh(self, renewal_seconds: float | None) -> None:
        """The next regular check, or the renewal if that is earlier."""
        self._failures, self._pause = 0, FIRST_PAUSE
        # Hosts may join together: the first pause spreads their checks over the interval.
        least, most = (1 - CHECK_SPREAD, 1 + CHECK_SPREAD) if self._is_spread else (0.0, 1.0)
        self._is_spread = True
        pause = self._check_seconds * self._chance.uniform(least, most)
        self._after(pause if renewal_seconds is None else max(min(pause, renewal_seconds), 1.0))

    def waiting(self) -> None:
        self._failures = 0
        self._after(self._pause)
        self._pause = min(self._pause * WAITING_GROWTH, LONGEST_PAUSE)

    def denied(self) -> None:
        self._after(AFTER_DENIAL)

    def failed(self, retry_after: float = 0.0) -> None:
        """Full jitter over a growing pause: after an outage, agents return at different times."""
        longest = min(FIRST_PAUSE * 2.0**self._failures, LONGEST_PAUSE)
        self._failures = min(self._failures + 1, 16)
        self._after(max(self._chance.uniform(0, longest), retry_after))

    def after(self, seconds: float) -> None:
        self._after(seconds)

    def _after(self, seconds: float) -> None:
        self.due = self._monotonic() + seconds
