"""The feed: every object of this server in memory, as bytes, updated by one store watch.

It serves reads and watches, and RBAC and token checks use it. It has one `KindCache` per kind
(kind_cache.py), and a cache has an `Entry` for each object (entry.py).

Order. Batches are applied one after the other; `revision` moves when a batch is applied, so that
all changes up to it are visible. Caches then notify their listeners of each batch, in order; with
many listeners, the next batch does not wait for the last of them.

Failures. A failing store is retried, and the watch resumes where it stopped. If that revision has
been compacted, everything is loaded again, and watches, which would miss changes, end with 410: the
client's resourceVersion is too old.
"""

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar

from orchid.kernel.base.arrival import ARRIVAL, Arrival
from orchid.kernel.base.clock import Monotonic, SystemClock
from orchid.kernel.base.scheduling.seat import SEAT
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.kind_cache import (
    HistoryBudget,
    KindCache,
    ObjectChange,
    past_change,
    read_or_none,
    weight_of,
)
from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.ledger.store_keys import OBJECTS
from orchid.kernel.store.interface import (
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
from orchid.kernel.wire.errors import Unavailable
from orchid.kernel.wire.meta import Object

T = TypeVar("T", bound=Object)

log = logging.getLogger(__name__)

# Listeners notified per loop turn; fewer if the changes are large.
YIELD_EVERY = 50
FEW_LISTENERS = 10  # Below this number of listeners, never yield.
# Bytes that count as one listener: encrypting them takes about as long.
BYTES_PER_LISTENER = 16 << 10
MOST_PENDING = 100  # batches; beyond that no more are applied until all listeners were notified
DROPPED_PER_TURN = 256  # compacted changes per loop turn: 0.3 ms
PAUSE_BETWEEN_DROPS = 0.01  # seconds
RECORDS_PER_PAGE = 5_000  # records per read; handling them blocks the event loop
LOG_EVERY = 100_000  # objects loaded between two log lines
NO_PREFIX = "\0"  # matches no key
_DONE = object()  # marks the end of a batch in `_unnotified`
FIRST_WAIT, LONGEST_WAIT = 0.05, 5.0  # seconds before a failed store is retried


class Feed:
    """The caches of all kinds, updated together."""

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        monotonic: Monotonic = SystemClock.monotonic,
        *,
        sole_writer: bool = False,
    ) -> None:
        """With `sole_writer`, only this program writes to the store while it is open: changes after
        the load were encoded by us, and are not decoded to check them.
        """
        self.revision: Revision = 0
        self.notified: Revision = 0  # every listener was notified of all changes up to here
        self._store = store
        self._sole_writer = sole_writer
        self._monotonic = monotonic
        self._fresh_at = -math.inf  # every write committed before this time is here
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
        self._position: Revision | None = None  # the last applied revision; None before the load
        self._loaded_at: Revision = 0  # events up to here are part of the load
        self.following = False  # whether changes in the store reach us
        # batches that not all listeners have received
        self._unnotified: deque[Iterator[None]] = deque()
        self._notifier: asyncio.Task[None] | None = None  # notifies listeners of them
        self._watch: PollableWatch | None = None  # the current watch of the store
        self._follower: asyncio.Task[Any] | None = None  # the task of the watch
        self._starts_over = False  # whether to load everything again

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

    async def fresh(self, arrival: Arrival | None = None) -> Revision:
        """Wait until every write committed before this call is here.

        An `arrival` may move on until the store is asked, when more requests join the wait; then
        every write committed before it is here, too.
        """
        called = self._monotonic()
        try:
            newest = await self._store.revision()
        except StoreError as failure:
            raise Unavailable(f"the store does not answer: {failure}") from failure
        if newest > self.revision:
            self._take_arrived()
            if newest > self.revision:
                await self.reach(newest)
        if arrival is not None:
            called = arrival.moment
        self._fresh_at = max(self._fresh_at, called)
        return self.revision

    async def fresh_for_request(self) -> None:
        """Wait until every write committed before the current request arrived is here.

        A request that was authorized after it arrived need not wait again. For reads only: what the
        request itself has written may still be missing.
        """
        arrival = ARRIVAL.get()
        if arrival is None or self._fresh_at <= arrival.moment:
            await self.fresh()

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
            except (asyncio.CancelledError, GeneratorExit):
                # That revision may never come: who waits no longer is removed.
                self._waiting = [other for other in self._waiting if other is not waiter]
                raise
            finally:
                if seat is not None:
                    seat.unpark()

    async def reach_within(
        self, revision: Revision, seconds: float, *, bounded: bool = False
    ) -> bool:
        """Wait for a revision for a limited time; return whether it came.

        With `bounded`, a caller with too many waiting requests is refused.
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
                        raise  # we are being cancelled
                    self._starts_over = False
                finally:
                    wait = FIRST_WAIT if self.following else min(wait * 2, LONGEST_WAIT)
                    self.following = False
                await asyncio.sleep(wait)
        finally:
            if self._notifier is not None:
                self._notifier.cancel()

    async def _follow(self) -> None:
        """Apply one batch after the other, from the current revision, or from the start."""
        if self._position is None:
            self._position = await self._load()
        else:
            await self._store.revision()  # fails if the store is gone; a watch would not
        self.following = True
        async with contextlib.aclosing(self._store.watch(OBJECTS, after=self._position)) as batches:
            self._watch = batches if isinstance(batches, PollableWatch) else None
            try:
                async for batch in batches:
                    self._take(batch)
                    if len(self._unnotified) > MOST_PENDING and self._notifier is not None:
                        await self._notifier
            finally:
                self._watch = None

    def _take_arrived(self) -> None:
        """Apply batches that have arrived from the store, so that a request need not wait for our
        task.
        """
        while self._watch is not None and len(self._unnotified) <= MOST_PENDING:
            try:
                batch = self._watch.poll()
                if batch is None:
                    return
                self._take(batch)
            except Exception:  # our own task must see it, not this request
                log.exception("feed.batch_failed")
                self._start_over()

    def load_again(self) -> None:
        """Load everything again: the store can read other values than before."""
        self._start_over()

    def _start_over(self) -> None:
        """Load everything again: a batch was taken from the watch, but not applied."""
        self._position = self._watch = None
        if self._follower is not None and not self._starts_over:
            self._starts_over = True
            self._follower.cancel()

    def _take(self, batch: Batch) -> None:
        changes_of: dict[KindCache[Any], list[ObjectChange[Any]]] = {}
        for cache, events in self._by_cache(batch).items():
            changes_of[cache] = cache.apply(events, ours=self._sole_writer)
        self._position = batch.revision
        if batch.revision >= self._loaded_at:
            self._advance(batch.revision)
        notifying = self._notify(changes_of, self.revision)
        # Usually this notifies all listeners. Otherwise a task notifies the rest, so that the next
        # batch need not wait.
        if self._unnotified or next(notifying, _DONE) is not _DONE:
            self._unnotified.append(notifying)
            if self._notifier is None:
                self._notifier = asyncio.create_task(self._notify_rest())

    def _by_cache(self, batch: Batch) -> dict[KindCache[Any], list[StoreEvent]]:
        """The events of each kind; those from before the load only enter the history."""
        events: dict[KindCache[Any], list[StoreEvent]] = {}
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
            elif cache in events:
                events[cache].append(event)
            else:
                events[cache] = [event]
        return events

    def _notify(
        self, changes_of: dict[KindCache[Any], list[ObjectChange[Any]]], revision: Revision
    ) -> Iterator[None]:
        """Notify every listener, with pauses for other tasks: a thousand watchers take a while."""
        for cache, changes in changes_of.items():
            listeners, each, spent = list(cache.listeners.values()), 1, 0
            if len(listeners) > FEW_LISTENERS:
                each += weight_of(changes) // BYTES_PER_LISTENER
            for listener in listeners:
                try:
                    listener.notify(changes)
                except Exception:  # a failing listener must not stop the others
                    log.exception("feed.listener_failed")
                    if listener.lost is not None:
                        listener.lost()
                spent += each
                if spent >= YIELD_EVERY:
                    spent = 0
                    yield
        self.notified = revision

    async def _notify_rest(self) -> None:
        """Notify listeners of the batches that `_take` has left."""
        while self._unnotified:
            await asyncio.sleep(0)
            if self._unnotified and next(self._unnotified[0], _DONE) is _DONE:
                self._unnotified.popleft()
        self._notifier = None

    def forget_before(self, revision: Revision) -> None:
        """Follow the store's compaction: watches from before this revision are refused."""
        for cache in self._caches.values():
            cache.forget_before(revision)
        self._drop_useless()

    def _drop_useless(self) -> None:
        """Drop unreachable changes, a few at a time.

        A loop without pauses would also keep the store's thread waiting for the interpreter lock.
        """
        left = DROPPED_PER_TURN
        for cache in self._caches.values():
            left -= cache.drop_useless(left)
        if not left:
            asyncio.get_running_loop().call_later(PAUSE_BETWEEN_DROPS, self._drop_useless)

    async def _load(self) -> Revision:
        """Load every cache, and return the revision to continue from.

        The first time, that is the oldest one, so that clients can resume their watches after a
        restart of the server. Later it is the revision of the load: entries and revision must match
        for readers.
        """
        loaded = {cache: LoadedObjects() for cache in self._caches.values()}
        async for page in self._pages():
            for record in page.records:
                word, plural, _ = record.key.split("/", 2)
                cache = self._by_prefix.get((word, plural))
                if cache is not None:
                    loaded[cache].take(cache.kind, record)
        self._unnotified.clear()  # their listeners are notified of a gap
        oldest = page.revision if self.loaded else page.oldest
        for cache, objects in loaded.items():
            cache.load(objects.entries, oldest, objects.unreadable)
        self._loaded_at = page.revision
        if oldest >= page.revision:
            self._advance(page.revision)
        self.notified = self.revision
        for cache in loaded:
            _notify_gap(cache)
        return oldest

    async def _pages(self) -> AsyncIterator[Page]:
        """Everything in the store at one revision, page by page; progress is logged."""
        span, at, count = OBJECTS, LATEST, 0
        while True:
            page = await self._store.read(span, at=at, limit=RECORDS_PER_PAGE)
            yield page
            count, before = count + len(page.records), count
            if count // LOG_EVERY > before // LOG_EVERY:
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
            for awaited, future in self._waiting:
                if awaited > revision:
                    still.append((awaited, future))
                elif not future.done():
                    future.set_result(None)
            self._waiting = still


class LoadedObjects:
    """The loaded objects of one kind."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry[Any]] = {}
        self.unreadable: dict[str, Revision] = {}

    def take(self, kind: Kind[Any], record: Record) -> None:
        entry = read_or_none(kind, record.key, record.value, record.revision)
        if entry is None:
            self.unreadable[record.key] = record.revision
        else:
            self.entries[record.key] = entry


def _notify_gap(cache: KindCache[Any]) -> None:
    for listener in list(cache.listeners.values()):
        if listener.lost is not None:
            listener.lost()
