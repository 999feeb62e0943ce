"""Short work of many requests, done together in one turn of the event loop.

A signature takes 60 us right after another one, and 160 us after other work: its code and its
tables have left the processor's caches, and those of the request have to come back afterwards. So
requests wait with it until all requests of their turn have come as far
(docs/decisions/0045-shared-turn.md). Nothing is cached, and no work is shared: each request gets
the result of its own.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from orchid.shared_wait import SharedWait

A = TypeVar("A")

MOST_AT_ONCE: Final = 32  # the event loop does other work after so many


class SharedTurn:
    """Work for the next turn of the event loop."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next: _Round | None = None

    async def run(self, work: Callable[[], A]) -> A:
        """Do some work together with that of other requests; its exceptions are raised here."""
        joined = self._next
        if joined is None:
            loop = asyncio.get_running_loop()
            joined = self._next = _Round(loop)
            loop.call_soon(self._run_round, joined)
        mine = _Work(work)
        joined.works.append(mine)
        if len(joined.works) == MOST_AT_ONCE:
            self._next = None
        await joined.done
        return mine.result()

    def _run_round(self, joined: "_Round") -> None:
        if self._next is joined:
            self._next = None
        for work in joined.works:
            work.run()
        joined.done.finish(None)


class _Round:
    """What is done in one turn."""

    __slots__ = ("done", "works")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.works: list[_Work[Any]] = []
        self.done: SharedWait[None] = SharedWait(loop)


class _Work(Generic[A]):
    """One piece of work, then its result."""

    __slots__ = ("_failure", "_result", "_work")

    _result: A

    def __init__(self, work: Callable[[], A]) -> None:
        self._work = work
        self._failure: Exception | None = None

    def run(self) -> None:
        try:
            self._result = self._work()
        except Exception as failure:
            self._failure = failure

    def result(self) -> A:
        if self._failure is not None:
            raise self._failure
        return self._result
