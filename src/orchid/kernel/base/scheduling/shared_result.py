"""One result for all that wait for it, without a task for each request.

On etcd nearly every request waits for the newest revision, and a task would cost as much as the
rest of a get. A coroutine without a task that awaits a `SharedResult` yields it to its driver,
which adds a step to it; all steps run together when the result is there.
"""

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

A = TypeVar("A")
Step = Callable[[], None]
Run = Callable[[list[Step]], None]


class SharedResult(Generic[A]):
    """The result of one call."""

    __slots__ = ("_failure", "_futures", "_loop", "_result", "_steps", "is_open", "is_over")

    _result: A

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._failure: Callable[[], Exception] | None = None
        self._futures: list[asyncio.Future[None]] = []
        self._steps: dict[Run, list[Step]] = {}
        self.is_open = False  # whether more may join: the result will miss nothing up to now
        self.is_over = False

    def add(self, step: Step, run: Run) -> None:
        """Continue with a step after the result; `run` gets it with all others of its kind."""
        self._steps.setdefault(run, []).append(step)

    def finish(self, result: A) -> None:
        self._result = result
        self._end()

    def fail(self, failure: Callable[[], Exception]) -> None:
        """Each waiter gets its own exception: a shared one would collect all their tracebacks."""
        self._failure = failure
        self._end()

    def _end(self) -> None:
        self.is_open, self.is_over = False, True
        for future in self._futures:
            if not future.done():
                future.set_result(None)
        for run, steps in self._steps.items():
            self._loop.call_soon(run, steps)

    def __await__(self) -> Generator[Any, Any, A]:
        if not self.is_over:
            if asyncio.current_task() is None:
                yield self
            else:
                yield from self.future()
        if self._failure is not None:
            raise self._failure()
        return self._result

    def future(self) -> asyncio.Future[None]:
        """A future for one waiting task."""
        future = self._loop.create_future()
        self._futures.append(future)
        return future

    def awaited_future(self) -> asyncio.Future[None]:
        """A future as a coroutine yields it to its task."""
        future = self.future()
        next(future.__await__())  # marks it as awaited
        return future
