"""SortedKeys: the keys of one kind in order; there may be millions.

They are kept in blocks of at most `LARGEST_BLOCK`. Adding or removing a key moves only keys of its
own block, so that a write costs the same among a million as among a hundred. Iterators are no
copies: use them before the next change.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

LARGEST_BLOCK: Final = 1024


class SortedKeys:
    """A sorted set of strings."""

    __slots__ = ("_blocks", "_lasts")

    def __init__(self, keys: Iterable[str] = ()) -> None:
        ordered, size = sorted(keys), LARGEST_BLOCK // 2
        self._blocks = [ordered[at : at + size] for at in range(0, len(ordered), size)]
        self._lasts = [block[-1] for block in self._blocks]  # of each block its greatest key

    def add(self, keys: Iterable[str]) -> None:
        """Add keys that are not there."""
        blocks, lasts = self._blocks, self._lasts
        for key in keys:
            at = bisect_left(lasts, key)
            if at == len(lasts):  # behind all others
                if not blocks:
                    blocks.append([])
                    lasts.append(key)
                at = len(blocks) - 1
                lasts[at] = key
            block = blocks[at]
            insort(block, key)
            if len(block) > LARGEST_BLOCK:
                self._split(at)

    def remove(self, key: str) -> None:
        """Remove a key that is there."""
        at = bisect_left(self._lasts, key)
        block = self._blocks[at]
        del block[bisect_left(block, key)]
        if block:
            self._lasts[at] = block[-1]
        else:
            del self._blocks[at], self._lasts[at]

    def between(self, start: str, end: str) -> Iterator[str]:
        """The keys from `start` up to, but without, `end`."""
        return chain.from_iterable(self._slices(start, end))

    def count(self, start: str, end: str) -> int:
        """How many keys there are from `start` up to, but without, `end`."""
        (first, low), (last, high) = self._place(start), self._place(end)
        return 0 if end <= start else sum(map(len, self._blocks[first:last])) - low + high

    def _slices(self, start: str, end: str) -> Iterator[list[str]]:
        (first, low), (last, high) = self._place(start), self._place(end)
        for at in range(first, last):
            yield self._blocks[at][low:]
            low = 0
        if low < high and first <= last:
            yield self._blocks[last][low:high]

    def _place(self, key: str) -> tuple[int, int]:
        """The block, and the place in it, of the first key that is not less."""
        at = bisect_left(self._lasts, key)
        if at == len(self._blocks):
            return at, 0
        return at, bisect_left(self._blocks[at], key)

    def _split(self, at: int) -> None:
        block = self._blocks[at]
        half = len(block) // 2
        self._blocks[at : at + 1] = [block[:half], block[half:]]
        self._lasts[at : at + 1] = [block[half - 1], block[-1]]
