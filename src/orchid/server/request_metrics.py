"""What is counted about requests: how many, how long, with which result.

Labels come from closed sets only (verbs, our own resources, status codes): a client cannot make
series by inventing names.
"""

from typing import Protocol

from orchid.server.exchange import Response, Stream
from orchid.server.respond import Exchange


class RequestMetrics(Protocol):
    def observe(self, exchange: Exchange, answer: Response | Stream, seconds: float) -> None: ...


class NoMetrics:
    def observe(self, exchange: Exchange, answer: Response | Stream, seconds: float) -> None:
        return None
