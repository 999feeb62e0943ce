"""Polling: repeat until a condition holds, or the time is over."""

import time
from collections.abc import Callable, Iterator

from orchid.kernel.base.clock import Monotonic, SystemClock

SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 2.0


def polls(
    seconds: float,
    monotonic: Monotonic = SystemClock.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Yield immediately, then after growing pauses; the last time when `seconds` are over."""
    deadline, pause = monotonic() + seconds, SHORTEST_PAUSE
    while True:
        yield
        left = deadline - monotonic()
        if left <= 0:
            return
        sleep(min(pause, left))
        pause = min(pause * 1.5, LONGEST_PAUSE)
