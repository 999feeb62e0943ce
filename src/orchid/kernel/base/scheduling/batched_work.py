"""Short work of many requests, done together in one iteration of the event loop.

A signature takes 60 us right after another one, and 160 us after other work: its code and its
tables have left the processor's caches, and those of the request have to come back afterwards. So
requests wait with it until all requests of their iteration have come as far
(docs/decisions/0045-shared-turn.md). Nothing is cached, and no work is shared: each request gets
its own result.

A batch has a budget: so many pieces of work, and so much time. The rest waits for the next
iteration, in which the event loop has served other requests.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from orchid.kernel.base.clock import Monotonic, SystemClock
from orchid.kernel.base.scheduling.shared_result import SharedResult

A = TypeVar("A")

MOST_AT_ONCE: Final = 32
LONGEST_BATCH: Final = 0.005  # seconds; work that has begun is finished


class BatchedWork:
    """Work for the next iterations of the event loop."""

    __slots__ = ("_batches", "_monotonic")

    def __init__(self, monotonic: Monotonic = SystemClock.monotonic) -> None:
        self._monotonic = monotonic
        self._batches: deque[_Batch] = deque()  # one for each iteration; the first is scheduled

    async def run(self, work: Callable[[], A]) -> A:
        """Do some work together with that of other requests; its exceptions are raised here."""
        batches = self._batches
        if not batches or len(batches[-1].works) == MOST_AT_ONCE:
            loop = asyncio.get_running_loop()
            if not batches:
                loop.call_soon(self._run_batch, loop)
            batches.append(_Batch(loop))
        mine = _Work(work, batches[-1])
        while not mine.is_done:
            await mine.batch.done
        return mine.result()

    def _run_batch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Do the work of one batch, or as much as there is time for."""
        current = self._batches.popleft()
        end = self._monotonic() + LONGEST_BATCH
        try:
            for work in current.works:
                work.run()
                if self._monotonic() >= end:
                    break
        finally:
            if not current.works[-1].is_done:
                rest = [work for work in current.works if not work.is_done]
                self._batches.appendleft(_Batch(loop, rest))
            if self._batches:
                loop.call_soon(self._run_batch, loop)
            current.done.finish(None)


class _Batch:
    """Work of one iteration."""

    __slots__ = ("done", "works")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, works: "list[_Work[Any]] | None" = None
    ) -> None:
        self.works = works or []
        for work in self.works:
            work.batch = self
        self.done: SharedResult[None] = SharedResult(loop)


class _Work(Generic[A]):
    """One piece of work, then its result."""

    __slots__ = ("_failure", "_result", "_work", "batch", "is_done")

    _result: A

    def __init__(self, work: Callable[[], A], joined: _Batch) -> None:
        self._work = work
        self._failure: BaseException | None = None
        self.is_done = False
        self.batch = joined
        joined.works.append(self)

    def run(self) -> None:
        self.is_done = True
        try:
            self._result = self._work()
        except BaseException as failure:  # a panic of the X.509 library, too, is of one request
            self._failure = failure

    def result(self) -> A:
        if self._failure is not None:
            raise self._failure
        return self._result
