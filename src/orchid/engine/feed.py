"""The feed: every object of this server in memory, as bytes, kept current by one store watch.

A read is answered from here, a watch is fed from here, and RBAC and token checks look here. Start
with `Feed`; it has one `Shelf` per kind, and a shelf holds `Entry`s by key and the recent `Turn`s.

An `Entry` keeps the bytes that will be sent: the stored JSON with its resourceVersion put in once,
when the change arrived. It is decoded only when somebody asks for `.object`, and then only once.

Order. Batches are applied one after the other; `revision` moves when a batch is applied, so whoever
waits for a revision finds everything up to it. Shelves tell their listeners of each batch after that.
"""

import asyncio
import contextlib
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from orchid.engine.catalog import Catalog
from orchid.engine.kind import Kind
from orchid.store.interface import Event, Page, Revision, Span, Store
from orchid.wire.codec import encode
from orchid.wire.meta import Object, ObjectMeta
from orchid.wire.struct import Wire

T = TypeVar("T", bound=Object)

LONGEST_HISTORY = 102_400  # turns kept per kind, whatever their age
YIELD_EVERY = 250  # listeners told before others get a turn of the loop


class _Meta(Wire):
    metadata: ObjectMeta


_decode_meta = msgspec.json.Decoder(_Meta).decode


class Entry(Generic[T]):
    """One object at one revision. Immutable; a change makes a new entry."""

    __slots__ = ("_meta", "_object", "forms", "key", "kind", "revision", "tail")

    def __init__(self, kind: Kind[T], key: str, value: bytes, revision: Revision) -> None:
        self.kind = kind
        self.key = key
        self.revision = revision
        self.tail = with_revision(value[len(kind.head) :], revision)
        self._meta: ObjectMeta | None = None
        self._object: T | None = None
        self.forms: dict[Any, bytes] | None = None  # other encodings of it, made once

    @classmethod
    def unsaved(cls, kind: Kind[T], new: T) -> "Entry[T]":
        """An object that is answered but not stored: a dry run, or a kind that acts."""
        entry = cls.__new__(cls)
        entry.kind, entry.key, entry.revision = kind, "", 0
        entry.tail = encode(new)[len(kind.head) :]
        entry._meta, entry._object, entry.forms = None, new, None
        return entry

    def at(self, revision: Revision) -> "Entry[T]":
        """The same content at another revision: what a deletion shows."""
        other = Entry.__new__(Entry)
        other.kind, other.key, other.revision = self.kind, self.key, revision
        other.tail = self.tail.replace(
            b'"resourceVersion":"%d"' % self.revision, b'"resourceVersion":"%d"' % revision, 1
        )
        other._meta = other._object = other.forms = None
        return other

    @property
    def data(self) -> bytes:
        """The whole object as it is sent."""
        return self.kind.head + self.tail

    @property
    def object(self) -> T:
        found = self._object
        if found is None:
            found = self._object = self.kind.decoder.stored(self.data)
        return found

    @property
    def meta(self) -> ObjectMeta:
        """Its metadata alone, which is cheaper to decode than the object."""
        if self._object is not None:
            return self._object.metadata
        found = self._meta
        if found is None:
            found = self._meta = _decode_meta(self.data).metadata
        return found


class Turn(Generic[T]):
    """One change on a shelf: what was there, what is there now, and at which revision."""

    __slots__ = ("forms", "key", "new", "old", "revision")

    def __init__(
        self, key: str, new: Entry[T] | None, old: Entry[T] | None, revision: Revision
    ) -> None:
        self.key = key
        self.new = new
        self.old = old
        self.revision = revision
        self.forms: dict[Any, Any] = {}  # its encodings as an event, shared by all watchers


class Shelf(Generic[T]):
    """All objects of one kind, in key order, and its recent past."""

    def __init__(self, kind: Kind[T]) -> None:
        self.kind = kind
        self.entries: dict[str, Entry[T]] = {}
        self.turns: deque[Turn[T]] = deque()
        self.oldest: Revision = 0  # one can still watch after this revision
        self.revision: Revision = 0  # of the newest change to this kind
        self.listeners: dict[object, Callable[[list[Turn[T]]], None]] = {}
        self._keys: list[str] = []

    def get(self, namespace: str, name: str) -> Entry[T] | None:
        return self.entries.get(self.kind.key(namespace, name))

    def keys(self, prefix: str, start: str = "") -> list[str]:
        """The keys under a prefix, from `start` on, in order."""
        keys = self._keys
        low = bisect_left(keys, max(prefix, start))
        high = bisect_left(keys, prefix[:-1] + chr(ord(prefix[-1]) + 1))
        return keys[low:high]

    def scan(self, namespace: str = "") -> Iterator[Entry[T]]:
        """Every entry, or those of one namespace, in key order."""
        prefix = self.kind.key_prefix + (f"{namespace}/" if namespace else "")
        for key in self.keys(prefix):
            yield self.entries[key]

    def since(self, revision: Revision) -> Iterator[Turn[T]]:
        """The turns after a revision, oldest first."""
        newer = []
        for turn in reversed(self.turns):
            if turn.revision <= revision:
                break
            newer.append(turn)
        return reversed(newer)

    def listen(self, listener: object, callback: Callable[[list[Turn[T]]], None]) -> None:
        """Have the callback called with each batch of turns, until `forget(listener)`."""
        self.listeners[listener] = callback

    def forget(self, listener: object) -> None:
        self.listeners.pop(listener, None)

    def load(self, entries: dict[str, Entry[T]], oldest: Revision) -> None:
        self.entries = entries
        self._keys = sorted(entries)
        self.oldest = oldest

    def remember(self, turn: Turn[T]) -> None:
        self.turns.append(turn)
        self.revision = turn.revision
        if len(self.turns) > LONGEST_HISTORY:
            self.oldest = self.turns.popleft().revision

    def apply(self, event: Event) -> Turn[T]:
        old = self.entries.get(event.key)
        new = None
        if event.value is not None:
            new = Entry(self.kind, event.key, event.value, event.revision)
            self.entries[event.key] = new
            if old is None:
                insort(self._keys, event.key)
        elif old is not None:
            del self.entries[event.key]
            del self._keys[bisect_left(self._keys, event.key)]
        turn = Turn(event.key, new, old, event.revision)
        self.remember(turn)
        return turn

    def forget_before(self, revision: Revision) -> None:
        """Drop the turns up to a revision that the store has compacted."""
        while self.turns and self.turns[0].revision <= revision:
            self.turns.popleft()
        self.oldest = max(self.oldest, revision)


