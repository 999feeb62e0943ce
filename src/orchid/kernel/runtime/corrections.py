"""Corrections: a bound on how often a controller corrects an object that others keep changing.

The first correction of an object is immediate. Each further one waits twice as long as the one
before, up to a minute; an object that nobody changed for that long starts again. Somebody who
changes an object in a loop thus makes the controller write once a minute. Only for corrections: a
change of what the controller publishes is no correction, and never waits.
"""

from collections.abc import Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from orchid.kernel.base.clock import Clock
from orchid.kernel.runtime.work_queue import BackOff

K = TypeVar("K", bound=Hashable)

BACK_OFF: Final = BackOff(first=0.5, longest=60.0)
MOST: Final = 10_000  # objects; the ones that were corrected longest ago are forgotten


class _Last(NamedTuple):
    """The last correction of an object."""

    in_a_row: int
    until: float  # the next one is allowed then, on the monotonic clock


class Corrections(Generic[K]):
    """The last corrections of a controller, by object."""

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._last: dict[K, _Last] = {}

    def wait_for(self, key: K) -> float:
        """Seconds until an object may be corrected; 0.0 counts as a correction now."""
        now, last = self._monotonic(), self._last.get(key)
        if last is not None and now < last.until:
            return last.until - now
        self._last.pop(key, None)
        is_again = last is not None and now < last.until + BACK_OFF.longest
        count = last.in_a_row + 1 if last is not None and is_again else 1
        self._last[key] = _Last(count, now + BACK_OFF.pause(count))
        if len(self._last) > MOST:
            del self._last[next(iter(self._last))]
        return 0.0
