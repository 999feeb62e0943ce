"""Audit: what happened, for the record. One JSON line per stage of a request."""

from typing import Protocol

from orchid.server.exchange import Response, Stream
from orchid.server.respond import Exchange


class AuditTrail(Protocol):
    def begin(self, exchange: Exchange) -> None:
        """The caller is known; nothing has been done yet."""

    def complete(self, exchange: Exchange, answer: Response | Stream) -> None:
        """The answer is made (or, for a stream, begins)."""


class NoAudit:
    """Keep no record."""

    def begin(self, exchange: Exchange) -> None:
        return None

    def complete(self, exchange: Exchange, answer: Response | Stream) -> None:
        return None
