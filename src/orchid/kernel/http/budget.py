"""Limits for unauthenticated clients: one for all of them, and one per address.

Start with `Budget`: it counts the amount per holder, oldest first, and returns the holder to drop
when a limit is exceeded. Handshakes, connections and bytes of unfinished requests each have one. It
never closes a connection itself: its caller does.
"""

import ipaddress
from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

_IPV6_NETWORK_BITS: Final = 64  # the usual network of one customer of a provider


class Budget(Generic[T]):
    """Amounts per holder, oldest first."""

    __slots__ = ("_by_address", "_held", "_most", "_most_per_address", "_sums", "total")

    def __init__(self, most: int, most_per_address: int) -> None:
        self._most = most
        self._most_per_address = most_per_address
        self._held: dict[T, tuple[str, int]] = {}
        self._by_address: dict[str, dict[T, None]] = {}
        self._sums: dict[str, int] = {}
        self.total = 0

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._held))

    def hold(self, holder: T, address: str, amount: int = 1) -> None:
        """Set the amount of a holder; its age does not change."""
        _, before = self._held.get(holder, (address, 0))
        self._held[holder] = (address, amount)
        self._by_address.setdefault(address, {})[holder] = None
        self._sums[address] = self._sums.get(address, 0) + amount - before
        self.total += amount - before

    def release(self, holder: T) -> None:
        """Remove a holder; unknown holders are ignored."""
        address, amount = self._held.pop(holder, ("", -1))
        if amount < 0:
            return
        self.total -= amount
        holders = self._by_address[address]
        del holders[holder]
        if holders:
            self._sums[address] -= amount
        else:
            del self._by_address[address], self._sums[address]

    def oldest(self) -> T | None:
        return next(iter(self._held), None)

    def excess(self, address: str) -> T | None:
        """The holder to drop because its address, or all together, exceed the limit; or None."""
        if self._sums.get(address, 0) > self._most_per_address:
            return next(iter(self._by_address[address]))
        return self.oldest() if self.total > self._most else None


def network_of(peername: Any) -> str:
    """The address under which a peer is counted: the host, or for IPv6 its network."""
    if not isinstance(peername, tuple):
        return ""
    try:
        address = ipaddress.ip_address(str(peername[0]).partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_NETWORK_BITS), strict=False))
