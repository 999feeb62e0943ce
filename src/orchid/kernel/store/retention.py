"""Retention of history: compaction by age, for any backend.

A store counts revisions and knows no time. `Retention` reads the newest revision now and then,
records the time, and compacts up to a revision that is old enough. So at least the requested time
is kept, and at most one interval more. Of several servers on one store, one compacts; the others
only drop their own cached history.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from orchid.kernel.store.interface import Revision, Store, StoreError

log = logging.getLogger(__name__)

KEEP_SECONDS = 300.0
INTERVAL_SECONDS = 30.0


class Retention:
    """Keeps the last minutes of a store's history, by a monotonic clock."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float],
        *,
        keep: float = KEEP_SECONDS,
        forgotten: Callable[[Revision], None] | None = None,
    ) -> None:
        self._store = store
        self._forgotten = forgotten  # called with the oldest revision that is left
        self._clock = clock
        self._keep = keep
        self._seen: deque[tuple[float, Revision]] = deque()

    async def run(
        self,
        *,
        interval: float = INTERVAL_SECONDS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Compact regularly, until cancelled; a failing store is retried."""
        while True:
            try:
                await self.look()
            except StoreError as error:
                log.warning("store.compaction_failed: %s", error)
            await sleep(interval)

    async def look(self) -> None:
        """Record the newest revision, and compact up to one that is old enough."""
        now = self._clock()
        self._seen.append((now, await self._store.revision()))
        before: Revision | None = None
        while self._seen and self._seen[0][0] <= now - self._keep:
            before = self._seen.popleft()[1]
        if before is not None:
            if await self._store.may_compact():
                await self._store.compact(before)
            if self._forgotten is not None:
                self._forgotten(before)
