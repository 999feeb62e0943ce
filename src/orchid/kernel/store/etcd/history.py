"""The history of our keys: etcd's watches as the store's history.

One watch over all our keys feeds the tail (kernel/store/tail.py) that all local watchers share; a
watcher that is further behind reads with a watch of its own, in `replay`. Start with
`EtcdHistory.run`.

When the watch breaks, it resumes after the last revision it has seen, on any endpoint that
responds. etcd's compacted revision is its own counter, which its other users move too: our oldest
revision is that of our last commit before it, since no key of ours has changed between the two. So
a watch whose start is compacted has lost nothing unless a commit of ours is older than that.

Nothing here asks etcd for the progress of a watch: before 3.4.25 and 3.5.8 the response may be
ahead of the events. The progress notifications that it sends by itself are in order, and save work
when resuming.
"""

import asyncio
import heapq
import logging
from collections.abc import Iterator
from itertools import count
from typing import Final, NamedTuple

from orchid.kernel.store.etcd.client import (
    ATTEMPT_SECONDS,
    PAUSE_SECONDS,
    EtcdClient,
    EtcdWatch,
    Lost,
    RevisionGone,
)
from orchid.kernel.store.etcd.keys import Keyspace
from orchid.kernel.store.etcd.messages import (
    DELETED,
    RANGE,
    EtcdEvent,
    RangeRequest,
    WatchCreateRequest,
    WatchResponse,
)
from orchid.kernel.store.interface import (
    ABSENT,
    FIRST,
    Batch,
    Compacted,
    Revision,
    Span,
    StoreEvent,
    StoreUnavailable,
    StoreUnusable,
    check_revision,
)
from orchid.kernel.store.tail import Tail

log = logging.getLogger(__name__)

EVENTS_PER_REPLAY: Final = 8192
BYTES_PER_REPLAY: Final = 16 << 20
STALL_SECONDS: Final = 2.0  # how long a watch may lag behind a known revision
MAX_STALLS: Final = 2  # how often it may, before a commit returns without waiting for it


class NewestRevisions(NamedTuple):
    """The newest revisions at one time."""

    newest: Revision  # our last commit
    header: Revision  # etcd's own counter, which other users of it move too


