"""The Merkle tree of RFC 6962: hashes of entries, of nodes, and of ranges of a log.

A log is a list of entries. Its root hash covers all of them, in order: with the root, a few hashes
prove that an entry is in the log (inclusion), or that a longer log begins with this one
(consistency). Start with `Subtree`, a range of entries with one hash; a proof is a list of them
(proofs.py). A *node* is a subtree whose size is a power of two; tiles store nodes (tiles.py).
Nothing here does I/O.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

HASH_SIZE: Final = 32
EMPTY_ROOT: Final = sha256(b"").digest()


def leaf_hash(entry: bytes) -> bytes:
    return sha256(b"\x00" + entry).digest()


def leaf_hashes(entries: Iterable[bytes]) -> list[bytes]:
    """`leaf_hash` of each, without a call for every one."""
    return [sha256(b"\x00" + entry).digest() for entry in entries]


def node_hash(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


def tree_hash(hashes: Sequence[bytes]) -> bytes:
    """The root over consecutive hashes, of any number."""
    if not hashes:
        return EMPTY_ROOT
    # The last one of an odd row has no partner: it moves up to the next row.
    row = list(hashes)
    while len(row) > 1:
        # As `node_hash`, without a call for each of hundreds.
        pairs = [sha256(b"\x01" + row[i] + row[i + 1]).digest() for i in range(0, len(row) - 1, 2)]
        row = pairs + row[len(pairs) * 2 :]
    return row[0]


class TreeNode(NamedTuple):
    """A complete subtree: the entries from `position << height` on, `1 << height` of them."""

    height: int
    position: int


class Subtree(NamedTuple):
    """The entries from `start` up to, but without, `end`, as RFC 6962 splits a tree."""

    start: int
    end: int

    def nodes(self) -> Iterator[TreeNode]:
        """Its complete subtrees, from left to right, the largest first."""
        start = self.start
        while start < self.end:
            height = (self.end - start).bit_length() - 1
            yield TreeNode(height, start >> height)
            start += 1 << height

    def hash(self, of_node: Callable[[TreeNode], bytes]) -> bytes:
        """Its hash, from those of its nodes."""
        hashes = [of_node(node) for node in self.nodes()]
        if not hashes:
            return EMPTY_ROOT
        total = hashes.pop()
        while hashes:
            total = node_hash(hashes.pop(), total)
        return total

    def halves(self) -> "tuple[Subtree, Subtree]":
        """Split as in RFC 6962: the left half is the largest power of two below the size."""
        middle = self.start + (1 << (self.end - self.start - 1).bit_length() - 1)
        return Subtree(self.start, middle), Subtree(middle, self.end)
