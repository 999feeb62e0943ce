"""One call for everybody who waits for its answer.

The answer must be no older than the question: whoever asks while a call is under way does not get
that call's answer, which may have been given before, but shares the next one. A failure is given to
everybody who waits.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from orchid.store.interface import StoreUnavailable

A = TypeVar("A")


class SharedCall(Generic[A]):
    """Makes a call at most once at a time, and at least once after each question."""

    def __init__(self, call: Callable[[], Awaitable[A]]) -> None:
        self._call = call
        self._waiting: list[asyncio.Future[A]] = []
        self._asking: asyncio.Task[None] | None = None

    async def ask(self) -> A:
        """Wait for an answer that was given after this question was put."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[A] = loop.create_future()
        self._waiting.append(waiting)
        if self._asking is None:
            self._asking = loop.create_task(self._ask())
        return await waiting

    async def close(self) -> None:
        """End the call that is under way; those who wait are told."""
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
                    # It was tried for long enough: those who came later need not try as long.
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