class EtcdHistory:
    """The history of our keys and its tail. Create one with `await EtcdHistory.begin(...)`."""

    def __init__(self, client: EtcdClient, keys: Keyspace, revisions: NewestRevisions) -> None:
        self.tail = Tail(revisions.newest, FIRST)
        self.compacted: Revision = FIRST  # as far as we know
        self._client = client
        self._keys = keys
        self._resume = revisions.header + 1  # all our earlier events are in the tail
        self._offered: dict[Revision, Batch] = {}
        self._watching: EtcdWatch | None = None
        self._expected: Revision = revisions.newest
        self._alarm: asyncio.TimerHandle | None = None
        self._stalls = 0
        self._waiting: list[tuple[Revision, int, asyncio.Future[None]]] = []
        self._order = count()

    @classmethod
    async def begin(cls, client: EtcdClient, keys: Keyspace) -> "EtcdHistory":
        """Read the newest revisions."""
        history = cls(client, keys, await _revisions(client, keys))
        await history.learn()
        return history

    async def revisions(self) -> NewestRevisions:
        """The newest revisions, as the whole cluster knows them."""
        revisions = await _revisions(self._client, self._keys)
        self.expect(revisions.newest)
        return revisions

    async def run(self) -> None:
        """Follow changes until cancelled."""
        while True:
            try:
                await self._follow()
            except StoreUnavailable as error:
                log.warning("store.watch_lost: %s", error)
            except StoreUnusable as error:
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
        await seen

    def has(self, revision: Revision) -> bool:
        """Whether the watch was faster than the response to a commit."""
        return revision < self._resume

    def offer(self, batch: Batch) -> None:
        """Add a commit from its response, if no other commit can be between it and the tail.

        etcd counts one by one: a commit with the very next revision is the next. Any other waits
        for the watch, which reports it too. For a single server on its etcd, that saves a third of
        the cost.
        """
        self._offered[batch.revision] = batch
        self._take_offered()

    def expect(self, revision: Revision) -> None:
        """Make sure that the watch reaches an existing revision."""
        self._expected = max(self._expected, revision)
        if revision > self.tail.revision and self._alarm is None:
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_later(STALL_SECONDS, self._check_stall, revision)

    async def replay(self, span: Span, after: Revision) -> Batch:
        """Read the next part of the history after a revision."""
        target = self.tail.revision
        if after >= target:
            newest = max((await self.revisions()).newest, self.tail.revision)
            check_revision(after, oldest=self.tail.oldest, newest=newest)
            return Batch((), target)
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._client.timeout
        while True:
            if after < self.tail.oldest:
                raise Compacted(after, self.tail.oldest)
            try:
                start = max(after, self.compacted) + 1
                async with self._client.watch(self._request(start)) as watching:
                    return await self._collect(watching, span, after, target)
            except RevisionGone as gone:
                await self.learn(gone.compacted)
                trouble = StoreUnavailable(
                    "etcd: it does not return the previous value of a change"
                )
            except Lost as lost:
                trouble = lost
            if clock() >= deadline or self.tail.closed:
                raise trouble
            await asyncio.sleep(PAUSE_SECONDS)

    async def learn(self, compacted: Revision = ABSENT) -> None:
        """Find out how far etcd has been compacted, if not given, and what of ours is left."""
        while True:
            compacted = compacted or await self._ask_compacted()
            if compacted <= self.compacted:
                return
            try:
                oldest = (await _revisions(self._client, self._keys, compacted)).newest
            except RevisionGone:  # compacted further meanwhile
                compacted = ABSENT
                continue
            self.compacted = compacted
            self.tail.oldest = max(self.tail.oldest, oldest)
            return

    def close(self) -> None:
        """End every watch."""
        self.tail.close()
        if self._alarm is not None:
            self._alarm.cancel()
        self._release()

    async def _follow(self) -> None:
        """Watch until the watch breaks, or has to start elsewhere."""
        seen = self._resume - 1  # commits may move it meanwhile
        try:
            revisions = await _revisions(self._client, self._keys)
        except StoreUnavailable as error:
            # No member has responded for long. Silence would look as if nothing had changed.
            self.tail.interrupt(str(error))
            raise
        if revisions.header < seen:
            raise StoreUnusable(
                f"etcd has gone back from revision {seen} to {revisions.header}: it was "
                "restored from a backup, or is another one; start again to use it"
            )
        async with self._client.watch(self._request(self._resume)) as watching:
            self._watching = watching
            try:
                while True:
                    self._take(await watching.next())
            except RevisionGone as gone:
                await self.learn(gone.compacted)
                self._skip_compacted()
            finally:
                self._watching = None

    def _take(self, answer: WatchResponse) -> None:
        """Add the events of a response to the tail, and move the revision to resume at."""
        if events := tuple(self._events(answer, self._resume - 1)):
            last = events[-1].revision
            self.tail.append(Batch(events, last))
            self._resume = last + 1
        # a progress notification: no events up to here
        elif not answer.events and not answer.created:
            self._resume = max(self._resume, answer.header.revision + 1)
        self._take_offered()

    def _take_offered(self) -> None:
        """Continue with offered commits, and wake their waiters."""
        while batch := self._offered.pop(self._resume, None):
            self.tail.append(batch)
            self._resume += 1
        self._release()
        if self._offered:  # the watch may have been faster
            late = [revision for revision in self._offered if revision < self._resume]
            for revision in late:
                del self._offered[revision]

    def _skip_compacted(self) -> None:
        """Resume after the compacted part; notify watchers if that skips a commit of ours."""
        self._resume = max(self._resume, self.compacted + 1)
        if self.tail.revision < self.tail.oldest:
            log.warning("store.history_lost: up to revision %d", self.tail.oldest)
            self.tail.jump(self.tail.oldest)
        self._take_offered()

    async def _collect(
        self, watching: EtcdWatch, span: Span, after: Revision, target: Revision
    ) -> Batch:
        """Collect the events of a watch up to the target, or up to a batch.

        It reports all our keys, not only those of the span: the last commit is certainly among
        them, and so the end is known without waiting.
        """
        events: list[StoreEvent] = []
        size, reached = 0, after
        while reached < target and len(events) < EVENTS_PER_REPLAY and size < BYTES_PER_REPLAY:
            for event in self._events(await _soon(watching, self._client.timeout), after):
                reached = event.revision
                if event.key in span:
                    events.append(event)
                    size += len(event.value or b"") + len(event.previous or b"")
        return Batch(tuple(events), reached)

    def _events(self, answer: WatchResponse, after: Revision) -> Iterator[StoreEvent]:
        """The events of a response; some versions of etcd repeat events of a resumed watch."""
        if answer.compact_revision:
            raise RevisionGone(answer.compact_revision)
        if answer.canceled:
            raise Lost(f"etcd: the watch was refused: {answer.cancel_reason}")
        for happened in answer.events:
            if happened.kv.mod_revision > after:
                yield self._event(happened)

    def _event(self, happened: EtcdEvent) -> StoreEvent:
        now, before = happened.kv, happened.prev_kv
        deleted = happened.type == DELETED
        revision = now.mod_revision
        existed = deleted or now.create_revision != revision
        if existed and not before.mod_revision:
            # Either it has been compacted, or etcd sent this before it applied our request for
            # previous values; a new watch will decide.
            raise RevisionGone
        return StoreEvent(
            self._keys.inner(now.key),
            None if deleted else now.value,
            revision,
            before.value if existed else None,
            before.mod_revision if existed else ABSENT,
        )

    async def _ask_compacted(self) -> Revision:
        """The compacted revision of etcd. Only a watch is informed, and only after a compaction."""
        check = RangeRequest(key=self._keys.nothing, revision=self.compacted, count_only=True)
        try:
            await self._client.call(RANGE, check)
        except RevisionGone:
            request = WatchCreateRequest(key=self._keys.nothing, start_revision=FIRST)
            async with self._client.watch(request) as watching:
                while True:
                    answer = await _soon(watching, ATTEMPT_SECONDS)
                    if answer.canceled:
                        return answer.compact_revision
        return self.compacted

    def _request(self, start: Revision) -> WatchCreateRequest:
        return WatchCreateRequest(
            key=self._keys.first,
            range_end=self._keys.end,
            start_revision=start,
            prev_kv=True,
            progress_notify=True,
        )

    def _check_stall(self, awaited: Revision) -> None:
        """Move a lagging watch to another member, and stop waiting for it after a while."""
        self._alarm = None
        self._stalls = self._stalls + 1 if self.tail.revision < awaited else 0
        if self._stalls and self._watching is not None:
            self._watching.give_up()
        if self._stalls >= MAX_STALLS:
            self._release(awaited)
        if not self.tail.closed:
            self.expect(self._expected)

    def _release(self, revision: Revision = ABSENT) -> None:
        """Wake all that wait for this revision or an earlier one."""
        reached = max(revision, self.tail.revision)
        while self._waiting and (self.tail.closed or self._waiting[0][0] <= reached):
            seen = heapq.heappop(self._waiting)[2]
            if not seen.done():
                seen.set_result(None)


async def _revisions(client: EtcdClient, keys: Keyspace, at: Revision = ABSENT) -> NewestRevisions:
    """Read the mark, now or as of a revision of etcd."""
    request = RangeRequest(key=keys.mark, keys_only=True, revision=at)
    answer = await client.call(RANGE, request)
    newest = answer.kvs[0].mod_revision if answer.kvs else FIRST
    return NewestRevisions(newest, answer.header.revision)


async def _soon(watching: EtcdWatch, seconds: float) -> WatchResponse:
    """Wait for a response that is due."""
    try:
        async with asyncio.timeout(seconds):
            return await watching.next()
    except TimeoutError:
        raise Lost("etcd: a watch is silent about what has happened") from None
