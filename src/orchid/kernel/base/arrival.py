"""The arrival of the current request: reads need not be newer than that.

The server sets `ARRIVAL` for each request (kernel/server/chain.py), and ends it with the request: a
task that the request has started, and that lives longer, inherits an arrival that is over. Several
servers share a store, so that a read waits until all earlier writes are here
(`Feed.fresh_for_request`). A request that is authenticated, authorized and then reads an object
waits once.
"""

from contextvars import ContextVar

import msgspec


class Arrival(msgspec.Struct, eq=False):
    """When the request arrived, on the monotonic clock; infinity once it is over."""

    moment: float


ARRIVAL: ContextVar[Arrival | None] = ContextVar("arrival", default=None)
