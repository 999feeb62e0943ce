"""Snapshot: the entries of one kind under a prefix, now or as of an earlier revision.

It is a view: cheap to create however many objects there are, and valid until the next change. For a
past revision it holds only the objects that have changed since.
"""

from collections.abc import Iterator, Mapping
from heapq import merge
from typing import Generic, TypeVar

from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.sorted_keys import SortedKeys
from orchid.kernel.wire.meta import Object

T = TypeVar("T", bound=Object)


class Snapshot(Generic[T]):
    """Entries in key order, from a first key up to, but without, a last one."""

    __slots__ = ("_before", "_end", "_entries", "_keys", "_start")

    def __init__(
        self,
        keys: SortedKeys,
        entries: Mapping[str, Entry[T]],
        start: str,
        end: str,
        before: Mapping[str, Entry[T] | None] | None = None,
    ) -> None:
        """`before` has the previous entries of changed objects; None: there was no such object."""
        self._keys = keys
        self._entries = entries
        self._start = start
        self._end = end
        self._before = {key: entry for key, entry in (before or {}).items() if start <= key < end}

    def __iter__(self) -> Iterator[Entry[T]]:
        now = self._keys.between(self._start, self._end)
        if not self._before:
            return map(self._entries.__getitem__, now)
        before = self._before
        unchanged = (key for key in now if key not in before)
        gone = sorted(key for key, entry in before.items() if entry is not None)
        return (before.get(key) or self._entries[key] for key in merge(unchanged, gone))

    def __len__(self) -> int:
        count = self._keys.count(self._start, self._end)
        for key, entry in self._before.items():
            count += (entry is not None) - (key in self._entries)
        return count

    def get(self, key: str) -> Entry[T] | None:
        if not self._start <= key < self._end:
            return None
        return self._before[key] if key in self._before else self._entries.get(key)
