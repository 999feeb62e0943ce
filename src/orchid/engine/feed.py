"""The feed: every object of this server in memory, as bytes, kept current by one store watch.

A read is answered from here, a watch is fed from here, and RBAC and token checks look here. Start
with `Feed`; it has one `Shelf` per kind, and a shelf holds `Entry`s by key and the recent `Turn`s.

An `Entry` keeps the bytes that will be sent: the stored JSON with its resourceVersion put in once,
when the change arrived. It is decoded only when somebody asks for `.object`, and then only once.

Order. Batches are applied one after the other; `revision` moves when a batch is applied, so
whoever waits for a revision finds everything up to it. Shelves tell their listeners of each
batch after that.

Trouble. A store that does not answer is asked again, and the watch goes on where it stopped. If
history is gone by then, everything is loaded anew, and watchers, for whom there would be a hole,
are ended: they hear that their version is too old, as after any long absence.
"""

import asyncio
import contextlib
import logging
from bisect import bisect_left, insort
from collections import ChainMap, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from orchid.engine.catalog import Catalog
from orchid.engine.kind import Kind
from orchid.store.interface import (
    Batch,
    Compacted,
    Event,
    FutureRevision,
    Page,
    Revision,
    Span,
    Store,
    StoreError,
)
from orchid.wire.codec import encode
from orchid.wire.errors import Unavailable
from orchid.wire.meta import Object, ObjectMeta
from orchid.wire.struct import Wire

T = TypeVar("T", bound=Object)

log = logging.getLogger(__name__)

LONGEST_HISTORY = 102_400  # turns kept per kind, whatever their age
LARGEST_JOINED, MOST_JOINED = 1 << 20, 8  # lists kept ready, per kind: bytes of one, how many
YIELD_EVERY = 250  # listeners told before others get a turn of the loop
FIRST_WAIT, LONGEST_WAIT = 0.05, 5.0  # seconds before a store that failed is asked again


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
        self.tail = with_revision(_behind_head(kind, value), revision)
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


class Listener(NamedTuple, Generic[T]):
    """Who wants to know: of each batch of turns, and of a hole in them."""

    told: Callable[[list[Turn[T]]], None]
    lost: Callable[[], None] | None


