"""Long work in steps: a few in each iteration of the event loop.

The event loop serves every ready socket before it continues. A step of a TLS handshake costs a
third of a millisecond or more, so that five hundred new connections would block it for half a
second; so would a thousand watchers that each get the next piece of a large collection.
`StepQueue.run` runs a step immediately while this iteration has room; further steps wait for the
next. It knows nothing of TLS and of streams.
"""

import asyncio
from collections import deque

from orchid.kernel.base.scheduling.shared_result import Step


class StepQueue:
    """Steps of one kind, in the order in which they were added."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int) -> None:
        self._loop = loop
        self._most = most  # steps in one iteration
        self._left = most
        self._is_scheduled = False  # the next iteration
        self._waiting: deque[Step] = deque()

    def run(self, step: Step) -> None:
        """Run a step now, or later if this iteration has no room."""
        if not self._left:
            self.add(step)
            return
        self._left -= 1
        self._schedule()
        step()

    def add(self, step: Step) -> None:
        """Run a step after those that wait, in a later iteration."""
        self._waiting.append(step)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        """A new iteration: waiting steps come first."""
        self._is_scheduled = False
        self._left = self._most
        while self._left and self._waiting:
            self.run(self._waiting.popleft())
