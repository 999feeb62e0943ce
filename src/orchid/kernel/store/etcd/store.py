"""The store in etcd: for several servers on several machines, all of them active.

A commit is one etcd transaction that compares each key's mod_revision; a revision of the store is
etcd's revision. Commits run concurrently: etcd groups them on their way to disk.

Beside its changes every commit writes one small key, the mark (keys.py), with a unique name. So the
mark's revision is always that of our newest commit, whichever server made it and whatever else the
same etcd is used for: it is the revision that a fresh read has to wait for, and the watch is
certain to deliver it. If the response to a commit is lost, the mark shows whether it happened; also
if etcd reports that it has no space, which it does for refused commits and for those that took the
last of it.

Start with `EtcdStore`. The connection: client.py; watches and compaction: history.py. Never writes
outside of its prefix, and never repeats a commit with an unknown outcome. Compaction is etcd's own
and affects all its users.
"""

import asyncio
import secrets
from collections.abc import Sequence
from contextvars import Context
from functools import partial
from itertools import count, zip_longest
from pathlib import Path
from typing import Final

from orchid.kernel.base.scheduling.shared_call import SharedCall
from orchid.kernel.base.scheduling.shared_result import SharedResult
from orchid.kernel.store import format as store_format
from orchid.kernel.store.etcd.client import EtcdClient, RevisionGone, TLSFiles, Undecided
from orchid.kernel.store.etcd.history import EtcdHistory
from orchid.kernel.store.etcd.keys import Keyspace
from orchid.kernel.store.etcd.messages import (
    COMPACT,
    LESS,
    MOD_REVISION,
    RANGE,
    TXN,
    CompactionRequest,
    KeyValue,
    RangeRequest,
    TxnRequest,
    TxnResponse,
)
from orchid.kernel.store.interface import (
    ABSENT,
    LATEST,
    Batch,
    Change,
    Compacted,
    DeleteRange,
    FutureRevision,
    Page,
    Record,
    Revision,
    RevisionConflict,
    Span,
    Store,
    StoreClosed,
    StoreEvent,
    StoreFull,
    StoreUnavailable,
    check_changes,
    check_delete,
    check_read,
)
from orchid.kernel.store.tail import Following

PREFIX: Final = "/orchid"
TIMEOUT_SECONDS: Final = 10.0  # etcd itself gives up after 7
FIRST_PAGE: Final = 500
LARGEST_PAGE: Final = 10_000
BYTES_PER_PAGE: Final = 8 << 20


