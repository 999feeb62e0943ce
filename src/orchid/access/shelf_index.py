"""ShelfIndex: follow one shelf of the feed, for whoever keeps an index over its objects.

The feed tells of every change. Besides, an index asks `stale` before it answers: a shelf tells its
listeners one after the other, and a right that was taken away must be gone for whoever can already
read that revision.
"""

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from orchid.engine.feed import Entry, Shelf, Turn
from orchid.wire.meta import Object

T = TypeVar("T", bound=Object)


class ShelfIndex(Generic[T]):
    """Call `changed(key, entry)` for each object there is, and for each change from then on.

    `cleared` comes first whenever everything is built anew. The entry of a deleted object is None.
    """

    __slots__ = ("_changed", "_cleared", "_entries", "_seen", "_shelf")

    def __init__(
        self,
        shelf: Shelf[T],
        changed: Callable[[str, Entry[T] | None], None],
        cleared: Callable[[], None],
    ) -> None:
        self._shelf = shelf
        self._changed = changed
        self._cleared = cleared
        self._seen = 0
        self._entries: dict[str, Entry[T]] | None = None
        shelf.listen(self, self._told)

    @property
    def stale(self) -> bool:
        # Loading the feed puts a new dictionary in place, possibly without a single turn.
        return self._shelf.revision != self._seen or self._shelf.entries is not self._entries

    def catch_up(self) -> None:
        """Take in what is new; begin anew if the turns in between are no longer remembered."""
        shelf = self._shelf
        if shelf.entries is not self._entries or shelf.oldest > self._seen:
            self._cleared()
            for key, entry in shelf.entries.items():
                self._changed(key, entry)
        else:
            for turn in shelf.since(self._seen):
                self._changed(turn.key, turn.new)
        self._entries, self._seen = shelf.entries, shelf.revision

    def close(self) -> None:
        self._shelf.forget(self)

    def _told(self, turns: Iterable[Turn[Any]]) -> None:
        if self.stale:
            self.catch_up()
