"""The parent's side: one store, served to every worker over an inherited socket.

Start with `StoreServer`. It follows the store, encodes each batch once and sends the same bytes to
every `Session`; commits of all workers go into the store concurrently, so that its writer groups
them, and commits of one message are answered in one. Only processes that the parent has started can
connect: the socket has no name.

The order that workers rely on, for each batch: the shared counter moves, every session gets the
batch, and only then is any commit in the batch answered. So after a response, on any worker, the
counter is at or beyond its revision; and a worker's own response never overtakes the change it
belongs to.

Slow workers delay nobody. Once too much is unread, a session is sent no more changes and its
requests are not read. When there is room again, one `Moved` has the store's revision, and the
worker reads the missed changes from the history, at its own pace.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final, cast

from orchid.kernel.store.interface import (
    Batch,
    Change,
    Compacted,
    DeleteRange,
    GroupingStore,
    Outcome,
    Page,
    Revision,
    Span,
    StoreError,
)
from orchid.kernel.workers.counter import SharedCounter
from orchid.kernel.workers.counts import GatheredCounts
from orchid.kernel.workers.framing import Astray, Reader
from orchid.kernel.workers.messages import (
    LARGEST_COMMIT,
    Alive,
    Answer,
    Commits,
    Compact,
    Counted,
    Done,
    Forgotten,
    FoundMessage,
    Gather,
    Gathered,
    Happened,
    HistoryMessage,
    Moved,
    Read,
    Ready,
    Replay,
    Report,
    Request,
    ResetCounts,
    UnfitMessage,
    WorkerMessage,
    from_worker,
    outcomes_of,
    packed,
    refusal,
)

log = logging.getLogger(__name__)

MOST_UNREAD: Final = 8 << 20  # bytes for one worker before it is sent no more changes
LARGEST_PAGE: Final = 4 << 20  # bytes of values in one response; the rest needs another request
LARGEST_BATCH: Final = 16 << 20  # a batch beyond this is read from the history instead
READS_AT_ONCE: Final = 4  # per worker
LARGEST_REQUEST: Final = LARGEST_COMMIT + (1 << 20)
AGAIN_SECONDS: Final = 0.2
ANY_KEY: Final = Span.key("/")  # for reads that only need the store's revision

Reported = Callable[[Ready | UnfitMessage], None]
Asked = Read | Replay | Compact | Gather  # requests that take a while, except commits


class StoreServer:
    """Serves a store to sessions. The store is closed by its opener."""

    def __init__(self, store: GroupingStore, counter: SharedCounter) -> None:
        self._store = store
        self._counter = counter
        self._sessions: set[Session] = set()
        self._unanswered: list[tuple[Revision, Session, Answer]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.counts = GatheredCounts()
        self.sent_revision: Revision = 0  # every session was sent the changes up to this revision
        self.oldest: Revision = 0

    async def start(self) -> None:
        """Read the store's revision; `run` continues from there."""
        page = await self._store.read(ANY_KEY)
        self.oldest = page.oldest
        self.sent_revision = self._counter.value = await self._store.revision()

    async def run(self) -> None:
        """Send every change to every session, until cancelled."""
        while True:
            try:
                async with aclosing(
                    self._store.watch(Span.all(), after=self.sent_revision)
                ) as batches:
                    async for batch in batches:
                        self._broadcast(batch)
            except Compacted:
                # The missed part was compacted; workers start over after `Moved`.
                self._broadcast(Batch((), await self._store.revision()))
            except StoreError as failure:
                log.warning("workers.store_failed: %s", failure)
                await asyncio.sleep(AGAIN_SECONDS)

    async def attach(self, link: socket.socket, reported: Reported) -> "Session":
        """Serve the worker at the other end of a socket, which is ours from now on."""
        loop = asyncio.get_running_loop()
        _, session = await loop.create_unix_connection(lambda: Session(self, reported), sock=link)
        return session

    def forgot(self, before: Revision) -> None:
        """Notify the workers that history before a revision is gone."""
        if before > self.oldest:
            self.oldest = before
            news = packed(Forgotten(before))
            for session in self._sessions:
                session.write(news)

    # Broadcast

    def _broadcast(self, batch: Batch) -> None:
        news = packed(Happened(*batch)) if batch.events else b""
        if not 0 < len(news) <= LARGEST_BATCH:
            news = packed(Moved(batch.revision))
        self.sent_revision = batch.revision
        self._counter.value = batch.revision
        for session in self._sessions:
            session.send_change(news, batch.revision)
        self._answer_waiting()

    def _answer_waiting(self) -> None:
        waiting, self._unanswered = self._unanswered, []
        for revision, session, answer in waiting:
            self._answer_at(revision, session, answer)

    def _answer_at(self, revision: Revision, session: "Session", answer: Answer) -> None:
        """Answer once every session was sent a revision."""
        if revision <= self.sent_revision:
            session.answer(answer)
        else:
            self._unanswered.append((revision, session, answer))

    # Sessions

    def joined(self, session: "Session") -> None:
        self._sessions.add(session)

    def left(self, session: "Session") -> None:
        self._sessions.discard(session)
        self.counts.left(session)
        self._unanswered = [each for each in self._unanswered if each[1] is not session]

    def commit(self, session: "Session", message: Commits) -> None:
        """Pass commits to the store; they are answered when it has made them, without a task."""
        if message.delete is None:
            committing = asyncio.ensure_future(self._store.commit_each(message.commits))
        else:
            committing = asyncio.ensure_future(
                self._commit_with_range(message.commits, message.delete)
            )
        committing.add_done_callback(partial(self._committed, session, message.number))

    async def _commit_with_range(
        self, commits: Sequence[Sequence[Change]], delete: DeleteRange
    ) -> list[Outcome]:
        [changes] = commits
        return [await self._store.commit(changes, delete)]

    def _committed(
        self, session: "Session", number: int, committing: "asyncio.Future[list[Outcome]]"
    ) -> None:
        if committing.cancelled():
            return
        error = committing.exception()
        if error is not None:
            session.answer(_refused(number, error))
            return
        outcomes = committing.result()
        made_at = (each for each in reversed(outcomes) if isinstance(each, Revision))
        newest = next(made_at, 0)  # they were made in order
        self._answer_at(newest, session, outcomes_of(number, outcomes))

    def handle(self, session: "Session", request: Asked) -> None:
        """Start to process a request, in a task of its own."""
        task = asyncio.get_running_loop().create_task(self._guarded(session, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, session: "Session", request: Asked) -> None:
        try:
            await self._act(session, request)
        except Exception as error:
            session.answer(_refused(request.number, error))

    def _act(self, session: "Session", request: Asked) -> Coroutine[Any, Any, None]:
        if isinstance(request, Read):
            return self._read(session, request)
        if isinstance(request, Replay):
            return self._replay(session, request)
        if isinstance(request, Gather):
            return self._gather(session, request)
        return self._compact(session, request)

    async def _read(self, session: "Session", read: Read) -> None:
        async with session.reading:
            await session.writable.wait()
            span = Span(read.start, read.end)
            page = _cut(await self._store.read(span, at=read.at, limit=read.limit))
            answer = FoundMessage(read.number, page.records, page.revision, page.more, page.oldest)
            session.answer(answer)

    async def _replay(self, session: "Session", replay: Replay) -> None:
        async with session.reading:
            await session.writable.wait()
            if replay.after >= await self._store.revision():
                # There is nothing to send; but a future revision is refused.
                await self._store.read(ANY_KEY, at=replay.after)
                session.answer(HistoryMessage(replay.number, (), replay.after))
                return
            span = Span(replay.start, replay.end)
            async with aclosing(self._store.watch(span, after=replay.after)) as batches:
                session.answer(HistoryMessage(replay.number, *await anext(batches)))

    async def _gather(self, session: "Session", gather: Gather) -> None:
        counts = await self.counts.gather(session, gather.counts, tuple(self._sessions))
        session.answer(Gathered(gather.number, counts))

    def reset_counts(self, session: "Session") -> None:
        self.counts.reset(session, tuple(self._sessions))

    async def _compact(self, session: "Session", compact: Compact) -> None:
        await self._store.compact(compact.before)
        self.forgot(compact.before)
        session.answer(Done(compact.number, self.oldest))


class Session(asyncio.Protocol):
    """The connection to one worker."""

    def __init__(self, server: StoreServer, reported: Reported) -> None:
        self._server = server
        self._reported = reported
        self._reader = Reader(LARGEST_REQUEST)
        self._transport: asyncio.Transport | None = None
        self._sent: Revision = 0
        self.reading = asyncio.Semaphore(READS_AT_ONCE)
        self.writable = asyncio.Event()
        self.writable.set()
        self.heard = 0  # the number of data portions received from it
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # Calls of the server

    def begin(self, message: WorkerMessage) -> None:
        """Send the first message; from now on the worker gets every change."""
        self._sent = self._server.sent_revision
        self.write(packed(message))
        self._server.joined(self)

    def send_change(self, news: bytes, revision: Revision) -> None:
        """Send a change, unless too much is unread; then `_catch_up` makes up for it."""
        if self.writable.is_set():
            self._sent = revision
            self.write(news)

    def answer(self, answer: Answer) -> None:
        self._catch_up()
        self.write(packed(answer))

    def send(self, message: WorkerMessage) -> None:
        self.write(packed(message))

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _catch_up(self) -> None:
        newest = self._server.sent_revision
        if self._sent < newest:
            self._sent = newest
            self.write(packed(Moved(newest)))

    # Callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._transport.set_write_buffer_limits(high=MOST_UNREAD)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._reader.unfinished:
            log.error("workers.astray: the stream ends within a message")
        self.writable.set()
        self._server.left(self)
        if not self.ended.done():
            self.ended.set_result(None)

    def pause_writing(self) -> None:
        self.writable.clear()
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.writable.set()
        if self._transport is not None:
            self._transport.resume_reading()
        self._catch_up()

    def data_received(self, data: bytes) -> None:
        self.heard += 1
        try:
            for frame in self._reader.feed(data):
                self._take(from_worker(frame))
        except Astray as problem:
            log.error("workers.astray: %s", problem)
            self.close()

    def _take(self, message: Request | Report) -> None:
        if isinstance(message, Commits):
            self._server.commit(self, message)
        elif isinstance(message, (Read, Replay, Compact, Gather)):
            self._server.handle(self, message)
        elif isinstance(message, Alive):
            self.send(message)
        elif isinstance(message, Counted):
            self._server.counts.counted(self, message.counts)
        elif isinstance(message, ResetCounts):
            self._server.reset_counts(self)
        else:
            self._reported(message)


def _refused(number: int, error: BaseException) -> Answer:
    if not isinstance(error, (StoreError, ValueError)):
        log.error("workers.request_failed", exc_info=error)
    return refusal(number, error)


def _cut(page: Page) -> Page:
    """The part of a page that fits into one response; always at least one record."""
    size = 0
    for count, record in enumerate(page.records):
        size += len(record.value)
        if size > LARGEST_PAGE and count:
            return Page(page.records[:count], page.revision, more=True, oldest=page.oldest)
    return page
