"""Long work takes turns: a few steps in each turn of the event loop, so that nobody else waits.

The event loop serves every socket that is ready before it goes on. A step of a TLS handshake costs
a third of a millisecond or more, so that five hundred strangers who come at once would hold it
for half a second; so would a thousand watchers, each of whom gets the next piece of a large
collection. `Turns.ask` does a step at once while there is room in this turn of the loop; whoever
comes after that waits for the next. It knows nothing of TLS and of streams.
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
        self._due = False  # the next turn is known to the loop
        self._waiting: deque[Step] = deque()

    def ask(self, step: Step) -> None:
        """Have a step done, now or in its turn."""
        if not self._left:
            self.wait(step)
            return
        self._left -= 1
        self._schedule()
        step()

    def wait(self, step: Step) -> None:
        """Have a step done in its turn, behind those who wait."""
        self._waiting.append(step)
        self._schedule()

    def _schedule(self) -> None:
        if not self._due:
            self._due = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        """A new turn: first come those who wait."""
        self._due = False
        self._left = self._at_once
        while self._left and self._waiting:
            self.ask(self._waiting.popleft())
