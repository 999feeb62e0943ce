"""The seat of a request: one of the limited number of requests that are processed concurrently.

The server sets `SEAT` when a request gets one (kernel/server/fairness.py). Code that waits for
another request releases it meanwhile: see `Feed.reach`. All requests of one caller have the same
seat, so that it also identifies the caller: see `Offload`.
"""

from contextvars import ContextVar
from typing import Protocol


class Seat(Protocol):
    def require_room_to_wait(self) -> None:
        """Raise if too many of this caller's requests are waiting; for waits that the client
        chose.
        """

    def park(self) -> None:
        """Release the seat."""

    def unpark(self) -> None:
        """Take a seat again, immediately."""

    def occupy(self, more: int) -> None:
        """Take more seats, immediately: the request has the work of several."""

    def vacate(self, more: int) -> None:
        """Release seats that were occupied."""


SEAT: ContextVar[Seat | None] = ContextVar("seat", default=None)
