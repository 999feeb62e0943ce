"""The store in memory: for tests and experiments.

It has the history, errors and order of the durable backends; everything happens in the event loop,
so a commit is never interrupted.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from typing import NamedTuple

from orchid.kernel.store.interface import (
    ABSENT,
    FIRST,
    LATEST,
    Batch,
    Change,
    DeleteRange,
    FutureRevision,
    GroupingStore,
    Outcome,
    Page,
    Record,
    Revision,
    RevisionConflict,
    Span,
    StoreError,
    StoreEvent,
    check_changes,
    check_delete,
    check_read,
    check_revision,
)
from orchid.kernel.store.tail import Following, Tail


class _Version(NamedTuple):
    revision: Revision
    value: bytes | None  # None: deleted


class MemoryStore:
    """A Store that is lost when the process ends."""

    def __init__(self, *, first: Revision = FIRST) -> None:
        self._keys: list[str] = []  # sorted; also keys whose deletion is still in the history
        self._versions: dict[str, list[_Version]] = {}  # oldest first
        self._log: list[StoreEvent] = []
        self._tail = Tail(first, first)

    async def read(self, span: Span, *, at: Revision = LATEST, limit: int = 0) -> Page:
        self._tail.check_open()
        check_read(at, limit)
        newest, oldest = self._tail.revision, self._tail.oldest
        if at == LATEST:
            at = newest
        check_revision(at, oldest=oldest, newest=newest)
        records: list[Record] = []
        for key in self._keys_in(span):
            record = self._record(key, at)
            if record is None:
                continue
            if limit and len(records) == limit:
                return Page(records, at, more=True, oldest=oldest)
            records.append(record)
        return Page(records, at, more=False, oldest=oldest)

    async def commit(
        self, changes: Sequence[Change], delete: DeleteRange | None = None
    ) -> Revision:
        self._tail.check_open()
        check_changes(changes)
        if delete is not None:
            check_delete(delete, changes)
            changes = [*changes, *self._deletions(delete)]
        newest = self._tail.revision
        before = [self._record(change.key, newest) for change in changes]
        for change, record in zip(changes, before, strict=True):
            if change.expected != (record.revision if record else ABSENT):
                raise RevisionConflict(change.key, record)
        revision = newest + 1
        events = tuple(
            _event(change, record, revision) for change, record in zip(changes, before, strict=True)
        )
        for change in changes:
            self._remember(change.key, _Version(revision, change.value))
        self._log.extend(events)
        self._tail.append(Batch(events, revision))
        return revision

    async def commit_each(self, commits: Sequence[Sequence[Change]]) -> list[Outcome]:
        self._tail.check_open()
        outcomes: list[Outcome] = []
        for changes in commits:
            try:
                outcomes.append(await self.commit(changes))
            except StoreError as error:
                outcomes.append(error)
        return outcomes

    def watch(self, span: Span, *, after: Revision) -> Following:
        return Following(self._tail, span, after, self._replay)

    async def revision(self) -> Revision:
        return self._tail.revision

    async def may_compact(self) -> bool:
        return True  # this store has no other process

    async def compact(self, before: Revision) -> None:
        self._tail.check_open()
        if before > self._tail.revision:
            raise FutureRevision(before, self._tail.revision)
        if before <= self._tail.oldest:
            return
        self._tail.oldest = before
        del self._log[: bisect_right(self._log, before, key=_revision)]
        for key in list(self._keys):
            self._forget(key, before)

    async def close(self) -> None:
        self._tail.close()

    async def _replay(self, span: Span, after: Revision) -> Batch:
        newest = self._tail.revision
        check_revision(after, oldest=self._tail.oldest, newest=newest)
        later = self._log[bisect_right(self._log, after, key=_revision) :]
        return Batch(tuple(event for event in later if event.key in span), newest)

    def _keys_in(self, span: Span) -> list[str]:
        first = bisect_left(self._keys, span.start)
        last = bisect_left(self._keys, span.end) if span.end else len(self._keys)
        return self._keys[first:last]

    def _record(self, key: str, at: Revision) -> Record | None:
        versions = self._versions.get(key, [])
        count = bisect_right(versions, at, key=_revision)
        if not count:
            return None
        revision, value = versions[count - 1]
        return None if value is None else Record(key, value, revision)

    def _deletions(self, delete: DeleteRange) -> list[Change]:
        """A range as the deletion of each key in it, as of the revision that was read."""
        found = [self._record(key, self._tail.revision) for key in self._keys_in(delete.span)]
        since = delete.unchanged_since
        return [Change(each.key, None, min(each.revision, since)) for each in found if each]

    def _remember(self, key: str, version: _Version) -> None:
        if key not in self._versions:
            self._versions[key] = []
            insort(self._keys, key)
        self._versions[key].append(version)

    def _forget(self, key: str, before: Revision) -> None:
        """Drop values that were replaced or deleted by then."""
        versions = self._versions[key]
        count = bisect_right(versions, before, key=_revision)
        if count and versions[count - 1].value is not None:
            count -= 1  # a read at `before` finds that one
        del versions[:count]
        if not versions:
            del self._versions[key]
            del self._keys[bisect_left(self._keys, key)]


def _event(change: Change, before: Record | None, revision: Revision) -> StoreEvent:
    if before is None:
        return StoreEvent(change.key, change.value, revision, None, ABSENT)
    return StoreEvent(change.key, change.value, revision, before.value, before.revision)


def _revision(item: StoreEvent | _Version) -> Revision:
    return item.revision


_: type[GroupingStore] = MemoryStore
