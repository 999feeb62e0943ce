"""The newest part of the log, in memory once and shared by every watcher of a backend.

A watcher is just its last revision. While that is within the tail, its next batch is taken from
here; otherwise the watcher reads from the backend's own log. So a slow watcher costs nothing, and
memory is limited by the tail however many there are.

Start with `Following`, which implements a watch. Everything here runs in the event loop; threads
use `call_soon_threadsafe`.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from operator import attrgetter

from orchid.kernel.store.interface import (
    ABSENT,
    Batch,
    Compacted,
    Revision,
    Span,
    StoreClosed,
    StoreUnavailable,
)

Replay = Callable[[Span, Revision], Awaitable[Batch]]
"""Read the next part of the history from a log; raises Compacted and FutureRevision."""

_VALUE, _PREVIOUS = attrgetter("value"), attrgetter("previous")


class Tail:
    """The last batches, and a future that wakes all that wait for the next one."""

    def __init__(
        self,
        revision: Revision,
        oldest: Revision,
        *,
        max_events: int = 256,
        max_bytes: int = 1 << 20,
    ) -> None:
        self.revision = revision
        self.oldest = oldest  # the oldest revision, cached here
        self.floor = revision  # every event after this revision is in the tail
        self.closed = False
        self.interrupted = ""  # why the watches ended last, and how often they did
        self.interruptions = 0
        self._batches: deque[Batch] = deque()
        self._sizes: deque[int] = deque()  # of each of them, in bytes
        self._events = 0
        self._bytes = 0
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._waiting: list[asyncio.Future[None]] = []

    def check_open(self) -> None:
        """Refuse work after the end of the store."""
        if self.closed:
            raise StoreClosed("the store is closed")

    def append(self, batch: Batch) -> None:
        """Add a committed batch, and wake all waiters."""
        batches = self._batches
        # The total size of all new and replaced values.
        size = sum(map(len, filter(None, map(_VALUE, batch.events))))
        size += sum(map(len, filter(None, map(_PREVIOUS, batch.events))))
        batches.append(batch)
        self._sizes.append(size)
        self._events += len(batch.events)
        self._bytes += size
        self.revision = batch.revision
        while len(batches) > 1 and (
            self._events > self._max_events or self._bytes > self._max_bytes
        ):
            oldest = batches.popleft()
            self._events -= len(oldest.events)
            self._bytes -= self._sizes.popleft()
            self.floor = oldest.revision
        self._wake_readers()

    def jump(self, revision: Revision) -> None:
        """Move on to a revision whose events are in the log only."""
        self._batches.clear()
        self._sizes.clear()
        self._events = self._bytes = 0
        self.floor = self.revision = revision
        self._wake_readers()

    def interrupt(self, why: str) -> None:
        """End every watch, because the state of the store is unknown; new ones continue from
        here.
        """
        self.interrupted = why
        self.interruptions += 1
        self._wake_readers()

    def close(self) -> None:
        """End every watch."""
        self.closed = True
        self._wake_readers()

    def after(self, span: Span, revision: Revision) -> Batch:
        """All events of the tail after a revision that is not below its floor."""
        newest = self._batches[-1]
        if len(self._batches) == 1 or self._batches[-2].revision <= revision:
            batches = [newest]  # by far the most common: one batch behind
        else:
            batches = [batch for batch in self._batches if batch.revision > revision]
        start, end = span.start, span.end
        events = [
            event
            for batch in batches
            for event in batch.events
            if start <= event.key and (not end or event.key < end) and event.revision > revision
        ]
        return Batch(tuple(events), newest.revision)

    def wakeup(self) -> asyncio.Future[None]:
        """A future that is resolved when the tail has grown, or was interrupted or closed."""
        wakeup = asyncio.get_running_loop().create_future()
        self._waiting.append(wakeup)
        return wakeup

    def forget(self, wakeup: asyncio.Future[None]) -> None:
        """Release the future: no task waits for it any more."""
        self._waiting = [other for other in self._waiting if other is not wakeup]

    def _wake_readers(self) -> None:
        waiting, self._waiting = self._waiting, []
        for wakeup in waiting:
            if not wakeup.done():
                wakeup.set_result(None)


class Following:
    """A watch: history first, then new changes, without a gap or a repeat between them."""

    def __init__(self, tail: Tail, span: Span, after: Revision, replay: Replay) -> None:
        self._tail = tail
        self._span = span
        self._after = after
        self._replay = replay
        self._interruptions = -1  # of the tail when the first batch was requested; -1: not yet
        self._replaying = False

    def __aiter__(self) -> "Following":
        return self

    async def __anext__(self) -> Batch:
        tail = self._tail
        if self._interruptions < 0:
            await self._begin()
        while True:
            if tail.closed:
                raise StoreClosed("the store is closed")
            if tail.interruptions > self._interruptions:
                raise StoreUnavailable(tail.interrupted)
            batch = self.poll()
            if batch is not None:
                return batch
            if self._after < tail.revision:
                batch = await self._replayed()
                self._after = batch.revision
                return batch
            wakeup = tail.wakeup()
            try:
                await wakeup
            except BaseException:  # the waiting task was cancelled
                tail.forget(wakeup)
                raise

    def poll(self) -> Batch | None:
        """The next batch if it is in the tail; also while `__anext__` waits for one."""
        tail = self._tail
        if self._replaying or not tail.floor <= self._after < tail.revision:
            return None
        if tail.closed or tail.interruptions != self._interruptions:
            return None
        batch = tail.after(self._span, self._after)
        self._after = batch.revision
        return batch

    async def aclose(self) -> None:
        """Nothing is held between two batches."""

    async def _begin(self) -> None:
        tail, after = self._tail, self._after
        if after < ABSENT:
            raise ValueError(f"not a revision: {after}")
        if after < tail.oldest:
            raise Compacted(after, tail.oldest)
        if after > tail.revision and not tail.closed:
            # Either the future, or a commit on its way to us that a read has already returned.
            await self._replayed()
        self._interruptions = tail.interruptions

    async def _replayed(self) -> Batch:
        self._replaying = True
        try:
            return await self._replay(self._span, self._after)
        finally:
            self._replaying = False
