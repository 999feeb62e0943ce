"""The store in one SQLite file: durable, for one process.

A store has two threads, and the event loop never touches the file. The writer makes commits
(writer.py). The reader serves reads, and history for watchers. The content of the file: tables.py;
creating, locking and copying it: file.py.

Never opens a file that another store has open, never acknowledges before the disk does.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import apsw

from orchid.kernel.store.interface import (
    FIRST,
    LATEST,
    Batch,
    Change,
    DeleteRange,
    FutureRevision,
    GroupingStore,
    Outcome,
    Page,
    Revision,
    Span,
    StoreClosed,
    check_changes,
    check_delete,
    check_read,
)
from orchid.kernel.store.sqlite import file as sqlite_file
from orchid.kernel.store.sqlite import tables as sqlite_tables
from orchid.kernel.store.sqlite.writer import Compaction, QueuedCommits, Settled, Writer, failed
from orchid.kernel.store.tail import Following, Tail

T = TypeVar("T")


class SQLiteStore:
    """A Store in a file. Create one with `await SQLiteStore.open(path)`."""

    def __init__(self, file: sqlite_file.DataFile) -> None:
        self._file = file
        self._loop = asyncio.get_running_loop()
        oldest, newest = sqlite_tables.extent(file.writing)
        self._tail = Tail(newest, oldest)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="store-reader")
        self._writer = Writer(file.writing, self._loop, self._deliver)
        self._writer.start()
        self._queued: list[QueuedCommits] = []
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, path: Path, *, first: Revision = FIRST) -> "SQLiteStore":
        """Open a data file, or create it, beginning at `first`. Raises Unusable, AlreadyInUse."""
        return cls(await asyncio.to_thread(sqlite_file.DataFile, path, first))

    async def read(self, span: Span, *, at: Revision = LATEST, limit: int = 0) -> Page:
        check_read(at, limit)

        def read(db: apsw.Connection) -> Page:
            page = sqlite_tables.read(db, span, at, limit)
            if not page.more:  # the next read will be different, and much later
                db.execute("PRAGMA shrink_memory")
            return page

        return await self._ask(read)

    async def commit(
        self, changes: Sequence[Change], delete: DeleteRange | None = None
    ) -> Revision:
        self._tail.check_open()
        check_changes(changes)
        if delete is not None:
            check_delete(delete, changes)
        [outcome] = await self._queue((tuple(changes),), delete)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def commit_each(self, commits: Sequence[Sequence[Change]]) -> asyncio.Future[list[Outcome]]:
        if not self._tail.closed:
            return self._queue(commits)
        closed: asyncio.Future[list[Outcome]] = self._loop.create_future()
        closed.set_exception(StoreClosed("the store is closed"))
        return closed

    def _queue(
        self, commits: Sequence[Sequence[Change]], delete: DeleteRange | None = None
    ) -> asyncio.Future[list[Outcome]]:
        answer: asyncio.Future[list[Outcome]] = self._loop.create_future()
        if not self._queued:
            self._loop.call_soon(self._hand_over)
        self._queued.append(QueuedCommits(commits, answer, delete))
        return answer

    def _hand_over(self) -> None:
        """Pass all commits of one turn of the loop to the writer: it is woken once for them."""
        queued, self._queued = self._queued, []
        if queued:
            self._writer.put(queued)

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
        answer: asyncio.Future[Revision] = self._loop.create_future()
        self._writer.put([Compaction(before, answer)])
        self._tail.oldest = max(self._tail.oldest, await answer)

    async def backup(self, target: Path) -> None:
        """Write a copy of the current data to another file, concurrently."""
        self._tail.check_open()
        await asyncio.to_thread(sqlite_file.copy, self._file.path, target)

    async def close(self) -> None:
        if self._closing is None:
            self._hand_over()
            self._tail.close()
            self._closing = asyncio.create_task(asyncio.to_thread(self._shut))
        await asyncio.shield(self._closing)

    def _shut(self) -> None:
        self._reader.shutdown()
        self._writer.stop()
        self._file.close()

    async def _replay(self, span: Span, after: Revision) -> Batch:
        return await self._ask(lambda db: sqlite_tables.replay(db, span, after))

    async def _ask(self, question: Callable[[apsw.Connection], T]) -> T:
        self._tail.check_open()
        try:
            return await self._loop.run_in_executor(self._reader, question, self._file.reading)
        except apsw.Error as error:
            raise failed(error) from error

    def _deliver(self, batch: Batch, settled: Sequence[Settled]) -> None:
        """Notify watchers first, then resolve commits: a committed change is visible to
        watchers.
        """
        if batch.events:
            self._tail.append(batch)
        elif batch.revision > self._tail.revision:
            self._tail.jump(batch.revision)
        for answer, result in settled:
            if answer.done():  # its caller was cancelled; the commit is still valid
                continue
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)


_: type[GroupingStore] = SQLiteStore
