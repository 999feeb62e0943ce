"""The one thread that writes to a data file.

It takes every commit that waits, has them judged and written in one transaction, and answers
them all at once; while it waits for the disk, the next group gathers. So the disk is asked once
per group, and everything acknowledged is on it. Compaction is done here too, in small parts
between the groups, so that no commit waits long for it.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import apsw

from orchid.store.interface import Batch, Change, Revision, StoreError, StoreFull, StoreUnavailable
from orchid.store.sqlite import tables as sqlite_tables

log = logging.getLogger(__name__)

MAX_GROUP = 512
MAX_GROUP_BYTES = 8 << 20


class QueuedCommit(NamedTuple):
    """Changes to be made as one revision, and the future that waits for it."""

    changes: Sequence[Change]
    answer: asyncio.Future[Revision]


class Compaction(NamedTuple):
    """A revision to forget everything before, and the future that waits for it."""

    before: Revision
    answer: asyncio.Future[Revision]


Settled = tuple[asyncio.Future[Revision], Revision | StoreError]
Deliver = Callable[[Batch, Sequence[Settled]], None]
"""Called in the event loop: what happened since, and the answers that have become known.

A batch that moves on without events says that they are to be read from the file.
"""


class Writer:
    """Owns a connection from `start` until `stop` has returned; talks back through `deliver`."""

    def __init__(
        self, db: apsw.Connection, loop: asyncio.AbstractEventLoop, deliver: Deliver
    ) -> None:
        self._db = db
        self._loop = loop
        self._deliver = deliver
        self._newest = sqlite_tables.extent(db).newest
        self._in_doubt = False  # a transaction failed: look at the file before going on
        # None: the end
        self._work: SimpleQueue[Sequence[QueuedCommit | Compaction] | None] = SimpleQueue()
        self._compactions: deque[Compaction] = deque()
        self._ending = False
        # A daemon, so that a program which dies without closing its store does die.
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, work: Sequence[QueuedCommit | Compaction]) -> None:
        """Hand over work; its futures are answered in the event loop."""
        self._work.put(work)

    def stop(self) -> None:
        """Finish the commits handed over so far, then end; blocks until then."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._ending:
                if commits := self._gather():
                    self._guard(self._commit, commits)
                elif self._compactions:
                    self._guard(self._sweep, [self._compactions.popleft()])
            closed = StoreUnavailable("the store is closed")
            self._post(self._now(), [(each.answer, closed) for each in self._compactions])
        except RuntimeError:
            log.debug("the event loop has ended before its store was closed")

    def _gather(self) -> list[QueuedCommit]:
        """Everything that waits, within reason; sleeps while there is nothing to do at all."""
        commits: list[QueuedCommit] = []
        size = 0
        while len(commits) < MAX_GROUP and size < MAX_GROUP_BYTES and not self._ending:
            try:
                work = self._work.get(block=not commits and not self._compactions)
            except Empty:
                break
            if work is None:
                self._ending = True
                continue
            for one in work:
                if isinstance(one, Compaction):
                    self._compactions.append(one)
                else:
                    commits.append(one)
                    size += sum(len(change.value or b"") for change in one.changes)
        return commits

    def _guard(self, act: Callable[[list[Any]], None], work: list[Any]) -> None:
        """Do something to the file; if that fails, say so to everyone concerned and carry on."""
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

    def _commit(self, commits: list[QueuedCommit]) -> None:
        outcome = sqlite_tables.apply(self._db, self._newest, [each.changes for each in commits])
        self._newest = outcome.batch.revision
        answers = [each.answer for each in commits]
        self._post(outcome.batch, list(zip(answers, outcome.answers, strict=True)))

    def _sweep(self, compactions: list[Compaction]) -> None:
        [compaction] = compactions
        if sqlite_tables.sweep(self._db, compaction.before):
            self._compactions.appendleft(compaction)
        else:
            self._post(self._now(), [(compaction.answer, compaction.before)])

    def _look_again(self) -> None:
        """Learn whether the transaction that failed has reached the disk after all."""
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
    """Translate what SQLite says into what the store says."""
    if isinstance(error, apsw.FullError):
        return StoreFull("no room left for the data file")
    if isinstance(error, apsw.Error):
        return StoreUnavailable(f"the data file cannot be used: {error}")
    return StoreUnavailable("the store has failed")
