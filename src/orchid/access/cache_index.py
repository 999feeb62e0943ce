"""CacheIndex: follows one cache of the feed, for indexes over its objects.

The feed tells of every change. Besides, whoever answers from an index calls `catch_up` first: a
cache tells its listeners one after the other, and a right that was taken away must be gone for
whoever can already read that revision.
"""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from orchid.engine.cache.entry import Entry
from orchid.engine.cache.kind_cache import KindCache, ObjectChange
from orchid.wire.meta import Object

T = TypeVar("T", bound=Object)


class CacheIndex(Generic[T]):
    """Call `changed(key, entry)` for each object there is, and for each change from then on.

    `cleared` comes first whenever everything is built anew. The entry of a deleted object is None.
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
        self._oldest = 0  # up to here the cache may forget changes: they had been seen
        self._entries: dict[str, Entry[T]] | None = None
        cache.listen(self, self._told, lost=self.catch_up)

    def catch_up(self) -> None:
        """Take in what is new. Costs next to nothing when there is nothing."""
        cache = self._cache
        if cache.entries is not self._entries:
            # Loading the feed put a new dictionary in place, possibly without a single change.
            self._build()
        elif cache.revision != self._seen:
            if cache.oldest > max(self._seen, self._oldest):
                self._build()  # what was forgotten meanwhile may not have been seen
            else:
                self._take_in(cache.since(self._seen))
        self._oldest = cache.oldest

    def close(self) -> None:
        self._cache.forget(self)

    def _told(self, changes: Iterable[ObjectChange[T]]) -> None:
        # Every earlier batch was told before this one, so nothing is missing in between.
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
