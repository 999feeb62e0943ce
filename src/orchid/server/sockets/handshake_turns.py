"""Handshakes take turns: a few in each turn of the event loop, so that a rush holds up nobody else.

Each step of a handshake costs a third of a millisecond or more, and the event loop serves every
socket that has something to read before it goes on: five hundred strangers who come at once would
hold it for half a second. `HandshakeTurns.ask` does a step at once while there is room in this
turn; whoever comes after that waits for the next. It knows nothing of TLS.
"""

import asyncio
from collections import deque
from typing import Final, Protocol

AT_ONCE: Final = 16  # steps in one turn


class Shaking(Protocol):
    """A connection in its handshake."""

    def is_closing(self) -> bool:
        """Whether it has come to an end meanwhile."""

    def shake_hands(self) -> None:
        """Do the next step."""


class HandshakeTurns:
    def __init__(self, loop: asyncio.AbstractEventLoop, at_once: int = AT_ONCE) -> None:
        self._loop = loop
        self._at_once = at_once
        self._left = at_once
        self._waiting: deque[Shaking] = deque()

    def ask(self, channel: Shaking) -> None:
        """Have a channel do its next step, now or in its turn."""
        if self._left == self._at_once:
            self._loop.call_soon(self._next)
        if self._left:
            self._left -= 1
            channel.shake_hands()
        else:
            self._waiting.append(channel)

    def _next(self) -> None:
        """A new turn: first come those who wait."""
        self._left = self._at_once
        while self._left and self._waiting:
            channel = self._waiting.popleft()
            if not channel.is_closing():
                self._left -= 1
                channel.shake_hands()
        if self._left < self._at_once:
            self._loop.call_soon(self._next)
