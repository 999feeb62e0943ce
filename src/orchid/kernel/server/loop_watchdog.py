"""The watchdog of the event loop: how late it is, and what blocked it.

Everything that a request does without awaiting blocks the loop, and with it all other requests.
`run` records a heartbeat many times a second and measures how late each is. A thread examines the
loop's stack when a heartbeat is overdue; the log then names the functions on it: never a value, an
argument or a line of source.
"""

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

from orchid.kernel.base.clock import Monotonic
from orchid.kernel.base.metrics import Counter, Durations

log = logging.getLogger(__name__)

BEAT: Final = 0.05  # seconds between two heartbeats
TOO_LATE: Final = 0.05  # seconds after which the loop counts as blocked
SAY_AT_MOST_EVERY: Final = 1.0
LONG: Final = 0.25  # seconds from which a line is a warning; shorter ones are counted as well
MOST_NAMES: Final = 3
BOUNDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# Frames of the event loop itself: if there are no others on the stack, the loop was idle.
_MACHINERY: Final = ("asyncio", "uvloop", "selectors", "concurrent", "threading")
IDLE: Final = "idle (process not scheduled)"


class LoopWatchdog:
    """Measures one event loop."""

    def __init__(
        self, monotonic: Monotonic, notify: Callable[[float], None] = lambda late: None
    ) -> None:
        """`notify` is called at each heartbeat with its delay in seconds."""
        self._monotonic = monotonic
        self._notify = notify
        self._due = 0.0  # when the next heartbeat is due
        self._found = ""  # the functions on the stack when the heartbeat was overdue
        self._stopped = threading.Event()
        self._said = -SAY_AT_MOST_EVERY
        self.lag = Durations(
            "orchid_event_loop_lag_seconds", "Delay of the event loop, at each heartbeat.", BOUNDS
        )
        self.held = Counter(
            "orchid_event_loop_held_total", "Number of times the loop was blocked for over 50 ms."
        )

    @property
    def found(self) -> str:
        """The functions that block the loop, if its heartbeat is overdue; innermost first."""
        return self._found

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        self._due = self._monotonic() + BEAT
        self._stopped.clear()
        watching = threading.Thread(
            target=self._watch, args=(threading.get_ident(),), name="loop-watchdog", daemon=True
        )
        watching.start()
        try:
            while True:
                await asyncio.sleep(BEAT)
                self._beat()
        finally:
            self._stopped.set()

    def _beat(self) -> None:
        now = self._monotonic()
        late = max(0.0, now - self._due)
        culprit, self._found = self._found, ""
        self._due = now + BEAT
        self.lag.observe(late)
        self._notify(late)
        if late > TOO_LATE:
            self.held.count()
            if now - self._said >= SAY_AT_MOST_EVERY:
                self._said = now
                by = culprit or IDLE
                # A busy machine is no fault of the server.
                level = logging.WARNING if late > LONG else logging.INFO
                level = logging.DEBUG if by == IDLE else level
                log.log(level, "loop.held", extra={"seconds": round(late, 3), "by": by})

    def _watch(self, thread: int) -> None:
        """Check regularly; in a thread."""
        while not self._stopped.wait(BEAT):
            if not self._found and self._monotonic() > self._due + TOO_LATE:
                frame = sys._current_frames().get(thread)
                self._found = " < ".join(names_of(frame)) or IDLE


def names_of(frame: FrameType | None) -> Iterator[str]:
    """The functions on a stack, innermost first, without those of the event loop."""
    names: list[str] = []
    while frame is not None:
        module = str(frame.f_globals.get("__name__", "?"))
        names.append("" if module.startswith(_MACHINERY) else f"{module}.{_function(frame)}")
        frame = frame.f_back
    for name in names[:MOST_NAMES]:
        if not name:
            return
        yield name


def _function(frame: FrameType) -> str:
    return getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
