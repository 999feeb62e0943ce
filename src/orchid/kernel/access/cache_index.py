"""Indexes over the objects of one cache of the feed: `KeyedIndex`, and `CacheIndex` below it.

The feed reports every change. In addition, call `catch_up` before every lookup in an index: a cache
notifies its listeners one after the other, and a permission that was removed must be gone for
everybody who can already read that revision.
"""

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.kind_cache import KindCache, ObjectChange
from orchid.kernel.wire.meta import Object

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T", bound=Object)

Table = dict[K, dict[str, V]]  # the values of each key, by the object in the cache
Row = tuple[Table[Any, Any], Any, Any]  # a table, a key, and a value


class CacheIndex(Generic[T]):
    """Calls `changed(key, entry)` for each existing object, and then for each change.

    `cleared` is called first whenever the index is rebuilt. The entry of a deleted object is None.
    """

    __slots__ = ("_cache", "_changed", "_cleared", "_entries", "_oldest", "_seen")

    def __init__(
        self,
        cache: KindCache[T],
        changed: Callable[[str, Entry[T] | None], None],
        cleared: Callable[[], None],
    ) -> None:
        self._cache = cache
        self._changed = changed
        self._cleared = cleared
        self._seen = 0  # every change up to this revision is in the index
        self._oldest = 0  # up to here the cache may drop changes: they are in the index
        self._entries: dict[str, Entry[T]] | None = None
        cache.listen(self, self._on_changes, lost=self.catch_up)

    def catch_up(self) -> None:
        """Apply new changes. Costs next to nothing if there are none."""
        cache = self._cache
        if cache.entries is not self._entries:
            # Loading the feed replaced the dictionary, possibly without a single change.
            self._build()
        elif cache.revision != self._seen:
            if cache.oldest > max(self._seen, self._oldest):
                self._build()  # dropped changes may be missing in the index
            else:
                self._take_in(cache.since(self._seen))
        self._oldest = cache.oldest

    def close(self) -> None:
        self._cache.forget(self)

    def _on_changes(self, changes: Iterable[ObjectChange[T]]) -> None:
        # Earlier batches were reported before this one, so nothing is missing in between.
        if self._cache.entries is self._entries:
            self._take_in(change for change in changes if change.revision > self._seen)
        self.catch_up()

    def _take_in(self, changes: Iterable[ObjectChange[T]]) -> None:
        newest = self._seen
        for change in changes:
            self._changed(change.key, change.new)
            newest = change.revision
        self._seen = newest

    def _build(self) -> None:
        self._cleared()
        for key, entry in self._cache.entries.items():
            self._changed(key, entry)
        self._entries, self._seen = self._cache.entries, self._cache.revision


class KeyedIndex(CacheIndex[T]):
    """Tables over the objects of a cache, in which each object has the places that `rows` names.

    The places of an object that changed or was deleted are replaced; a key without values is in no
    table.
    """

    __slots__ = ("_places", "_rows")

    def __init__(self, cache: KindCache[T], rows: Callable[[str, Entry[T]], Iterable[Row]]) -> None:
        self._rows = rows
        self._places: dict[str, list[tuple[Table[Any, Any], Any]]] = {}
        super().__init__(cache, self._replace, self._clear)

    def __len__(self) -> int:
        """The number of objects with rows."""
        return len(self._places)

    def _replace(self, key: str, entry: Entry[T] | None) -> None:
        if key in self._places:
            self._remove(key)
        if entry is None:
            return
        for table, target, value in self._rows(key, entry):
            table.setdefault(target, {})[key] = value
            self._places.setdefault(key, []).append((table, target))

    def _remove(self, key: str) -> None:
        for table, target in self._places.pop(key):
            values = table.get(target)
            if values is not None:  # an object may name one place twice
                values.pop(key, None)
                if not values:
                    del table[target]

    def _clear(self) -> None:
        for key in list(self._places):
            self._remove(key)
