"""The feed: every object of this server in memory, as bytes, kept current by one store watch.

A read is answered from here, a watch is fed from here, and RBAC and token checks look here. It has
one `KindCache` per kind (kind_cache.py), and a cache holds an `Entry` for each object (entry.py).

Order. Batches are applied one after the other; `revision` moves when a batch is applied, so
whoever waits for a revision finds everything up to it. Caches tell their listeners of each batch
after that, in order; where they are many, the next batch does not wait for the last of them.

Failures. A store that does not answer is asked again, and the watch resumes where it stopped. If
that revision is compacted by then, everything is loaded again, and watches, which would miss
changes, are ended with 410: the client's resourceVersion is too old.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar

from orchid.engine.cache.entry import Entry
from orchid.engine.cache.kind_cache import (
    HistoryBudget,
    KindCache,
    ObjectChange,
    past_change,
    read_or_none,
    weight_of,
)
from orchid.engine.catalog import Catalog
from orchid.engine.kind import Kind
from orchid.engine.seat import SEAT
from orchid.ledger.store_keys import OBJECTS
from orchid.store.interface import (
    LATEST,
    Batch,
    Compacted,
    FutureRevision,
    Page,
    PollableWatch,
    Record,
    Revision,
    Store,
    StoreError,
    StoreEvent,
)
from orchid.wire.errors import Unavailable
from orchid.wire.meta import Object

T = TypeVar("T", bound=Object)

log = logging.getLogger(__name__)

# How much is told before other tasks may run: so many listeners, or fewer if the changes are large.
YIELD_EVERY = 50
A_FEW = 10  # listeners: they are told of anything at once
BYTES_LIKE_A_LISTENER = 16 << 10  # to encrypt them takes about as long as to tell one more
MOST_UNTOLD = 100  # batches; beyond that no more are taken in until all were told
DROPPED_AT_ONCE = 256  # changes that were compacted: 0.3 ms
PAUSE_BETWEEN_DROPS = 0.01  # seconds
RECORDS_PER_PAGE = 5_000  # read at once; handling them blocks the event loop
TELL_EVERY = 100_000  # objects loaded between two log lines
NO_PREFIX = "\0"  # of no key
_TOLD = object()  # marks the end of a batch in `_untold`
FIRST_WAIT, LONGEST_WAIT = 0.05, 5.0  # seconds before a store that failed is asked again


class Feed:
    """Every kind's cache, moving forward together."""

    def __init__(self, store: Store, catalog: Catalog, *, sole_writer: bool = False) -> None:
        """With `sole_writer`, nobody but this program writes to the store while it is open: what
        changes after the load was encoded by us, and is not decoded to see that it can be."""
        self.revision: Revision = 0
        self.told: Revision = 0  # every listener was told of all changes up to here
        self._store = store
        self._sole_writer = sole_writer
        self.history = HistoryBudget()
        self._caches: dict[type, KindCache[Any]] = {
            kind.type: KindCache(kind, self.history) for kind in catalog.stored
        }
        # By the first two parts of their keys.
        self._by_prefix = {
            tuple(cache.kind.key_prefix.split("/")[:2]): cache for cache in self._caches.values()
        }
        self._waiting: list[tuple[Revision, asyncio.Future[None]]] = []
        self.loaded = False
        self._loaded = asyncio.Event()
        self._position: Revision | None = None  # up to here events were taken in; None: nowhere
        self._loaded_at: Revision = 0  # events up to here are in what was loaded
        self.following = False  # whether changes in the store reach us
        self._untold: deque[Iterator[None]] = deque()  # batches that are not told to all
        self._teller: asyncio.Task[None] | None = None  # who tells of them
        self._prompt: PollableWatch | None = None  # the watch that we follow
        self._follower: asyncio.Task[Any] | None = None  # who does
        self._starts_over = False  # it is told to load everything anew

    def cache(self, kind: Kind[T]) -> KindCache[T]:
        return self._caches[kind.stored.type]

    def of(self, type_: type[T]) -> KindCache[T]:
        return self._caches[type_]

    def is_unreadable(self, key: str) -> bool:
        """Whether the object under a key of the store cannot be decoded."""
        word, plural, _ = key.split("/", 2)
        cache = self._by_prefix.get((word, plural))
        return cache is not None and key in cache.unreadable

    async def wait_loaded(self) -> None:
        await self._loaded.wait()

    async def fresh(self) -> Revision:
        """Wait until every write acknowledged before this call is here."""
        try:
            newest = await self._store.revision()
        except StoreError as failure:
            raise Unavailable(f"the store does not answer: {failure}") from failure
        if newest > self.revision:
            self._take_at_hand()
            if newest > self.revision:
                await self.reach(newest)
        return self.revision

    async def reach(self, revision: Revision) -> None:
        """Wait until the feed has reached a revision; the request has no seat meanwhile."""
        if revision > self.revision:
            seat = SEAT.get()
            if seat is not None:
                seat.park()
            waiter = (revision, asyncio.get_running_loop().create_future())
            self._waiting.append(waiter)
            try:
                await waiter[1]
            except asyncio.CancelledError:
                # That revision may never come: a waiter that gives up is removed.
                self._waiting = [other for other in self._waiting if other is not waiter]
                raise
            finally:
                if seat is not None:
                    seat.unpark()

    async def reach_within(
        self, revision: Revision, seconds: float, *, bounded: bool = False
    ) -> bool:
        """Wait for a revision for a limited time; return whether it came.

        With `bounded`, a caller who has too many requests waiting already is refused.
        """
        if revision <= self.revision:
            return True
        await asyncio.sleep(0)  # from here on there is a task, which asyncio.timeout needs
        seat = SEAT.get()
        if bounded and seat is not None:
            seat.require_room_to_wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.reach(revision)
        return revision <= self.revision

    async def run(self) -> None:
        """Load everything and follow the store until cancelled; failures are retried."""
        wait = FIRST_WAIT
        self._follower = follower = asyncio.current_task()
        assert follower is not None
        try:
            while True:
                try:
                    await self._follow()
                except (Compacted, FutureRevision) as gap:
                    log.warning("feed.history_lost: %s", gap)
                    self._position = None
                except StoreError as failure:
                    log.warning("feed.store_failed: %s", failure)
                except asyncio.CancelledError:
                    if not self._starts_over or follower.uncancel() > 0:
                        raise  # somebody wants us to end
                    self._starts_over = False
                finally:
                    wait = FIRST_WAIT if self.following else min(wait * 2, LONGEST_WAIT)
                    self.following = False
                await asyncio.sleep(wait)
        finally:
            if self._teller is not None:
                self._teller.cancel()

    async def _follow(self) -> None:
        """Apply one batch after the other, from the present position, or from the start."""
        if self._position is None:
            self._position = await self._load()
        else:
            await self._store.revision()  # fails if the store is gone; a watch would not
        self.following = True
        async with contextlib.aclosing(self._store.watch(OBJECTS, after=self._position)) as batches:
            self._prompt = batches if isinstance(batches, PollableWatch) else None
            try:
                async for batch in batches:
                    self._take(batch)
                    if len(self._untold) > MOST_UNTOLD and self._teller is not None:
                        await self._teller
            finally:
                self._prompt = None

    def _take_at_hand(self) -> None:
        """Take in what has come from the store, so that a request need not wait for our task."""
        while self._prompt is not None and len(self._untold) <= MOST_UNTOLD:
            try:
                batch = self._prompt.poll()
                if batch is None:
                    return
                self._take(batch)
            except Exception:  # our own task must find out, not this request
                log.exception("feed.batch_failed")
                self._start_over()

    def _start_over(self) -> None:
        """Have everything loaded anew: a batch was taken from the watch, but not taken in."""
        self._position = self._prompt = None
        if self._follower is not None and not self._starts_over:
            self._starts_over = True
            self._follower.cancel()

    def _take(self, batch: Batch) -> None:
        told: dict[KindCache[Any], list[ObjectChange[Any]]] = {}
        for cache, events in self._by_cache(batch).items():
            told[cache] = cache.apply(events, ours=self._sole_writer)
        self._position = batch.revision
        if batch.revision >= self._loaded_at:
            self._advance(batch.revision)
        telling = self._tell(told, self.revision)
        # Usually this tells all listeners. Otherwise a task tells the rest, so that the next batch
        # need not wait.
        if self._untold or next(telling, _TOLD) is not _TOLD:
            self._untold.append(telling)
            if self._teller is None:
                self._teller = asyncio.create_task(self._tell_rest())

    def _by_cache(self, batch: Batch) -> dict[KindCache[Any], list[StoreEvent]]:
        """The events of each kind; those from before the load are remembered, and left out."""
        found: dict[KindCache[Any], list[StoreEvent]] = {}
        prefix, cache = NO_PREFIX, None
        for event in batch.events:
            if not event.key.startswith(prefix):  # often it is of the same kind as the last one
                word, plural, _ = event.key.split("/", 2)
                cache = self._by_prefix.get((word, plural))
                prefix = NO_PREFIX if cache is None else cache.kind.key_prefix
            if cache is None:
                continue
            if event.revision <= self._loaded_at:
                cache.remember([past_change(cache.kind, event)])
            elif cache in found:
                found[cache].append(event)
            else:
                found[cache] = [event]
        return found

    def _tell(
        self, told: dict[KindCache[Any], list[ObjectChange[Any]]], revision: Revision
    ) -> Iterator[None]:
        """Tell every listener, with pauses for other tasks: a thousand watchers take a while."""
        for cache, changes in told.items():
            listeners, each, spent = list(cache.listeners.values()), 1, 0
            if len(listeners) > A_FEW:
                each += weight_of(changes) // BYTES_LIKE_A_LISTENER
            for listener in listeners:
                try:
                    listener.told(changes)
                except Exception:  # a listener that fails must not stop the others
                    log.exception("feed.listener_failed")
                    if listener.lost is not None:
                        listener.lost()
                spent += each
                if spent >= YIELD_EVERY:
                    spent = 0
                    yield
        self.told = revision

    async def _tell_rest(self) -> None:
        """Tell listeners of the batches that `_take` has left."""
        while self._untold:
            await asyncio.sleep(0)
            if self._untold and next(self._untold[0], _TOLD) is _TOLD:
                self._untold.popleft()
        self._teller = None

    def forget_before(self, revision: Revision) -> None:
        """Follow the store's compaction: watches from before this revision are refused."""
        for cache in self._caches.values():
            cache.forget_before(revision)
        self._drop_useless()

    def _drop_useless(self) -> None:
        """Drop changes that nobody can watch any more, a few at a time.

        A loop that never rests would also keep the store's thread waiting for the interpreter lock.
        """
        left = DROPPED_AT_ONCE
        for cache in self._caches.values():
            left -= cache.drop_useless(left)
        if not left:
            asyncio.get_running_loop().call_later(PAUSE_BETWEEN_DROPS, self._drop_useless)

    async def _load(self) -> Revision:
        """Load every cache, and return the revision after which to go on.

        The first time, that is the oldest one, so that clients can resume their watches after a
        restart of the server. Later it is the revision of what was read: readers must find entries
        and revision that belong together.
        """
        found = {cache: LoadedObjects() for cache in self._caches.values()}
        async for page in self._pages():
            for record in page.records:
                word, plural, _ = record.key.split("/", 2)
                cache = self._by_prefix.get((word, plural))
                if cache is not None:
                    found[cache].take(cache.kind, record)
        self._untold.clear()  # their listeners are told that changes are missing
        oldest = page.revision if self.loaded else page.oldest
        for cache, objects in found.items():
            cache.load(objects.entries, oldest, objects.unreadable)
        self._loaded_at = page.revision
        if oldest >= page.revision:
            self._advance(page.revision)
        self.told = self.revision
        for cache in found:
            _tell_lost(cache)
        return oldest

    async def _pages(self) -> AsyncIterator[Page]:
        """Everything in the store at one revision, page by page; progress is logged."""
        span, at, count = OBJECTS, LATEST, 0
        while True:
            page = await self._store.read(span, at=at, limit=RECORDS_PER_PAGE)
            yield page
            count, before = count + len(page.records), count
            if count // TELL_EVERY > before // TELL_EVERY:
                log.info("feed.loading", extra={"objects": count})
            if not page.more:
                return
            span, at = span.after(page.records[-1].key), page.revision

    def _advance(self, revision: Revision) -> None:
        self.revision = revision
        if not self.loaded:
            self.loaded = True
            self._loaded.set()
        if self._waiting:
            still = []
            for wanted, future in self._waiting:
                if wanted > revision:
                    still.append((wanted, future))
                elif not future.done():
                    future.set_result(None)
            self._waiting = still


class LoadedObjects:
    """What a load has found of one kind."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry[Any]] = {}
        self.unreadable: dict[str, Revision] = {}

    def take(self, kind: Kind[Any], record: Record) -> None:
        entry = read_or_none(kind, record.key, record.value, record.revision)
        if entry is None:
            self.unreadable[record.key] = record.revision
        else:
            self.entries[record.key] = entry


def _tell_lost(cache: KindCache[Any]) -> None:
    for listener in list(cache.listeners.values()):
        if listener.lost is not None:
            listener.lost()
