"""The seat of a request: its place among those that are worked on at once.

The server sets `SEAT` when a request was given one (server/fairness.py). Code that waits for
something that only others can bring about gives it back meanwhile: see `Feed.reach`. All requests
of one caller have the same seat, so that it also says whose work something is: see `Offload`.
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