class Shelf(Generic[T]):
    """All objects of one kind, in key order, and its recent past."""

    def __init__(self, kind: Kind[T]) -> None:
        self.kind = kind
        self.entries: dict[str, Entry[T]] = {}
        self.turns: deque[Turn[T]] = deque()
        self.oldest: Revision = 0  # one can still watch after this revision
        self.revision: Revision = 0  # of the newest change to this kind
        self.listeners: dict[object, Listener[T]] = {}
        self._keys: list[str] = []
        self._joined: dict[str, tuple[Revision, bytes]] = {}

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

    def as_of(
        self, revision: Revision, prefix: str, start: str = ""
    ) -> tuple[list[str], Mapping[str, Entry[T]]]:
        """The keys under a prefix and their entries as they stood at a remembered revision."""
        before: dict[str, Entry[T] | None] = {}
        for turn in self.since(revision):
            before.setdefault(turn.key, turn.old)
        keys = self.keys(prefix, start)
        if not before:
            return keys, self.entries
        then = {}
        for key, entry in before.items():
            if not key.startswith(prefix) or key < start:
                continue
            place = bisect_left(keys, key)
            there = place < len(keys) and keys[place] == key
            if entry is None:
                if there:
                    del keys[place]
            else:
                then[key] = entry
                if not there:
                    keys.insert(place, key)
        return keys, ChainMap(then, self.entries)

    def joined_tails(self, prefix: str) -> bytes:
        """Every tail under a prefix as the items of a list, joined once per change."""
        known = self._joined.get(prefix)
        if known is not None and known[0] == self.revision:
            return known[1]
        entries = self.entries
        items = b",{".join([entries[key].tail for key in self.keys(prefix)])
        if len(items) <= LARGEST_JOINED:
            if len(self._joined) >= MOST_JOINED:
                self._joined.clear()
            self._joined[prefix] = (self.revision, items)
        return items

    def since(self, revision: Revision) -> Iterator[Turn[T]]:
        """The turns after a revision, oldest first."""
        newer = []
        for turn in reversed(self.turns):
            if turn.revision <= revision:
                break
            newer.append(turn)
        return reversed(newer)

    def listen(
        self,
        listener: object,
        told: Callable[[list[Turn[T]]], None],
        lost: Callable[[], None] | None = None,
    ) -> None:
        """Have `told` called with each batch of turns, until `forget(listener)`.

        `lost` is called when turns were missed and cannot be had any more; what is there then is
        in `entries`, which is another dictionary.
        """
        self.listeners[listener] = Listener(told, lost)

    def forget(self, listener: object) -> None:
        self.listeners.pop(listener, None)

    def load(self, entries: dict[str, Entry[T]], oldest: Revision) -> None:
        """Begin anew with what the store holds, without a past."""
        self.entries = entries
        self._keys = sorted(entries)
        self._joined.clear()
        self.turns.clear()
        self.oldest, self.revision = oldest, 0

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
        self.told: Revision = 0  # up to here every listener has heard of everything
        self._store = store
        self._catalog = catalog
        self._shelves: dict[type, Shelf[Any]] = {k.type: Shelf(k) for k in catalog.stored}
        self._waiting: list[tuple[Revision, asyncio.Future[None]]] = []
        self._loaded = asyncio.Event()
        self._position: Revision | None = None  # up to here events were taken in; None: nowhere
        self._loaded_at: Revision = 0  # events up to here are in what was loaded
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
        try:
            newest = await self._store.revision()
        except StoreError as failure:
            raise Unavailable(f"the store does not answer: {failure}") from failure
        if newest > self.revision:
            await self.reach(newest)
        return self.revision

    async def reach(self, revision: Revision) -> None:
        """Wait until the feed is at least at a revision."""
        if revision > self.revision:
            waiter = (revision, asyncio.get_running_loop().create_future())
            self._waiting.append(waiter)
            try:
                await waiter[1]
            except asyncio.CancelledError:
                # Nobody may ever get there: what was given up is not kept.
                self._waiting = [other for other in self._waiting if other is not waiter]
                raise

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
        """Load everything and follow the store, through all its troubles, until cancelled."""
        wait = FIRST_WAIT
        while True:
            try:
                await self._follow()
            except (Compacted, FutureRevision) as gap:
                log.warning("feed.history_lost: %s", gap)
                self._position = None
            except StoreError as failure:
                log.warning("feed.store_failed: %s", failure)
            finally:
                wait = FIRST_WAIT if self.following else min(wait * 2, LONGEST_WAIT)
                self.following = False
            await asyncio.sleep(wait)

    async def _follow(self) -> None:
        """Take in one batch after the other, from where we are, or else from the start."""
        if self._position is None:
            self._position = self._load(await self._store.read(Span.all()))
        else:
            await self._store.revision()  # a watch is silent also while nobody is there
        self.following = True
        async with contextlib.aclosing(
            self._store.watch(Span.all(), after=self._position)
        ) as batches:
            async for batch in batches:
                await self._take(batch)

    async def _take(self, batch: Batch) -> None:
        told: dict[Shelf[Any], list[Turn[Any]]] = {}
        for event in batch.events:
            shelf = self._shelf_of(event.key)
            if shelf is None:
                continue
            if event.revision <= self._loaded_at:
                shelf.remember(_past_turn(shelf.kind, event))
            else:
                told.setdefault(shelf, []).append(shelf.apply(event))
        self._position = batch.revision
        if batch.revision >= self._loaded_at:
            self._advance(batch.revision)
        for shelf, turns in told.items():
            await _tell(shelf, turns)
        self.told = self.revision

    def forget_before(self, revision: Revision) -> None:
        """Follow the store's compaction: watches from before this revision are refused."""
        for shelf in self._shelves.values():
            shelf.forget_before(revision)

    def _load(self, page: Page) -> Revision:
        """Put everything on its shelf, and say after which revision to go on.

        The first time, that is the oldest one, so that clients which were here before a restart
        can go on too. Later it is that of the page: whoever reads meanwhile must find the entries
        and the revision that belongs to them.
        """
        found: dict[Shelf[Any], dict[str, Entry[Any]]] = {s: {} for s in self._shelves.values()}
        for record in page.records:
            shelf = self._shelf_of(record.key)
            if shelf is not None:
                entry = Entry(shelf.kind, record.key, record.value, record.revision)
                found[shelf][record.key] = entry
        again = self.loaded
        oldest = page.revision if again else page.oldest
        for shelf, entries in found.items():
            shelf.load(entries, oldest)
        self._loaded_at = page.revision
        if oldest >= page.revision:
            self._advance(page.revision)
        self.told = self.revision
        if again:
            for shelf in found:
                _tell_lost(shelf)
        return oldest

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


def _behind_head(kind: Kind[Any], value: bytes) -> bytes:
    """What follows kind and apiVersion, which may have been stored under another naming."""
    if value.startswith(kind.head):
        return value[len(kind.head) :]
    return value[value.index(b'"metadata":') :]


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
    for count, listener in enumerate(list(shelf.listeners.values()), start=1):
        try:
            listener.told(turns)
        except Exception:  # one watcher's trouble is not everyone's
            log.exception("feed.listener_failed")
            if listener.lost is not None:
                listener.lost()
        if count % YIELD_EVERY == 0:
            await asyncio.sleep(0)


def _tell_lost(shelf: Shelf[Any]) -> None:
    for listener in list(shelf.listeners.values()):
        if listener.lost is not None:
            listener.lost()
