"""SortedKeys: the keys of one kind in order; there may be millions.

They are stored in blocks of at most `LARGEST_BLOCK`. Adding or removing a key moves only keys of
its own block, so that a write costs the same among a million as among a hundred. Counting adds up
the sizes of blocks, or of groups of them. Iterators are no copies: use them before the next change.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

LARGEST_BLOCK: Final = 1024
GROUP: Final = 64  # blocks


class SortedKeys:
    """A sorted set of strings."""

    __slots__ = ("_blocks", "_groups", "_lasts")

    def __init__(self, keys: Iterable[str] = ()) -> None:
        ordered, size = sorted(keys), LARGEST_BLOCK // 2
        self._blocks = [ordered[at : at + size] for at in range(0, len(ordered), size)]
        self._lasts = [block[-1] for block in self._blocks]  # the greatest key of each block
        self._groups: list[int] = []  # the number of keys of each group; computed on demand

    def add(self, keys: Iterable[str]) -> None:
        """Add keys that are not present."""
        blocks, lasts = self._blocks, self._lasts
        for key in keys:
            at = bisect_left(lasts, key)
            if at == len(lasts):  # after all others
                if not blocks:
                    blocks.append([])
                    lasts.append(key)
                at = len(blocks) - 1
                lasts[at] = key
            block = blocks[at]
            insort(block, key)
            if self._groups:
                self._groups[at // GROUP] += 1
            if len(block) > LARGEST_BLOCK:
                self._split(at)

    def remove(self, key: str) -> None:
        """Remove a key that is present."""
        at = bisect_left(self._lasts, key)
        block = self._blocks[at]
        del block[bisect_left(block, key)]
        if self._groups:
            self._groups[at // GROUP] -= 1
        if block:
            self._lasts[at] = block[-1]
        else:
            del self._blocks[at], self._lasts[at]
            self._groups = []

    def between(self, start: str, end: str) -> Iterator[str]:
        """The keys from `start` up to, but without, `end`."""
        return chain.from_iterable(self._slices(start, end))

    def count(self, start: str, end: str) -> int:
        """The number of keys from `start` up to, but without, `end`."""
        return 0 if end <= start else self._before(end) - self._before(start)

    def _slices(self, start: str, end: str) -> Iterator[list[str]]:
        (first, low), (last, high) = self._position(start), self._position(end)
        for at in range(first, last):
            yield self._blocks[at][low:]
            low = 0
        if low < high and first <= last:
            yield self._blocks[last][low:high]

    def _before(self, key: str) -> int:
        """The number of smaller keys."""
        blocks = self._blocks
        if not self._groups:
            starts = range(0, len(blocks), GROUP)
            self._groups = [sum(map(len, blocks[at : at + GROUP])) for at in starts]
        at, offset = self._position(key)
        group = at // GROUP
        return sum(self._groups[:group]) + sum(map(len, blocks[group * GROUP : at])) + offset

    def _position(self, key: str) -> tuple[int, int]:
        """The block, and the index in it, of the first key that is not less."""
        at = bisect_left(self._lasts, key)
        if at == len(self._blocks):
            return at, 0
        return at, bisect_left(self._blocks[at], key)

    def _split(self, at: int) -> None:
        block = self._blocks[at]
        half = len(block) // 2
        self._blocks[at : at + 1] = [block[:half], block[half:]]
        self._lasts[at : at + 1] = [block[half - 1], block[-1]]
        self._groups = []
