"""One call for all tasks that wait for its result.

A result must be no older than its request: a task that asks during a running call does not get that
call's result, which may be older, but shares the next one. A failure is raised for all waiting
tasks.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from orchid.store.interface import StoreUnavailable

A = TypeVar("A")


class SharedCall(Generic[A]):
    """Makes one call at a time, and at least one after each request."""

    def __init__(self, call: Callable[[], Awaitable[A]]) -> None:
        self._call = call
        self._waiting: list[asyncio.Future[A]] = []
        self._asking: asyncio.Task[None] | None = None

    async def ask(self) -> A:
        """Wait for a result that is newer than this request."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[A] = loop.create_future()
        self._waiting.append(waiting)
        if self._asking is None:
            self._asking = loop.create_task(self._ask())
        return await waiting

    async def close(self) -> None:
        """Cancel the running call; waiting tasks get an error."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])

    async def _ask(self) -> None:
        asked: list[asyncio.Future[A]] = []
        try:
            while self._waiting:
                asked, self._waiting = self._waiting, []
                try:
                    answer = await self._call()
                except StoreUnavailable as error:
                    # It was retried for long enough: later requests need not wait as long.
                    later, self._waiting = self._waiting, []
                    _fail([*asked, *later], str(error))
                else:
                    for waiting in asked:
                        if not waiting.done():
                            waiting.set_result(answer)
        finally:
            self._asking = None
            left, self._waiting = [*asked, *self._waiting], []
            _fail(left, "the store is closed")


def _fail(asked: list[asyncio.Future[A]], text: str) -> None:
    """Give each waiter its own exception: a shared one would collect all their tracebacks."""
    for waiting in asked:
        if not waiting.done():
            waiting.set_exception(StoreUnavailable(text))
