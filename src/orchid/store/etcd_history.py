"""What has happened to our keys, and what happens: etcd's watches as the store's history.

One watch over all our keys feeds the tail (tail.py) that all local watchers share; a watcher that
is further behind reads on by a watch of its own, in `replay`. Start with `History.run`.

When the watch breaks, it resumes behind the last revision it has seen, on whichever endpoint
answers. If that revision has been compacted meanwhile, the mark tells whether any commit of ours
went by unseen: if none did, nothing is lost, and otherwise the watchers are told, by Compacted.
Neither depends on etcd telling of its progress, which before 3.4.25 and 3.5.8 it may do ahead of
the events, so we never ask for that; what it tells by itself only saves work when resuming.
"""

import asyncio
import heapq
import logging
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Final, NamedTuple

from orchid.store.etcd_client import PAUSE_SECONDS, Client, Lost, RevisionGone, Watching
from orchid.store.etcd_keys import Keyspace
from orchid.store.etcd_messages import (
    DELETED,
    RANGE,
    RangeRequest,
    WatchCreateRequest,
    WatchEvent,
    WatchResponse,
)
from orchid.store.interface import (
    ABSENT,
    FIRST,
    Batch,
    Compacted,
    Event,
    Revision,
    Span,
    Unavailable,
    Unusable,
    check_revision,
)
from orchid.store.tail import Tail

log = logging.getLogger(__name__)

EVENTS_PER_REPLAY: Final = 8192
BYTES_PER_REPLAY: Final = 16 << 20
STALL_SECONDS: Final = 2.0  # how long a watch may lag behind what is known to have happened
PATIENCE_SECONDS: Final = 5.0  # how long a commit waits for the watch to show it


class Standing(NamedTuple):
    """Where things stood at one moment."""

    newest: Revision  # our last commit
    header: Revision  # etcd's own counter, which other users of it move too