class EtcdStore:
    """A Store in etcd. Create one with `await EtcdStore.open([...])`."""

    def __init__(self, client: EtcdClient, keys: Keyspace, history: EtcdHistory) -> None:
        self._loop = asyncio.get_running_loop()
        self._nobody = Context()
        self._client = client
        self._keys = keys
        self._history = history
        self._tail = history.tail
        self._revisions = SharedCall(history.revisions, StoreUnavailable)
        self._self = secrets.token_hex(8)
        self._numbers = count()
        self._claimed: Revision = ABSENT  # the last known claim to compact
        self._commits: set[asyncio.Task[Revision]] = set()
        self._following = asyncio.create_task(history.run())
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        endpoints: Sequence[str],
        *,
        prefix: str = PREFIX,
        ca: Path | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
        timeout: float = TIMEOUT_SECONDS,  # noqa: ASYNC109 - of each call to come, not of this one
    ) -> "EtcdStore":
        """Connect to a cluster.

        Raises StoreUnusable for bad settings or a newer format, StoreUnavailable without a
        response.
        """
        keys = Keyspace(prefix)
        client = EtcdClient(endpoints, TLSFiles(ca, certificate, key), timeout=timeout)
        try:
            await _check_format(client, keys)
            history = await EtcdHistory.begin(client, keys)
        except BaseException:
            await client.close()
            raise
        return cls(client, keys, history)

    async def read(self, span: Span, *, at: Revision = LATEST, limit: int = 0) -> Page:
        self._check_open()
        check_read(at, limit)
        while True:
            await self._history.learn()
            if at != LATEST and at < self._tail.oldest:
                raise Compacted(at, self._tail.oldest)
            try:
                return await self._read(span, at, limit)
            except RevisionGone:  # another server has just compacted
                continue

    async def commit(
        self, changes: Sequence[Change], delete: DeleteRange | None = None
    ) -> Revision:
        self._check_open()
        check_changes(changes)
        if delete is not None:
            check_delete(delete, changes)
        # A task of its own, because a cancelled caller does not undo the commit.
        making = self._loop.create_task(self._commit(tuple(changes), delete))
        self._commits.add(making)
        outcome: SharedResult[Revision] = SharedResult(self._loop)
        # Callbacks run in an empty context, without the seat of the caller.
        making.add_done_callback(partial(self._finished, outcome), context=self._nobody)
        return await outcome

    def watch(self, span: Span, *, after: Revision) -> Following:
        return Following(self._tail, span, after, self._history.replay)

    async def revision(self) -> Revision:
        self._check_open()
        revisions = await self._revisions.ask()
        return max(revisions.newest, self._tail.revision)

    async def may_compact(self) -> bool:
        """Whether no other server has claimed it since our last call.

        So it stays with one server for as long as that one calls; when it has stopped, the next one
        to call twice in a row takes over.
        """
        key = self._keys.compactor
        claim = TxnRequest()
        claim.compare.add(target=MOD_REVISION, key=key, mod_revision=self._claimed)
        put = claim.success.add().request_put
        put.key, put.value = key, self._self.encode()
        claim.failure.add().request_range.key = key
        try:
            answer = await self._client.once(TXN, claim)
        except Undecided as undecided:
            raise StoreUnavailable(str(undecided)) from None
        if answer.succeeded:
            self._claimed = answer.header.revision
        else:
            claims = answer.responses[0].response_range.kvs
            self._claimed = claims[0].mod_revision if claims else ABSENT
        return answer.succeeded

    async def compact(self, before: Revision) -> None:
        """Compact etcd; any number of servers may do so concurrently.

        etcd refuses a compaction that another has overtaken, which is fine.
        """
        newest = await self.revision()
        if before > newest:
            raise FutureRevision(before, newest)
        if before <= self._history.compacted:
            return
        try:
            await self._client.call(COMPACT, CompactionRequest(revision=before))
        except RevisionGone:
            await self._history.learn()
        else:
            await self._history.learn(before)

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._shut())
        await asyncio.shield(self._closing)

    async def _shut(self) -> None:
        if self._commits:
            await asyncio.wait(self._commits)
        self._history.close()
        self._following.cancel()
        await asyncio.wait([self._following])
        await self._revisions.close()
        await self._client.close()

    def _check_open(self) -> None:
        if self._closing is not None:
            raise StoreClosed("the store is closed")
        self._tail.check_open()

    # Reads

    async def _read(self, span: Span, at: Revision, limit: int) -> Page:
        """Read at one revision, in pages of limited size.

        With plain reads only: in a transaction, some versions of etcd refuse them when it is full.
        """
        oldest = self._tail.oldest
        shown, fixed = await self._revisions_of(at)
        start, end = self._keys.bounds(span)
        size = min(limit, FIRST_PAGE) if limit else FIRST_PAGE
        records: list[Record] = []
        more = True
        while more and (not limit or len(records) < limit):
            request = RangeRequest(key=start, range_end=end, limit=size, revision=fixed)
            response = await self._client.call(RANGE, request)
            records += [self._record(each) for each in response.kvs]
            more = response.more
            if more:
                start = self._keys.outer(records[-1].key) + b"\0"
                size = _next_size(records, limit)
        return Page(records, shown, more, oldest)

    async def _revisions_of(self, at: Revision) -> tuple[Revision, Revision]:
        """The revision that a read shows, and etcd's revision to read it at."""
        if LATEST < at <= self._tail.revision:
            # No key of ours has changed between the oldest revision and the compacted one.
            return at, max(at, self._history.compacted)
        revisions = await self._revisions.ask()
        newest, followed = revisions.newest, self._tail.revision
        if followed <= revisions.header:  # else another program wrote to our keys
            newest = max(newest, followed)
        if at > newest:
            raise FutureRevision(at, newest)
        return (
            (newest, revisions.header) if at == LATEST else (at, max(at, self._history.compacted))
        )

    def _record(self, found: KeyValue) -> Record:
        return Record(self._keys.inner(found.key), found.value, found.mod_revision)

    # Commits

    async def _commit(self, changes: tuple[Change, ...], delete: DeleteRange | None) -> Revision:
        name = f"{self._self}-{next(self._numbers)}".encode()
        before = self._tail.revision
        try:
            answer = await self._client.once(TXN, self._transaction(changes, delete, name))
        except (Undecided, StoreFull) as doubt:
            revision = await self._find(changes[0], name)
            if revision is None:
                if (
                    isinstance(doubt, StoreFull)
                    and (await self._history.revisions()).newest <= before
                ):
                    raise  # nothing has been committed since, so neither has this
                raise StoreUnavailable(str(doubt)) from None
        else:
            if not answer.succeeded:
                raise self._conflict(changes, answer)
            revision = answer.header.revision
            if not self._history.has(revision):
                self._history.offer(self._batch(changes, answer))
        await self._history.reach(revision)
        return revision

    def _finished(self, outcome: SharedResult[Revision], commit: asyncio.Task[Revision]) -> None:
        self._commits.discard(commit)
        if commit.cancelled():
            outcome.fail(lambda: StoreUnavailable("the store is closed"))
            return
        failure = commit.exception()
        if isinstance(failure, Exception):
            outcome.fail(lambda: failure)  # of its one caller
        else:
            outcome.finish(commit.result())

    def _transaction(
        self, changes: Sequence[Change], delete: DeleteRange | None, name: bytes
    ) -> TxnRequest:
        transaction = TxnRequest()
        for change in changes:
            key = self._keys.outer(change.key)
            transaction.compare.add(target=MOD_REVISION, key=key, mod_revision=change.expected)
            transaction.failure.add().request_range.key = key
            if change.value is None:
                gone = transaction.success.add().request_delete_range
                gone.key, gone.prev_kv = key, True
            else:
                put = transaction.success.add().request_put
                put.key, put.value, put.prev_kv = key, change.value, change.expected != ABSENT
        if delete is not None:
            key, end = self._keys.bounds(delete.span)
            late = delete.unchanged_since + 1
            transaction.compare.add(
                target=MOD_REVISION, result=LESS, key=key, range_end=end, mod_revision=late
            )
            changed = transaction.failure.add().request_range
            changed.key, changed.range_end = key, end
            changed.min_mod_revision, changed.limit = late, 1
            gone = transaction.success.add().request_delete_range
            gone.key, gone.range_end, gone.prev_kv = key, end, True
        mark = transaction.success.add().request_put
        mark.key, mark.value = self._keys.mark, name
        return transaction

    def _batch(self, changes: Sequence[Change], answer: TxnResponse) -> Batch:
        """The events of a commit, with previous values."""
        revision = answer.header.revision
        events = []
        *responses, _mark = answer.responses
        for change, response in zip_longest(changes, responses):
            if change is None or change.value is None:
                for was in response.response_delete_range.prev_kvs:
                    record = self._record(was)
                    events.append(
                        StoreEvent(record.key, None, revision, record.value, record.revision)
                    )
                continue
            previous = None
            if change.expected != ABSENT:
                previous = response.response_put.prev_kv.value
            events.append(StoreEvent(change.key, change.value, revision, previous, change.expected))
        return Batch(tuple(events), revision)

    def _conflict(self, changes: Sequence[Change], answer: TxnResponse) -> RevisionConflict:
        # A range has no change: any key found in it has changed too late.
        for change, response in zip_longest(changes, answer.responses):
            pairs = response.response_range.kvs
            record = self._record(pairs[0]) if pairs else None
            if change is None and record is not None:
                return RevisionConflict(record.key, record)
            if change and change.expected != (record.revision if record else ABSENT):
                return RevisionConflict(change.key, record)
        raise StoreUnavailable("etcd has refused a commit without a reason")

    async def _find(self, change: Change, name: bytes) -> Revision | None:
        """Look for a commit in doubt; None if it cannot be shown to have happened.

        It may still be on its way, or others may have changed its key since, so that not finding it
        proves nothing.
        """
        if revision := await self._named(name):
            return revision
        request = RangeRequest(key=self._keys.outer(change.key), keys_only=True)
        pairs = (await self._client.call(RANGE, request)).kvs
        if not pairs or pairs[0].mod_revision <= change.expected:
            return None
        try:
            return await self._named(name, at=pairs[0].mod_revision)
        except RevisionGone:
            return None

    async def _named(self, name: bytes, at: Revision = 0) -> Revision | None:
        """The revision of the commit with this name, if it wrote the mark."""
        request = RangeRequest(key=self._keys.mark, revision=at)
        marks = (await self._client.call(RANGE, request)).kvs
        return marks[0].mod_revision if marks and marks[0].value == name else None


async def _check_format(client: EtcdClient, keys: Keyspace) -> None:
    where = f"the store in etcd at {keys.first.decode()}"
    found = (await client.call(RANGE, RangeRequest(key=keys.outer(store_format.KEY)))).kvs
    stated = store_format.decode(found[0].value if found else None, where)
    store_format.refuse_newer(stated, where)


def _next_size(records: Sequence[Record], limit: int) -> int:
    """The number of records for the next page, from the size of those before."""
    mean = sum(len(record.value) for record in records) // len(records) + 1
    size = max(1, min(LARGEST_PAGE, BYTES_PER_PAGE // mean))
    return min(size, limit - len(records)) if limit else size


_: type[Store] = EtcdStore
