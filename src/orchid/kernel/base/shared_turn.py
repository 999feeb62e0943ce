"""Short work of many requests, done together in one turn of the event loop.

A signature takes 60 us right after another one, and 160 us after other work: its code and its
tables have left the processor's caches, and those of the request have to come back afterwards. So
requests wait with it until all requests of their turn have come as far
(docs/decisions/0045-shared-turn.md). Nothing is cached, and no work is shared: each request gets
the result of its own.

A turn has a budget: so many pieces of work, and so much time. The rest waits for the next turn, in
which the event loop has served other requests.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from orchid.kernel.base.clock import Monotonic, SystemClock
from orchid.kernel.base.shared_wait import SharedWait

A = TypeVar("A")

MOST_AT_ONCE: Final = 32
LONGEST_TURN: Final = 0.005  # seconds; work that has begun is finished


class SharedTurn:
    """Work for the next turns of the event loop."""

    __slots__ = ("_monotonic", "_rounds")

    def __init__(self, monotonic: Monotonic = SystemClock.monotonic) -> None:
        self._monotonic = monotonic
        self._rounds: deque[_Round] = deque()  # one for each turn; a turn is scheduled if any

    async def run(self, work: Callable[[], A]) -> A:
        """Do some work together with that of other requests; its exceptions are raised here."""
        rounds = self._rounds
        if not rounds or len(rounds[-1].works) == MOST_AT_ONCE:
            loop = asyncio.get_running_loop()
            if not rounds:
                loop.call_soon(self._run_round, loop)
            rounds.append(_Round(loop))
        mine = _Work(work, rounds[-1])
        while not mine.is_done:
            await mine.round.done
        return mine.result()

    def _run_round(self, loop: asyncio.AbstractEventLoop) -> None:
        """Do the work of one round, or as much as fits into a turn."""
        current = self._rounds.popleft()
        end = self._monotonic() + LONGEST_TURN
        try:
            for work in current.works:
                work.run()
                if self._monotonic() >= end:
                    break
        finally:
            if not current.works[-1].is_done:
                rest = [work for work in current.works if not work.is_done]
                self._rounds.appendleft(_Round(loop, rest))
            if self._rounds:
                loop.call_soon(self._run_round, loop)
            current.done.finish(None)


class _Round:
    """Work of one turn."""

    __slots__ = ("done", "works")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, works: "list[_Work[Any]] | None" = None
    ) -> None:
        self.works = works or []
        for work in self.works:
            work.round = self
        self.done: SharedWait[None] = SharedWait(loop)


class _Work(Generic[A]):
    """One piece of work, then its result."""

    __slots__ = ("_failure", "_result", "_work", "is_done", "round")

    _result: A

    def __init__(self, work: Callable[[], A], joined: _Round) -> None:
        self._work = work
        self._failure: BaseException | None = None
        self.is_done = False
        self.round = joined
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
