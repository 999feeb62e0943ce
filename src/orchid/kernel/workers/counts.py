"""Metrics of all processes of one server, so that any of them can show the total.

In the parent, `GatheredCounts` requests the counts of every worker and caches them, also of workers
that have ended: a counter never goes back because a worker was replaced. In a worker,
`WorkerCounts` asks the parent. For a worker that does not respond in time, its last counts are
shown.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from orchid.kernel.base.metrics import Family, joined, lasting, packed, unpacked
from orchid.kernel.store.interface import StoreUnavailable
from orchid.kernel.workers.messages import Count, Gather, Gathered, ResetCounts, WorkerMessage
from orchid.kernel.workers.remote_store import RemoteStore

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 1.0


class CountingSession(Protocol):
    """A worker, as a source of counts."""

    def send(self, message: WorkerMessage) -> None: ...


class GatheredCounts:
    """The parent's view."""

    def __init__(self) -> None:
        self._last: dict[CountingSession, bytes] = {}
        self._asked: dict[CountingSession, asyncio.Future[None]] = {}
        self._ended: list[Family] = []  # the counts of ended workers

    async def gather(
        self, asking: CountingSession, own: bytes, sessions: Iterable[CountingSession]
    ) -> list[bytes]:
        """The counts of all but the requesting worker."""
        self._last[asking] = own
        others = [session for session in sessions if session is not asking]
        if others:
            await asyncio.wait(map(self._ask, others), timeout=PATIENCE_SECONDS)
        return [packed(self._ended), *(self._last[each] for each in others if each in self._last)]

    def _ask(self, session: CountingSession) -> asyncio.Future[None]:
        """Request the counts of one worker; concurrent requests share its response."""
        waiting = self._asked.get(session)
        if waiting is None or waiting.done():
            waiting = self._asked[session] = asyncio.get_running_loop().create_future()
            session.send(Count())
        return waiting

    def counted(self, session: CountingSession, counts: bytes) -> None:
        self._last[session] = counts
        self._answered(session)

    def left(self, session: CountingSession) -> None:
        """Store the counts of a worker that has ended."""
        counts = self._last.pop(session, None)
        if counts is not None:
            try:
                self._ended = joined([self._ended, lasting(unpacked(counts))])
            except Exception:  # whatever it has sent, its end must be recorded
                log.exception("workers.counts_lost")
        self._answered(session)

    def reset(self, asking: CountingSession, sessions: Iterable[CountingSession]) -> None:
        """Reset the counts of all workers, as the requesting one has done."""
        self._last.clear()
        self._ended = []
        for session in sessions:
            if session is not asking:
                session.send(ResetCounts())

    def _answered(self, session: CountingSession) -> None:
        waiting = self._asked.pop(session, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)


class WorkerCounts:
    """A worker's access to the counts of the others."""

    def __init__(self, parent: RemoteStore) -> None:
        self._parent = parent

    def report(self, families: Callable[[], Iterable[Family]], reset: Callable[[], None]) -> None:
        """Report this worker's counts whenever the parent requests them."""
        self._parent.counts = lambda: packed(families())
        self._parent.reset_counts = reset

    async def gather(self, own: list[Family]) -> list[list[Family]]:
        try:
            gathered = await self._parent.link.ask(
                Gathered, lambda number: Gather(number, packed(own))
            )
        except StoreUnavailable:
            return []  # the parent is gone, and this worker ends with it
        return [unpacked(counts) for counts in gathered.counts]

    def reset(self) -> None:
        self._parent.link.send(ResetCounts())
