"""Copy a store into another one: from SQLite to etcd, or back.

The current records are copied, as of one revision, without their history. **Records get new
revisions in the target**, in the order of their keys: a client with a revision of the source has to
list again, because the target's history begins after the copy.

Neither store may be written meanwhile. That is checked as well as possible: the target must be
empty, the source must not change, and at the end both are read again and compared. Start with
`migrate`. A failed copy is left as it is, and must be emptied before a retry.

A source that was moved is marked (`mark_moved`), and not served any more: in it, whatever is
revoked or deleted in the target from now on would be valid.

    ~server/moved   etcd at https://a:2379 with the prefix /orchid, 2026-11-19T08:00:00Z
"""

import hashlib
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from orchid.kernel.store.interface import (
    ABSENT,
    MAX_CHANGES,
    Change,
    Record,
    Revision,
    Span,
    Store,
    StoreError,
)

RECORDS_PER_READ: Final = 1000
MOVED: Final = "~server/moved"
BYTES_PER_COMMIT: Final = 1 << 20  # etcd refuses more than 1.5 MiB; a larger record goes alone


class NotMigrated(StoreError):
    """The target cannot be used as a copy of the source."""


class Progress(msgspec.Struct, frozen=True):
    """The progress of a migration."""

    step: str  # "count", "copy" or "verify"
    done: int
    total: int  # 0: unknown


class Migrated(msgspec.Struct, frozen=True):
    """The result of a migration."""

    records: int
    digest: str  # SHA-256 over all keys and values, the same for source and target
    source: Revision  # the copied revision
    target: Revision  # the target's oldest and newest revision
    sealed: int  # encrypted records


class _Sum(msgspec.Struct):
    """A count and a hash of records."""

    mark: bytes  # prefix of an encrypted value
    records: int = 0
    sealed: int = 0
    _hash: "hashlib._Hash" = msgspec.field(default_factory=hashlib.sha256)

    def add(self, record: Record) -> None:
        key = record.key.encode()
        # With their lengths, so that different stores never have the same bytes.
        self._hash.update(b"%d:%d:" % (len(key), len(record.value)))
        self._hash.update(key)
        self._hash.update(record.value)
        self.records += 1
        self.sealed += record.value.startswith(self.mark)

    def digest(self) -> str:
        return self._hash.hexdigest()


Report = Callable[[Progress], None]


async def migrate(
    source: Store, target: Store, mark: bytes, *, report: Report = lambda progress: None
) -> Migrated:
    """Copy and verify all records. Raises NotMigrated, or the errors of either store.

    Encrypted values, which begin with the mark, are copied as they are and counted.
    """
    for record in (await source.read(Span.key(MOVED))).records:
        raise NotMigrated(moved_text(record.value))
    if (await target.read(Span.all(), limit=1)).records:
        raise NotMigrated("the target is not empty")
    start = await source.revision()
    expected = await _add_up(source, start, _Sum(mark), Progress("count", 0, 0), report)
    await _copy(source, start, target, expected.records, report)
    end = await target.revision()
    copied = await _add_up(target, end, _Sum(mark), Progress("verify", 0, expected.records), report)
    if await source.revision() != start:
        raise NotMigrated("the source was written to meanwhile; the copy is not complete")
    if await target.revision() != end:
        raise NotMigrated("the target was written to meanwhile; it is not a copy")
    if (expected.records, expected.digest()) != (copied.records, copied.digest()):
        raise NotMigrated(f"{copied.records} records arrived of {expected.records}, or they differ")
    await target.compact(end)
    return Migrated(copied.records, copied.digest(), start, end, copied.sealed)


async def mark_moved(store: Store, where: str) -> None:
    """Say in a store where its objects went."""
    await store.commit([Change(MOVED, where.encode(), ABSENT)])


async def unmark(store: Store) -> bool:
    """Let a store be served again that was moved; return whether it was."""
    for record in (await store.read(Span.key(MOVED))).records:
        await store.commit([Change(MOVED, None, record.revision)])
        return True
    return False


def moved_text(value: bytes) -> str:
    """What is wrong with a store that has the mark."""
    where = value.decode(errors="replace")
    return (
        f"this store was moved to {where}: what was revoked or deleted there since would be valid "
        "again here. Use that one; to use this one all the same, run `orchid migrate --undo`"
    )


async def _copy(source: Store, at: Revision, target: Store, total: int, report: Report) -> None:
    done = size = 0
    waiting: list[Change] = []
    async for record in _records(source, at):
        if waiting and (len(waiting) == MAX_CHANGES or size + len(record.value) > BYTES_PER_COMMIT):
            await target.commit(waiting)
            done += len(waiting)
            report(Progress("copy", done, total))
            waiting, size = [], 0
        waiting.append(Change(record.key, record.value, ABSENT))
        size += len(record.value)
    if waiting:
        await target.commit(waiting)
    report(Progress("copy", done + len(waiting), total))


async def _add_up(
    store: Store, at: Revision, result: _Sum, begun: Progress, report: Report
) -> _Sum:
    async for record in _records(store, at):
        result.add(record)
        if result.records % RECORDS_PER_READ == 0:
            report(replace(begun, done=result.records))
    report(replace(begun, done=result.records, total=result.records))
    return result


async def _records(store: Store, at: Revision) -> AsyncIterator[Record]:
    """Every record of one revision, in order, page by page."""
    rest = Span.all()
    while True:
        page = await store.read(rest, at=at, limit=RECORDS_PER_READ)
        for record in page.records:
            yield record
        if not page.more:
            return
        rest = rest.after(page.records[-1].key)
