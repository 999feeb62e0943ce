"""The time that a synchronous call may take: a limit for each wait, and one for the whole call.

A socket's own timeout starts again with each byte, so a server that sends one byte at a time could
hold a call for as long as it likes. `TimeLimit.start` begins a call; `dial` and `TimedSocket` wait
no longer than it has left, and raise `CallTooLong`. Only the resolver of the system, which has
limits of its own, is not interrupted.
"""

import socket
import ssl
from typing import Any

from orchid.kernel.base.clock import Monotonic, SystemClock


class CallTooLong(TimeoutError):
    """The call was not complete in its time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no complete answer within {seconds:g} seconds")


class TimeLimit:
    """At most `wait` seconds without a byte, and `total` seconds for all of a call."""

    def __init__(
        self, wait: float | None, total: float, monotonic: Monotonic = SystemClock.monotonic
    ) -> None:
        """Without `wait`, the socket waits without a limit."""
        self._wait, self._total = wait, total
        self._monotonic = monotonic
        self._end: float | None = None

    def start(self) -> None:
        self._end = self._monotonic() + self._total

    def lift(self) -> None:
        """Let the rest take any time: the answer is an endless stream."""
        self._wait = self._end = None

    def left(self) -> float | None:
        """Seconds that the next wait may take; raises CallTooLong."""
        if self._end is None:
            return self._wait
        left = self._end - self._monotonic()
        if left <= 0:
            raise CallTooLong(self._total)
        return left if self._wait is None else min(self._wait, left)


class TimedSocket(ssl.SSLSocket):
    """A TLS socket that obeys a time limit; `ssl.SSLContext.sslsocket_class` creates it."""

    limit: TimeLimit | None = None

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        self._limit_wait()
        return super().recv_into(buffer, nbytes, flags)

    def send(self, data: Any, flags: int = 0) -> int:
        self._limit_wait()
        return super().send(data, flags)

    def _limit_wait(self) -> None:
        if self.limit is not None:
            self.settimeout(self.limit.left())


def dial(host: str, port: int, limit: TimeLimit) -> socket.socket:
    """Connect to the first address of a host that accepts; each gets its share of the time."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    problem: OSError = ConnectionError("the name has no address")
    for index, (family, kind, protocol, _, address) in enumerate(addresses):
        left = limit.left()
        try:
            connection = socket.socket(family, kind, protocol)
        except OSError as error:  # a machine without IPv6 cannot even create it
            problem = error
            continue
        try:
            connection.settimeout(None if left is None else left / (len(addresses) - index))
            connection.connect(address)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            connection.close()
            problem = error
        else:
            return connection
    raise problem
