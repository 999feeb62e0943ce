"""The requests of a turn wait together until earlier writes are here, before they are handled.

On a store that other servers write to, nearly every request waits for the newest revision. If each
handler did so by itself, every request would be suspended and continued once. So its turn waits
first; all turns that wait for the same result are then served together. Nothing is decided here: a
handler still compares the time at which its request arrived, and waits if its turn has not.

Start with `EarlierWrites.wait_for`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, Generic, TypeVar

from orchid.clock import Monotonic
from orchid.shared_wait import SharedWait, Step

C = TypeVar("C")

Refresh = Callable[[], Coroutine[Any, None, object]]
"""Waits until every earlier write is here."""

# A turn waits no longer; then each of its requests waits by itself.
REFRESH_SECONDS: Final = 0.1


class _Waiting(Generic[C]):
    """What waits since a time."""

    __slots__ = ("channels", "refreshing", "since")

    def __init__(
        self, channels: list[C], since: float, refreshing: Coroutine[Any, None, object]
    ) -> None:
        self.channels = channels
        self.since = since
        self.refreshing = refreshing


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
        waiting = _Waiting(channels, self._monotonic(), self._refresh())
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
        if not isinstance(awaited, SharedWait):
            self._stop(waiting)
            return
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
            if waiting.since <= late:
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
