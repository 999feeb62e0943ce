"""The requests of a turn wait together until earlier writes are here, before they are handled.

On a store that other servers write to, nearly every request waits for the newest revision. If each
handler did so by itself, every request would be suspended and continued once. So its turn waits
first. Later turns join its wait until the store is asked, and all are then served together. Nothing
is decided here: a handler still compares the time at which its request arrived, and waits if its
turn has not.

Start with `EarlierWrites.wait_for`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, Generic, TypeVar

from orchid.kernel.base.arrival import Arrival
from orchid.kernel.base.clock import Monotonic
from orchid.kernel.base.scheduling.shared_result import SharedResult, Step

C = TypeVar("C")

Refresh = Callable[[Arrival], Coroutine[Any, None, object]]
"""Waits for all writes before the arrival.

The arrival time may increase until the store is queried.
"""

# A turn waits no longer; then each of its requests waits by itself.
REFRESH_SECONDS: Final = 0.1


class _Waiting(Generic[C]):
    """Turns that wait together: the first and the last of them since a time."""

    __slots__ = ("_arrival", "_monotonic", "awaited", "channels", "first", "refreshing", "since")

    def __init__(self, channels: list[C], refresh: Refresh, monotonic: Monotonic) -> None:
        self._monotonic = monotonic
        self.channels = channels
        self.first = self.since = monotonic()
        self._arrival = Arrival(monotonic())  # not before `since`: its requests need not ask again
        self.refreshing = refresh(self._arrival)
        self.awaited: SharedResult[Any] | None = None  # the first wait: for the store

    def join(self, channels: list[C]) -> bool:
        """Let another turn wait too, unless the store has been asked already."""
        if self.awaited is None or not self.awaited.is_open:
            return False
        self.channels += channels
        self.since = self._monotonic()
        self._arrival.moment = self._monotonic()
        return True


class EarlierWrites(Generic[C]):
    """The channels that wait, and those that have waited."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        refresh: Refresh,
        serve: Callable[[list[C], float], None],
        *,
        monotonic: Monotonic,
        together: int,
    ) -> None:
        """`serve` gets at most `together` channels, and a time by which their data had arrived."""
        self._loop = loop
        self._refresh = refresh
        self._serve = serve
        self._monotonic = monotonic
        self._together = together
        self._waiting: list[_Waiting[C]] = []
        self._timer: asyncio.TimerHandle | None = None  # while some wait
        self._waited: list[C] = []
        self._waited_since = 0.0

    def wait_for(self, channels: list[C]) -> None:
        """Serve channels when all writes before this call are here."""
        if not (self._waiting and self._waiting[-1].join(channels)):
            waiting = _Waiting(channels, self._refresh, self._monotonic)
            self._waiting.append(waiting)
            self._continue(waiting)
        self._serve_waited()

    def stop_waiting(self) -> None:
        """Serve all that wait, now."""
        for waiting in tuple(self._waiting):
            self._stop(waiting)
        while self._waited:
            self._serve_waited()

    def _continue(self, waiting: _Waiting[C]) -> None:
        """Let a refresh continue, without a task, while it waits for results that others share."""
        if waiting not in self._waiting:
            return  # too late: they are served already
        try:
            awaited = waiting.refreshing.send(None)
        except Exception:  # it is done, or each request will meet the same failure, and report it
            self._finish(waiting)
            return
        if not isinstance(awaited, SharedResult):
            self._stop(waiting)
            return
        waiting.awaited = waiting.awaited or awaited
        awaited.add(partial(self._continue, waiting), self._continue_all)
        if self._timer is None:
            self._timer = self._loop.call_later(REFRESH_SECONDS, self._stop_late)

    def _continue_all(self, steps: list[Step]) -> None:
        for step in steps:
            step()
        self._serve_waited()

    def _stop_late(self) -> None:
        """Stop the waits that have taken too long."""
        self._timer = None
        late = self._monotonic() - REFRESH_SECONDS
        for waiting in tuple(self._waiting):
            if waiting.first <= late:
                self._stop(waiting)
        if self._waiting:
            self._timer = self._loop.call_later(REFRESH_SECONDS, self._stop_late)
        self._serve_waited()

    def _stop(self, waiting: _Waiting[C]) -> None:
        waiting.refreshing.close()
        self._finish(waiting)

    def _finish(self, waiting: _Waiting[C]) -> None:
        self._waiting.remove(waiting)
        self._waited += waiting.channels
        self._waited_since = max(self._waited_since, waiting.since)

    def _serve_waited(self) -> None:
        if not self._waited:
            return
        waited = self._waited[: self._together]
        del self._waited[: self._together]
        if self._waited:
            self._loop.call_soon(self._serve_waited)
        self._serve(waited, self._waited_since)
