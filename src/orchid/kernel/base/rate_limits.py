"""Rate limits by key, with one number per key: the time at which its allowance is full again.

`network_of` is the key of a client's address.
"""

import ipaddress
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

MOST_KEYS = 20_000
CLIENT_PREFIX: Final = 64  # bits of an IPv6 address that identify a client


class RateLimit(Generic[K]):
    """At most `count` events in `seconds` for each key, evenly refilled.

    The least recently seen keys are dropped first, so that the memory is bounded.
    """

    def __init__(self, count: int, seconds: float, monotonic: Callable[[], float]) -> None:
        self._step = seconds / count
        self._seconds = seconds
        self._monotonic = monotonic
        self._full_at: dict[K, float] = {}

    def wait_for(self, key: K) -> float:
        """Count an event; return 0, or the seconds to wait if the limit is reached."""
        now = self._monotonic()
        full_at = max(self._full_at.pop(key, now), now) + self._step
        wait = full_at - now - self._seconds
        if wait > 0:
            full_at -= self._step
        self._full_at[key] = full_at
        if len(self._full_at) > MOST_KEYS:
            del self._full_at[next(iter(self._full_at))]
        return max(wait, 0.0)


def network_of(address: str) -> str:
    """The network of a client, from `host:port`: an IPv6 client has a whole /64 of addresses."""
    host = address.rpartition(":")[0].strip("[]").partition("%")[0]
    if ":" not in host:
        return host
    try:
        ipv6 = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    if ipv6.ipv4_mapped is not None:
        return str(ipv6.ipv4_mapped)
    return str(ipaddress.IPv6Network((ipv6, CLIENT_PREFIX), strict=False))