class History:
    """The past of our keys and its newest end. Make one with `await History.begin(...)`."""

    def __init__(self, client: Client, keys: Keyspace, standing: Standing) -> None:
        self.tail = Tail(standing.newest, FIRST)
        self.compacted: Revision = FIRST  # as far as we know
        self._client = client
        self._keys = keys
        self._resume = standing.header + 1
        self._watching: Watching | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._waiting: list[tuple[Revision, int, asyncio.Future[None]]] = []
        self._order = count()

    @classmethod
    async def begin(cls, client: Client, keys: Keyspace) -> "History":
        """Find out where things stand."""
        history = cls(client, keys, await _standing(client, keys))
        try:
            await client.call(RANGE, RangeRequest(key=keys.nothing, revision=FIRST))
        except RevisionGone:
            await history.learn()
        return history

    async def newest(self) -> Revision:
        """Tell our last commit, as the whole cluster knows it."""
        newest = (await _standing(self._client, self._keys)).newest
        self.expect(newest)
        return max(newest, self.tail.revision)

    async def run(self) -> None:
        """Follow what happens until cancelled."""
        while True:
            try:
                await self._follow()
            except Unavailable as error:
                log.warning("store.watch_lost: %s", error)
            except Unusable as error:
                log.critical("store.unusable: %s", error)
                self.close()
                return
            except Exception:
                log.exception("store.watch_failed")
            await asyncio.sleep(PAUSE_SECONDS)

    async def reach(self, revision: Revision) -> None:
        """Wait until watchers can see a commit; if that takes too long, they see it later."""
        if revision <= self.tail.revision or self.tail.closed:
            return
        self.expect(revision)
        seen: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (revision, next(self._order), seen))
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await seen

    def expect(self, revision: Revision) -> None:
        """Take care that the watch comes to a revision that is known to have happened."""
        if revision > self.tail.revision and self._alarm is None:
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_later(STALL_SECONDS, self._check_stall, revision)

    async def replay(self, span: Span, after: Revision) -> Batch:
        """Read the next stretch of history behind a revision."""
        target = self.tail.revision
        if after >= target:
            check_revision(after, oldest=self.tail.oldest, newest=await self.newest())
            return Batch((), target)
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._client.timeout
        while True:
            try:
                async with self._client.watch(self._request(after + 1)) as watching:
                    return await self._collect(watching, span, after, target)
            except RevisionGone:
                await self.learn()
                raise Compacted(after, self.tail.oldest) from None
            except TimeoutError:
                raise Unavailable("etcd: the history is not coming") from None
            except Lost:
                if clock() >= deadline or self.tail.closed:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)

    async def learn(self) -> None:
        """Ask how far etcd has been compacted, knowing that it has been.

        Only a watch is told: one of the first revision is refused with the oldest there is.
        """
        request = WatchCreateRequest(key=self._keys.nothing, start_revision=FIRST)
        with suppress(Lost, TimeoutError):  # then the next to need it asks again
            async with (
                asyncio.timeout(self._client.timeout),
                self._client.watch(request) as answers,
            ):
                while not (answer := await answers.next()).canceled:
                    pass
                self.note(answer.compact_revision)

    def note(self, compacted: Revision) -> None:
        """Take notice of a compaction.

        The store's oldest revision is never above its newest, although etcd may have been compacted
        further: our keys have not changed since, so nothing of ours is missing in between.
        """
        self.compacted = max(self.compacted, compacted)
        self.tail.oldest = max(self.tail.oldest, min(self.compacted, self.tail.revision))

    def close(self) -> None:
        """End every watch."""
        self.tail.close()
        if self._alarm is not None:
            self._alarm.cancel()
        self._release()

    async def _follow(self) -> None:
        """Watch until the watch breaks, or has to begin elsewhere."""
        standing = await _standing(self._client, self._keys)
        if standing.header < self._resume - 1:
            raise Unusable(
                f"etcd has gone back from revision {self._resume - 1} to {standing.header}: it was "
                "restored from a backup, or is another one; start again to use it"
            )
        async with self._client.watch(self._request(self._resume)) as watching:
            self._watching = watching
            try:
                while True:
                    answer = await watching.next()
                    if answer.compact_revision:
                        return await self._recover(answer.compact_revision)
                    if answer.canceled:
                        raise Lost(f"etcd: the watch was refused: {answer.cancel_reason}")
                    self._take(answer)
            finally:
                self._watching = None

    def _take(self, answer: WatchResponse) -> None:
        """Add to the tail what an answer tells, and move the place to resume at."""
        if not answer.events:
            if not answer.created:  # word of progress: nothing of ours up to here
                self._resume = max(self._resume, answer.header.revision + 1)
            return
        last = answer.events[-1].kv.mod_revision
        try:
            events = tuple(self._events(answer, self._resume - 1))
        except RevisionGone:
            # Compacted before it was sent: what it replaced is not known any more.
            log.warning("store.history_lost: up to revision %d", last)
            self.tail.jump(last)
        else:
            if events:
                self.tail.append(Batch(events, last))
        self._resume = max(self._resume, last + 1)
        self.note(self.compacted)
        self._release()

    async def _recover(self, compacted: Revision) -> None:
        """Go on behind a compaction that has overtaken the watch."""
        standing = await _standing(self._client, self._keys)
        if standing.newest > self.tail.revision:
            log.warning("store.history_lost: up to revision %d", standing.newest)
            self.tail.jump(standing.newest)
        self._resume = max(self._resume, standing.header + 1)
        self.note(compacted)
        self._release()

    async def _collect(
        self, watching: Watching, span: Span, after: Revision, target: Revision
    ) -> Batch:
        """Gather what a watch tells, until it has come to the target or is enough at once.

        It tells of all our keys, not only of the span: the last commit is sure to be among them,
        and so the end is known without waiting.
        """
        events: list[Event] = []
        size, reached = 0, after
        while reached < target and len(events) < EVENTS_PER_REPLAY and size < BYTES_PER_REPLAY:
            async with asyncio.timeout(self._client.timeout):
                answer = await watching.next()
            if answer.compact_revision:
                self.note(answer.compact_revision)
                raise Compacted(after, self.tail.oldest)
            if answer.canceled:
                raise Lost(f"etcd: the watch was refused: {answer.cancel_reason}")
            for event in self._events(answer, after):
                reached = event.revision
                if event.key in span:
                    events.append(event)
                    size += len(event.value or b"") + len(event.previous or b"")
        return Batch(tuple(events), reached)

    def _events(self, answer: WatchResponse, after: Revision) -> Iterator[Event]:
        """What an answer tells; some versions of etcd repeat what a resumed watch has seen."""
        for happened in answer.events:
            if happened.kv.mod_revision > after:
                yield self._event(happened)

    def _event(self, happened: WatchEvent) -> Event:
        now, before = happened.kv, happened.prev_kv
        deleted = happened.type == DELETED
        revision = now.mod_revision
        existed = deleted or now.create_revision != revision
        if existed and not before.mod_revision:
            raise RevisionGone
        return Event(
            self._keys.inner(now.key),
            None if deleted else now.value,
            revision,
            before.value if existed else None,
            before.mod_revision if existed else ABSENT,
        )

    def _request(self, start: Revision) -> WatchCreateRequest:
        return WatchCreateRequest(
            key=self._keys.first,
            range_end=self._keys.end,
            start_revision=start,
            prev_kv=True,
            progress_notify=True,
        )

    def _check_stall(self, expected: Revision) -> None:
        self._alarm = None
        if self.tail.revision < expected and self._watching is not None:
            self._watching.give_up()

    def _release(self) -> None:
        """Let those go on who wait for what has come."""
        while self._waiting and (self.tail.closed or self._waiting[0][0] <= self.tail.revision):
            seen = heapq.heappop(self._waiting)[2]
            if not seen.done():
                seen.set_result(None)


async def _standing(client: Client, keys: Keyspace) -> Standing:
    answer = await client.call(RANGE, RangeRequest(key=keys.mark, keys_only=True))
    newest = answer.kvs[0].mod_revision if answer.kvs else FIRST
    return Standing(newest, answer.header.revision)
