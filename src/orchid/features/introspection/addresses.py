"""Limits of one endpoint for each client address: concurrent requests, and requests per second.

An IPv6 client has a whole /64 of addresses, so these count as one.
"""

from collections.abc import Callable
from math import ceil
from typing import Final

from orchid.kernel.base.rate_limits import RateLimit, network_of

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
        self._concurrent: dict[str, int] = {}

    def enter(self, address: str) -> str:
        """Count a request; returns the key for `leave`. Raises AddressOverLimit."""
        key = network_of(address)
        others = self._concurrent.get(key, 0)
        if others >= MOST_CONCURRENT:
            raise AddressOverLimit(1)
        wait = self._rate.wait_for(key)
        if wait:
            raise AddressOverLimit(ceil(wait))
        self._concurrent[key] = others + 1
        return key

    def leave(self, key: str) -> None:
        """The request is answered."""
        others = self._concurrent.pop(key) - 1
        if others:
            self._concurrent[key] = others