class Feed:
    """Every kind's shelf, moving forward together."""

    def __init__(self, store: Store, catalog: Catalog) -> None:
        self.revision: Revision = 0
        self._store = store
        self._catalog = catalog
        self._shelves: dict[type, Shelf[Any]] = {k.type: Shelf(k) for k in catalog.stored}
        self._waiting: list[tuple[Revision, asyncio.Future[None]]] = []
        self._loaded = asyncio.Event()
        self.following = False  # whether changes in the store reach us

    def shelf(self, kind: Kind[T]) -> Shelf[T]:
        return self._shelves[kind.type]

    def of(self, type_: type[T]) -> Shelf[T]:
        return self._shelves[type_]

    @property
    def loaded(self) -> bool:
        return self._loaded.is_set()

    async def wait_loaded(self) -> None:
        await self._loaded.wait()

    async def fresh(self) -> Revision:
        """Wait until every write acknowledged before this call is here."""
        newest = await self._store.revision()
        if newest > self.revision:
            await self.reach(newest)
        return self.revision

    async def reach(self, revision: Revision) -> None:
        """Wait until the feed is at least at a revision."""
        if revision > self.revision:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((revision, future))
            await future

    async def reach_within(self, revision: Revision, seconds: float) -> bool:
        """Wait for a revision, but not for ever; say whether it came."""
        if revision <= self.revision:
            return True
        await asyncio.sleep(0)  # from here on there is a task, which a timeout needs
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.reach(revision)
        return revision <= self.revision

    async def run(self) -> None:
        """Load everything, then follow the store until it is closed."""
        try:
            await self._follow()
        finally:
            self.following = False

    async def _follow(self) -> None:
        page = await self._store.read(Span.all())
        self._load(page)
        self.following = True
        if page.oldest >= page.revision:
            self._advance(page.revision)
        async for batch in self._store.watch(Span.all(), after=page.oldest):
            told: dict[Shelf[Any], list[Turn[Any]]] = {}
            for event in batch.events:
                shelf = self._shelf_of(event.key)
                if shelf is None:
                    continue
                if event.revision <= page.revision:
                    shelf.remember(_past_turn(shelf.kind, event))
                else:
                    told.setdefault(shelf, []).append(shelf.apply(event))
            if batch.revision >= page.revision:
                self._advance(batch.revision)
            for shelf, turns in told.items():
                await _tell(shelf, turns)

    def forget_before(self, revision: Revision) -> None:
        """Follow the store's compaction: watches from before this revision are refused."""
        for shelf in self._shelves.values():
            shelf.forget_before(revision)

    def _load(self, page: Page) -> None:
        found: dict[Shelf[Any], dict[str, Entry[Any]]] = {s: {} for s in self._shelves.values()}
        for record in page.records:
            shelf = self._shelf_of(record.key)
            if shelf is not None:
                entry = Entry(shelf.kind, record.key, record.value, record.revision)
                found[shelf][record.key] = entry
        for shelf, entries in found.items():
            shelf.load(entries, page.oldest)

    def _shelf_of(self, key: str) -> Shelf[Any] | None:
        kind = self._catalog.of_key(key)
        return self._shelves[kind.type] if kind else None

    def _advance(self, revision: Revision) -> None:
        self.revision = revision
        self._loaded.set()
        if self._waiting:
            still = []
            for wanted, future in self._waiting:
                if wanted > revision:
                    still.append((wanted, future))
                elif not future.done():
                    future.set_result(None)
            self._waiting = still


def with_revision(tail: bytes, revision: Revision) -> bytes:
    """Put the resourceVersion in its place, behind the uid, which every stored object has.

    Inside a JSON string every quote is escaped, so the first bare `"uid":"` is the key itself.
    """
    end = tail.index(b'"', tail.index(b'"uid":"') + 7) + 1
    return b'%b,"resourceVersion":"%d"%b' % (tail[:end], revision, tail[end:])


def _past_turn(kind: Kind[Any], event: Event) -> Turn[Any]:
    new = old = None
    if event.value is not None:
        new = Entry(kind, event.key, event.value, event.revision)
    if event.previous is not None:
        old = Entry(kind, event.key, event.previous, event.previous_revision)
    return Turn(event.key, new, old, event.revision)


async def _tell(shelf: Shelf[Any], turns: list[Turn[Any]]) -> None:
    """Tell every listener, letting others run in between: a thousand watchers take a while."""
    for count, callback in enumerate(list(shelf.listeners.values()), start=1):
        callback(turns)
        if count % YIELD_EVERY == 0:
            await asyncio.sleep(0)
