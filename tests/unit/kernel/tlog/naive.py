"""A Merkle tree written straight from the definitions of RFC 6962, slow and without tiles.

It shares nothing with the code under test, which is compared with it.
"""

from collections.abc import Sequence
from hashlib import sha256


def root(entries: Sequence[bytes]) -> bytes:
    """MTH of section 2.1."""
    if not entries:
        return sha256(b"").digest()
    if len(entries) == 1:
        return sha256(b"\x00" + entries[0]).digest()
    k = _split(len(entries))
    return sha256(b"\x01" + root(entries[:k]) + root(entries[k:])).digest()


def path(m: int, entries: Sequence[bytes]) -> list[bytes]:
    """PATH of section 2.1.1."""
    if len(entries) == 1:
        return []
    k = _split(len(entries))
    if m < k:
        return [*path(m, entries[:k]), root(entries[k:])]
    return [*path(m - k, entries[k:]), root(entries[:k])]


def proof(m: int, entries: Sequence[bytes]) -> list[bytes]:
    """PROOF of section 2.1.2."""
    return _subproof(m, entries, complete=True)


def _subproof(m: int, entries: Sequence[bytes], *, complete: bool) -> list[bytes]:
    if m == len(entries):
        return [] if complete else [root(entries)]
    k = _split(len(entries))
    if m <= k:
        return [*_subproof(m, entries[:k], complete=complete), root(entries[k:])]
    return [*_subproof(m - k, entries[k:], complete=False), root(entries[:k])]


def _split(count: int) -> int:
    k = 1
    while k * 2 < count:
        k *= 2
    return k
