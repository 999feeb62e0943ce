"""Long work takes turns: a few steps in each turn of the event loop.

The event loop serves every ready socket before it continues. A step of a TLS handshake costs a
third of a millisecond or more, so that five hundred new connections would block it for half a
second; so would a thousand watchers that each get the next piece of a large collection. `Turns.ask`
runs a step immediately while there is room in this turn of the loop; further steps wait for the
next. It knows nothing of TLS and of streams.
"""

import asyncio
from collections import deque
from collections.abc import Callable

Step = Callable[[], None]


class Turns:
    def __init__(self, loop: asyncio.AbstractEventLoop, at_once: int) -> None:
        self._loop = loop
        self._at_once = at_once  # steps in one turn
        self._left = at_once
        self._due = False  # the next turn is scheduled
        self._waiting: deque[Step] = deque()

    def ask(self, step: Step) -> None:
        """Run a step, now or in its turn."""
        if not self._left:
            self.wait(step)
            return
        self._left -= 1
        self._schedule()
        step()

    def wait(self, step: Step) -> None:
        """Run a step in its turn, after those that wait."""
        self._waiting.append(step)
        self._schedule()

    def _schedule(self) -> None:
        if not self._due:
            self._due = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        """A new turn: waiting steps come first."""
        self._due = False
        self._left = self._at_once
        while self._left and self._waiting:
            self.ask(self._waiting.popleft())
