"""The seat of a request: its place among those that are worked on at once.

The server sets `SEAT` for a request to a kind (server/fairness.py finds it). Whoever waits for
something that only others can bring about gives it back meanwhile: see `Feed.reach`. Pages wait for
nobody.
"""

from contextvars import ContextVar
from typing import Protocol


class Seat(Protocol):
    def require_room_to_wait(self) -> None:
        """Raise if too many of this caller's requests wait already; for waits that he asked for."""

    def park(self) -> None:
        """Give the seat to others."""

    def unpark(self) -> None:
        """Take a seat again, at once."""


SEAT: ContextVar[Seat | None] = ContextVar("seat", default=None)
