"""ShelfIndex: follow one shelf of the feed, for whoever keeps an index over its objects.

The feed tells of every change. Besides, whoever answers from an index calls `catch_up` first: a
shelf tells its listeners one after the other, and a right that was taken away must be gone for
whoever can already read that revision.
"""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from orchid.engine.entry import Entry
from orchid.engine.shelf import Shelf, Turn
from orchid.wire.meta import Object

T = TypeVar("T", bound=Object)


class ShelfIndex(Generic[T]):
    """Call `changed(key, entry)` for each object there is, and for each change from then on.

    `cleared` comes first whenever everything is built anew. The entry of a deleted object is None.
    """

    __slots__ = ("_changed", "_cleared", "_entries", "_oldest", "_seen", "_shelf")

    def __init__(
        self,
        shelf: Shelf[T],
        changed: Callable[[str, Entry[T] | None], None],
        cleared: Callable[[], None],
    ) -> None:
        self._shelf = shelf
        self._changed = changed
        self._cleared = cleared
        self._seen = 0  # every turn up to this revision is in the index
        self._oldest = 0  # up to here the shelf may forget turns: they had been seen
        self._entries: dict[str, Entry[T]] | None = None
        shelf.listen(self, self._told)

    def catch_up(self) -> None:
        """Take in what is new. Costs next to nothing when there is nothing."""
        shelf = self._shelf
        if shelf.entries is not self._entries:
            # Loading the feed put a new dictionary in place, possibly without a single turn.
            self._build()
        elif shelf.revision != self._seen:
            if shelf.oldest != self._oldest:
                self._build()  # what was forgotten meanwhile may not have been seen
            else:
                self._take_in(shelf.since(self._seen))
        self._oldest = shelf.oldest

    def close(self) -> None:
        self._shelf.forget(self)

    def _told(self, turns: Iterable[Turn[T]]) -> None:
        # Every earlier batch was told before this one, so nothing is missing in between.
        if self._shelf.entries is self._entries:
            self._take_in(turn for turn in turns if turn.revision > self._seen)
        self.catch_up()

    def _take_in(self, turns: Iterable[Turn[T]]) -> None:
        newest = self._seen
        for turn in turns:
            self._changed(turn.key, turn.new)
            newest = turn.revision
        self._seen = newest

    def _build(self) -> None:
        self._cleared()
        for key, entry in self._shelf.entries.items():
            self._changed(key, entry)
        self._entries, self._seen = self._shelf.entries, self._shelf.revision
