"""KindCache: all objects of one kind in key order, its recent history, and its listeners.

The feed applies each change of the store here; readers take entries from here, and watchers get
each `ObjectChange`: the object before and after.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, takewhile
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.snapshot import Snapshot
from orchid.kernel.engine.cache.sorted_keys import SortedKeys
from orchid.kernel.engine.kind import Kind
from orchid.kernel.store.interface import Revision, Span, StoreEvent
from orchid.kernel.wire.errors import NotFound, StoreReadError
from orchid.kernel.wire.meta import Object

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)

MOST_UNREADABLE_NAMED = 100  # names of objects in one error
HISTORY_BYTES = 128 << 20  # of changes in the history, of all kinds together
OVERHEAD = 400  # bytes of one change besides its objects
DROPPED_TOGETHER = 64  # changes at most, to make room for others
LARGEST_JOINED_LIST, MOST_JOINED_LISTS = (
    1 << 20,
    8,
)  # cached lists, per kind: bytes of one, and their number


class ObjectChange(msgspec.Struct, Generic[T], eq=False, gc=False):
    """A change of a cache: the object before, after, and the revision."""

    key: str
    new: Entry[T] | None
    old: Entry[T] | None
    revision: Revision
    forms: dict[Any, Any] | None = None  # its encodings as an event, shared by all watchers


def weight_of(changes: Iterable[ObjectChange[Any]]) -> int:
    """Bytes that are held by changes: old objects, and the new ones as events."""
    weight = 0
    for change in changes:
        old, new = change.old, change.new
        weight += OVERHEAD + (len(old.tail) if old else 0) + (len(new.tail) if new else 0)
    return weight


class HistoryBudget:
    """The limit of bytes for the history of all kinds; the largest history drops its oldest
    change.
    """

    def __init__(self, most: int = HISTORY_BYTES) -> None:
        self.most = most
        self.spent = 0
        self._caches: list[KindCache[Any]] = []

    def shared_by(self, cache: "KindCache[Any]") -> None:
        self._caches.append(cache)

    def make_room(self) -> None:
        """Drop somewhat more than needed, so that this is not done at every change."""
        enough = self.most - self.most // 64
        while self.spent > self.most:
            largest = max(self._caches, key=lambda cache: cache.kept_bytes)
            for _ in range(DROPPED_TOGETHER):
                if self.spent > enough:
                    largest.drop_oldest(1)


class CacheListener(NamedTuple, Generic[T]):
    """A listener: called with each batch of changes, and after a gap."""

    notify: Callable[[list[ObjectChange[T]]], None]
    lost: Callable[[], None] | None


class KindCache(Generic[T]):
    """All objects of one kind, in key order, and its recent history."""

    def __init__(self, kind: Kind[T], budget: HistoryBudget | None = None) -> None:
        self.kind = kind
        self._budget = budget or HistoryBudget()
        self._budget.shared_by(self)
        self.entries: dict[str, Entry[T]] = {}
        self.unreadable: dict[str, Revision] = {}  # keys whose bytes cannot be decoded
        self.changes: deque[ObjectChange[T]] = deque()
        self.kept_bytes = 0  # size of the history
        self.oldest: Revision = 0  # the oldest revision from which a watch can start
        self.revision: Revision = 0  # of the newest change to this kind
        self.generation = 0  # incremented with every change
        self.listeners: dict[object, CacheListener[T]] = {}
        # The last events that were sent to watchers as one batch, and their encodings.
        self.last_batch: tuple[list[Any], list[Any]] | None = None
        self._keys = SortedKeys()
        self._joined: dict[str, tuple[Revision, bytes]] = {}

    def get(self, namespace: str, name: str) -> Entry[T] | None:
        return self.entries.get(self.kind.key(namespace, name))

    def find(self, kind: Kind[T], namespace: str, name: str) -> Entry[T]:
        """One object in one of the versions of its kind; raises if there is none."""
        key = kind.key(namespace, name)
        entry = self.entries.get(key)
        if entry is not None:
            return entry if entry.kind.head == kind.head else entry.served_as(kind)
        if key in self.unreadable:
            raise StoreReadError(kind.about(name), [key.removeprefix(kind.key_prefix)])
        raise NotFound(kind.about(name))

    def require_readable(self, prefix: str) -> None:
        """Raise if an object under a prefix cannot be decoded."""
        length = len(self.kind.key_prefix)
        names = sorted(key[length:] for key in self.unreadable if key.startswith(prefix))
        if names:
            raise StoreReadError(self.kind.about(), names[:MOST_UNREADABLE_NAMED])

    def under(self, prefix: str, start: str = "") -> Snapshot[T]:
        """The entries under a prefix, from the key `start` on."""
        return Snapshot(self._keys, self.entries, max(prefix, start), Span.prefix(prefix).end)

    def scan(self, namespace: str = "") -> Iterator[Entry[T]]:
        """Every entry, or those of one namespace, in key order."""
        prefix = self.kind.key_prefix + (f"{namespace}/" if namespace else "")
        return iter(self.under(prefix))

    def as_of(self, revision: Revision, prefix: str, start: str = "") -> Snapshot[T]:
        """The entries under a prefix as of a revision in the history."""
        before: dict[str, Entry[T] | None] = {}
        for change in self.since(revision):
            before.setdefault(change.key, change.old)
        end = Span.prefix(prefix).end
        return Snapshot(self._keys, self.entries, max(prefix, start), end, before)

    def joined_tails(self, prefix: str) -> bytes:
        """All tails under a prefix as the items of a list, joined once per change."""
        joined = self._joined.get(prefix)
        if joined is not None and joined[0] == self.revision:
            return joined[1]
        items = b",{".join([entry.tail for entry in self.under(prefix)])
        if len(items) <= LARGEST_JOINED_LIST:
            if len(self._joined) >= MOST_JOINED_LISTS:
                self._joined.clear()
            self._joined[prefix] = (self.revision, items)
        return items

    def is_joined(self, prefix: str) -> bool:
        """Whether the tails under a prefix are joined already."""
        known = self._joined.get(prefix)
        return known is not None and known[0] == self.revision

    def since(self, revision: Revision) -> Iterator[ObjectChange[T]]:
        """The changes after a revision, oldest first."""
        newer = []
        for change in reversed(self.changes):
            if change.revision <= revision:
                break
            newer.append(change)
        return reversed(newer)

    def listen(
        self,
        listener: object,
        notify: Callable[[list[ObjectChange[T]]], None],
        lost: Callable[[], None] | None = None,
    ) -> None:
        """Call `notify` with each batch of changes, until `forget(listener)`.

        `lost` is called when changes were missed and are no longer available; `entries` is then a
        new dictionary with the current objects.
        """
        self.listeners[listener] = CacheListener(notify, lost)

    def forget(self, listener: object) -> None:
        self.listeners.pop(listener, None)

    def load(
        self,
        entries: dict[str, Entry[T]],
        oldest: Revision,
        unreadable: dict[str, Revision] | None = None,
    ) -> None:
        """Start over with the objects of the store, without history."""
        self.entries = entries
        self.unreadable = unreadable or {}
        self._keys = SortedKeys(entries)
        self._joined.clear()
        self.drop_oldest(len(self.changes))
        self.oldest, self.revision = oldest, 0
        self.generation += 1

    def remember(self, changes: Sequence[ObjectChange[T]]) -> None:
        """Add changes to the history, for watches that start before them."""
        self.changes.extend(changes)
        self.revision = changes[-1].revision
        self.generation += 1
        weight, budget = weight_of(changes), self._budget
        self.kept_bytes += weight
        budget.spent += weight
        if budget.spent > budget.most:
            budget.make_room()

    def drop_oldest(self, number: int) -> None:
        """Drop the oldest changes: no watch can start before them any more."""
        changes = self.changes
        dropped = [changes.popleft() for _ in range(min(number, len(changes)))]
        if dropped:
            self.oldest = max(self.oldest, dropped[-1].revision)
        weight = weight_of(dropped)
        self.kept_bytes -= weight
        self._budget.spent -= weight

    def apply(self, events: Iterable[StoreEvent], *, ours: bool = False) -> list[ObjectChange[T]]:
        """Apply changes; if this program has encoded them, they are `ours` and not decoded."""
        kind, entries, make = self.kind, self.entries, Entry.stored if ours else Entry.read
        changes: list[ObjectChange[T]] = []
        added: list[str] = []
        for event in events:
            key, value, revision = event.key, event.value, event.revision
            old, new = entries.get(key), None
            if self.unreadable:
                self.unreadable.pop(key, None)
            if value is not None:
                try:
                    new = make(kind, key, value, revision)
                except ValueError:  # readers see it as deleted
                    _log_unreadable(key, revision)
                    self.unreadable[key] = revision
            if new is not None:
                entries[key] = new
                if old is None:
                    added.append(key)
            elif old is not None:
                del entries[key]
                self._keys.add(added)  # this one may be among them
                added.clear()
                self._keys.remove(key)
            changes.append(ObjectChange(key, new, old, revision))
        self._keys.add(added)
        self.remember(changes)
        return changes

    def forget_before(self, revision: Revision) -> None:
        """Refuse watches from before a revision; changes up to it become unreachable."""
        self.oldest = max(self.oldest, revision)

    def drop_useless(self, most: int) -> int:
        """Drop at most `most` unreachable changes; return how many."""
        first = islice(self.changes, most)
        useless = sum(1 for _ in takewhile(lambda change: change.revision <= self.oldest, first))
        self.drop_oldest(useless)
        return useless


def read_or_none(kind: Kind[T], key: str, value: bytes, revision: Revision) -> Entry[T] | None:
    """The entry of stored bytes; None, and a log line, if they cannot be decoded."""
    try:
        return Entry.read(kind, key, value, revision)
    except ValueError:
        _log_unreadable(key, revision)
        return None


def _log_unreadable(key: str, revision: Revision) -> None:
    log.error("feed.unreadable_object", extra={"key": key, "revision": revision})


def past_change(kind: Kind[Any], event: StoreEvent) -> ObjectChange[Any]:
    new = old = None
    if event.value is not None:
        new = read_or_none(kind, event.key, event.value, event.revision)
    if event.previous is not None:
        old = read_or_none(kind, event.key, event.previous, event.previous_revision)
    return ObjectChange(event.key, new, old, event.revision)
