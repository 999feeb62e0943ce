"""One call for all that wait for its result.

A result must be newer than its request: a caller that asks during a running call does not get that
call's result, which may be older, but shares the next one. A failure is raised for all waiting
callers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from functools import partial
from typing import Final, Generic, TypeVar

from orchid.kernel.base.scheduling.shared_result import SharedResult

A = TypeVar("A")

# Iterations of the event loop between two calls: callers that just got a result are likely to ask
# again, and then share the next call. Under load, one call serves 26 of 32 connections instead of
# 15; an idle event loop takes some microseconds for one.
ITERATIONS_BETWEEN: Final = 8


class SharedCall(Generic[A]):
    """Makes one call at a time, and at least one after each request."""

    def __init__(self, call: Callable[[], Awaitable[A]], failure: type[Exception]) -> None:
        """`failure`: what the call raises, and what callers get after `close`."""
        self._call = call
        self._failure = failure
        self._next: SharedResult[A] | None = None  # of all that wait for the next call
        self._asking: asyncio.Task[None] | None = None

    async def ask(self) -> A:
        """Wait for a result that is newer than this request."""
        loop = asyncio.get_running_loop()
        wait = self._next
        if wait is None:
            wait = self._next = SharedResult(loop)
            wait.is_open = True
        if self._asking is None:
            # Runs in an empty context, so that no caller's context variables leak into it.
            self._asking = loop.create_task(self._ask(), context=Context())
        return await wait

    async def close(self) -> None:
        """Cancel the running call; waiting tasks get an error."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])

    async def _ask(self) -> None:
        asked: SharedResult[A] | None = None
        try:
            while self._next is not None:
                asked, self._next = self._next, None
                asked.is_open = False
                try:
                    answer = await self._call()
                except self._failure as error:
                    # It was retried for long enough: later requests need not wait as long.
                    later, self._next = self._next, None
                    self._fail(str(error), asked, later)
                else:
                    asked.finish(answer)
                    for _ in range(ITERATIONS_BETWEEN):
                        await asyncio.sleep(0)
        finally:
            self._asking = None
            left, self._next = self._next, None
            self._fail("closed", asked, left)

    def _fail(self, text: str, *waits: SharedResult[A] | None) -> None:
        for wait in waits:
            if wait is not None and not wait.is_over:
                wait.fail(partial(self._failure, text))
