"""Limits of one endpoint for each client address: concurrent requests, and requests per second.

An IPv6 client has a whole /64 of addresses, so these count as one.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from typing import Final

from orchid.rate_limits import RateLimit
from orchid.server.fairness import network_of

MOST_CONCURRENT: Final = 10
PER_SECOND: Final = 50


class AddressOverLimit(Exception):
    """Too many requests from one address; retry after so many seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(retry_after)
        self.retry_after = retry_after


class AddressLimits:
    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._rate: RateLimit[str] = RateLimit(PER_SECOND, 1.0, monotonic)
        self._concurrent: Counter[str] = Counter()

    @contextmanager
    def request(self, address: str) -> Iterator[None]:
        """Count a request while it is handled; raises AddressOverLimit."""
        key = network_of(address)
        if self._concurrent.get(key, 0) >= MOST_CONCURRENT:
            raise AddressOverLimit(1)
        wait = self._rate.take(key)
        if wait:
            raise AddressOverLimit(ceil(wait))
        self._concurrent[key] += 1
        try:
            yield
        finally:
            self._concurrent[key] -= 1
            if not self._concurrent[key]:
                del self._concurrent[key]
