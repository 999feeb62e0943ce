"""The only thread that writes to a data file.

It takes all queued commits, checks and writes them in one transaction, and resolves them together;
while it waits for the disk, the next group gathers. So the disk is synced once per group, and
everything acknowledged is on it. Compaction is done here too, in small parts between the groups, so
that no commit waits long for it.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import apsw

from orchid.kernel.store.interface import (
    Batch,
    Change,
    DeleteRange,
    Outcome,
    Revision,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from orchid.kernel.store.sqlite import tables as sqlite_tables

log = logging.getLogger(__name__)

MAX_GROUP = 512
MAX_GROUP_BYTES = 8 << 20


class QueuedCommits(NamedTuple):
    """Commits of one call, and the future for their results.

    With a range to delete, it is one commit.
    """

    commits: Sequence[Sequence[Change]]
    answer: asyncio.Future[list[Outcome]]
    delete: DeleteRange | None = None


class Compaction(NamedTuple):
    """A revision to compact up to, and its future."""

    before: Revision
    answer: asyncio.Future[Revision]


Work = QueuedCommits | Compaction
Settled = tuple[asyncio.Future[Any], list[Outcome] | Revision | StoreError]
Deliver = Callable[[Batch, Sequence[Settled]], None]
"""Called in the event loop: the new events, and the results of commits.

A batch that moves on without events means that they have to be read from the file.
"""


class Writer:
    """Owns a connection from `start` until `stop` has returned; reports through `deliver`."""

    def __init__(
        self, db: apsw.Connection, loop: asyncio.AbstractEventLoop, deliver: Deliver
    ) -> None:
        self._db = db
        self._loop = loop
        self._deliver = deliver
        self._newest = sqlite_tables.extent(db).newest
        self._in_doubt = False  # a transaction failed: read the file before going on
        # None: the end
        self._work: SimpleQueue[Sequence[Work] | None] = SimpleQueue()
        self._compactions: deque[Compaction] = deque()
        self._ending = False
        # A daemon, so that a program which exits without closing its store does exit.
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, work: Sequence[Work]) -> None:
        """Queue work; its futures are resolved in the event loop."""
        self._work.put(work)

    def stop(self) -> None:
        """Finish the queued commits, then end; blocks until then."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._ending:
                if gathered := self._gather():
                    self._commit_gathered(gathered)
                elif self._compactions:
                    self._guard(self._sweep, [self._compactions.popleft()])
            closed = StoreClosed("the store is closed")
            self._post(self._now(), [(each.answer, closed) for each in self._compactions])
        except RuntimeError:
            log.debug("the event loop has ended before its store was closed")

    def _gather(self) -> list[QueuedCommits]:
        """All queued work, up to a limit; blocks while there is nothing to do."""
        gathered: list[QueuedCommits] = []
        count = size = 0
        while count < MAX_GROUP and size < MAX_GROUP_BYTES and not self._ending:
            try:
                work = self._work.get(block=not gathered and not self._compactions)
            except Empty:
                break
            if work is None:
                self._ending = True
                continue
            for queued in work:
                if isinstance(queued, Compaction):
                    self._compactions.append(queued)
                    continue
                gathered.append(queued)
                count += len(queued.commits)
                for changes in queued.commits:
                    for change in changes:
                        size += len(change.value or b"")
        return gathered

    def _guard(self, act: Callable[[list[Any]], None], work: list[Any]) -> None:
        """Run an operation on the file; report a failure to all concerned and continue."""
        try:
            if self._in_doubt:
                self._look_again()
            act(work)
        except Exception as error:
            self._in_doubt = True
            if not isinstance(error, apsw.Error):
                log.exception("the store's writer met an error nobody foresaw")
            self._roll_back()
            self._post(self._now(), [(each.answer, failed(error)) for each in work])

    def _commit_gathered(self, gathered: list[QueuedCommits]) -> None:
        if plain := [each for each in gathered if each.delete is None]:
            self._guard(self._commit, plain)
        for each in gathered:
            if each.delete is not None:
                self._guard(self._commit_with_range, [each])

    def _commit_with_range(self, queued: list[QueuedCommits]) -> None:
        [each] = queued
        assert each.delete is not None
        [changes] = each.commits
        outcome = sqlite_tables.apply_with_range(self._db, self._newest, changes, each.delete)
        self._newest = outcome.batch.revision
        self._post(outcome.batch, [(each.answer, outcome.answers)])

    def _commit(self, gathered: list[QueuedCommits]) -> None:
        commits = [changes for each in gathered for changes in each.commits]
        outcome = sqlite_tables.apply(self._db, self._newest, commits)
        self._newest = outcome.batch.revision
        answers = iter(outcome.answers)
        settled = [(each.answer, list(islice(answers, len(each.commits)))) for each in gathered]
        self._post(outcome.batch, settled)

    def _sweep(self, compactions: list[Compaction]) -> None:
        [compaction] = compactions
        if sqlite_tables.sweep(self._db, compaction.before):
            self._compactions.appendleft(compaction)
        else:
            self._post(self._now(), [(compaction.answer, compaction.before)])

    def _look_again(self) -> None:
        """Find out whether the failed transaction has reached the disk after all."""
        self._roll_back()
        self._newest = sqlite_tables.extent(self._db).newest
        self._in_doubt = False
        self._post(self._now(), [])

    def _roll_back(self) -> None:
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except apsw.Error:
            log.warning("a transaction could not be rolled back; it will be tried again")

    def _now(self) -> Batch:
        return Batch((), self._newest)

    def _post(self, batch: Batch, settled: Sequence[Settled]) -> None:
        self._loop.call_soon_threadsafe(self._deliver, batch, settled)


def failed(error: Exception) -> StoreError:
    """Translate an error of SQLite into one of the store."""
    if isinstance(error, apsw.FullError):
        return StoreFull("no room left for the data file")
    if isinstance(error, apsw.Error):
        return StoreUnavailable(f"the data file cannot be used: {error}")
    return StoreUnavailable("the store has failed")
