"""The worker's side: a Store whose data is in the parent process, at the other end of a socket.

Start with `RemoteStore`. The commits of one turn of the loop are sent together, and do not wait for
earlier ones. Every change is pushed to us and added to a tail, as with the other backends; reads,
and history that is older than our tail, are requested. `revision` reads memory shared with the
parent: it shows immediately whether a commit of another worker has not reached us yet.

When the parent is gone, everything raises StoreUnavailable and `lost` is done: a worker then ends.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from itertools import chain, count
from typing import Any, Final, TypeVar, cast

from orchid.kernel.base.clock import Monotonic
from orchid.kernel.base.metrics import packed as packed_counts
from orchid.kernel.store.interface import (
    LATEST,
    Batch,
    Change,
    Compacted,
    DeleteRange,
    FutureRevision,
    Page,
    Record,
    Revision,
    Span,
    Store,
    StoreClosed,
    StoreUnavailable,
    ValueTooLarge,
    check_changes,
    check_delete,
    check_read,
)
from orchid.kernel.store.tail import Following, Tail
from orchid.kernel.workers.counter import SharedCounter
from orchid.kernel.workers.framing import Astray, Reader
from orchid.kernel.workers.messages import (
    LARGEST_COMMIT,
    Alive,
    Answer,
    Begin,
    Commits,
    Compact,
    Count,
    Counted,
    Done,
    Forgotten,
    FoundMessage,
    Gathered,
    Happened,
    HistoryMessage,
    Moved,
    News,
    Open,
    Outcomes,
    Read,
    Ready,
    RefusedMessage,
    Replay,
    ResetCounts,
    WorkerMessage,
    error_in,
    from_parent,
    packed,
)

log = logging.getLogger(__name__)

RECORDS_PER_READ: Final = 1000  # per request; a large snapshot takes several
TAIL_BYTES: Final = 4 << 20  # small, because the feed has its own copy of every change
PULLED_BYTES: Final = 64 << 10  # read from the socket by a request that needs them
BEAT_SECONDS: Final = 1.0
SILENT_SECONDS: Final = 5.0

GONE: Final = "the parent process is gone"

A = TypeVar("A", Done, FoundMessage, HistoryMessage, Gathered)
Directed = Callable[[Begin | Open | Count | ResetCounts], None]


class ParentLink(asyncio.Protocol):
    """The connection to the parent: numbered requests, their responses, and pushed changes."""

    def __init__(
        self,
        link: socket.socket,
        pushed: Callable[[News], None],
        directed: Directed,
        monotonic: Monotonic,
    ) -> None:
        self._link = link
        self._pushed = pushed
        self._directed = directed
        self._monotonic = monotonic
        self._reader = Reader()
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._numbers = count(1)
        self._unsent: list[tuple[tuple[Change, ...], asyncio.Future[Revision]]] = []
        self._unsent_bytes = 0
        self._committing: dict[int, list[asyncio.Future[Revision]]] = {}
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.heard = self._monotonic()
        self.idle = asyncio.Event()  # set while no request waits for its response
        self.idle.set()

    @classmethod
    async def over(
        cls,
        link: socket.socket,
        pushed: Callable[[News], None],
        directed: Directed,
        monotonic: Monotonic,
    ) -> "ParentLink":
        loop = asyncio.get_running_loop()
        _, self = await loop.create_unix_connection(
            lambda: cls(link, pushed, directed, monotonic), sock=link
        )
        return self

    async def ask(self, kind: type[A], make: Callable[[int], WorkerMessage]) -> A:
        """Send a request, and return its response or raise the error in it."""
        answer = await self.expect(make)
        assert isinstance(answer, kind)
        return answer

    def expect(self, make: Callable[[int], WorkerMessage]) -> asyncio.Future[Any]:
        number = next(self._numbers)
        answer: asyncio.Future[Any] = self._loop.create_future()
        if self.lost.done():
            answer.set_exception(StoreUnavailable(GONE))
            return answer
        self.send(make(number))
        self._waiting[number] = answer
        self.idle.clear()
        return answer

    def commit(self, changes: tuple[Change, ...], size: int) -> asyncio.Future[Revision]:
        """Send a commit, with all others of this turn of the loop."""
        answer: asyncio.Future[Revision] = self._loop.create_future()
        if self._unsent_bytes + size > LARGEST_COMMIT:
            self._send_commits()
        if not self._unsent:
            self._loop.call_soon(self._send_commits)
            self.idle.clear()
        self._unsent.append((changes, answer))
        self._unsent_bytes += size
        return answer

    def commit_with_range(
        self, changes: tuple[Change, ...], delete: DeleteRange
    ) -> asyncio.Future[Revision]:
        """Send a commit that deletes a range, by itself."""
        answer: asyncio.Future[Revision] = self._loop.create_future()
        if self.lost.done():
            _fail([answer])
            return answer
        self._await_commits([answer], [changes], delete)
        self.idle.clear()
        return answer

    def _await_commits(
        self,
        answers: list[asyncio.Future[Revision]],
        commits: list[tuple[Change, ...]],
        delete: DeleteRange | None = None,
    ) -> None:
        number = next(self._numbers)
        self._committing[number] = answers
        self.send(Commits(number, commits, delete))

    def _send_commits(self) -> None:
        unsent, self._unsent, self._unsent_bytes = self._unsent, [], 0
        if not unsent:
            return  # they were so large that they did not wait for the end of the turn
        answers = [answer for _, answer in unsent]
        if self.lost.done():
            _fail(answers)
            self._look_idle()
            return
        self._await_commits(answers, [changes for changes, _ in unsent])

    def silence(self) -> float:
        """Seconds since the parent last sent anything."""
        return self._monotonic() - self.heard

    def send(self, message: WorkerMessage) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(packed(message))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def pull(self) -> None:
        """Read data that has already arrived, without waiting for the loop."""
        if self._transport is None or self._transport.is_closing():
            return
        try:
            data = self._link.recv(PULLED_BYTES)
        except OSError:
            return  # there is nothing; or the connection has ended, which the transport will report
        if data:
            self.data_received(data)

    # Callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has the methods

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._reader.unfinished:
            log.error("workers.astray: the stream ends within a message")
        waiting, self._waiting = self._waiting, {}
        committing, self._committing = self._committing, {}
        unsent, self._unsent = self._unsent, []
        _fail([*waiting.values(), *chain(*committing.values()), *(each for _, each in unsent)])
        self.idle.set()
        if not self.lost.done():
            self.lost.set_result(None)

    def data_received(self, data: bytes) -> None:
        self.heard = self._monotonic()
        try:
            for frame in self._reader.feed(data):
                self._take(from_parent(frame))
        except Astray as problem:
            log.error("workers.astray: %s", problem)
            if self._transport is not None:
                self._transport.abort()

    def _take(self, message: Any) -> None:
        if isinstance(message, (Happened, Moved, Forgotten)):
            self._pushed(message)
        elif isinstance(message, Outcomes):
            self._settle_commits(message.number, message.outcomes)
        elif isinstance(message, (Done, FoundMessage, HistoryMessage, Gathered, RefusedMessage)):
            self._settle(message)
        elif not isinstance(message, Alive):
            self._directed(message)

    def _settle_commits(self, number: int, outcomes: list[Revision | RefusedMessage]) -> None:
        answers = self._committing.get(number, [])
        if not answers or len(answers) != len(outcomes):
            raise Astray(f"{len(outcomes)} outcomes of {len(answers)} commits")
        del self._committing[number]
        for answer, outcome in zip(answers, outcomes, strict=True):
            if answer.done():  # the caller was cancelled
                continue
            if isinstance(outcome, RefusedMessage):
                answer.set_exception(error_in(outcome))
            else:
                answer.set_result(outcome)
        self._look_idle()

    def _look_idle(self) -> None:
        if not (self._waiting or self._committing or self._unsent):
            self.idle.set()

    def _settle(self, message: Answer) -> None:
        if message.number in self._committing and isinstance(message, RefusedMessage):
            refused = len(self._committing[message.number]) * [message]
            self._settle_commits(message.number, [*refused])
            return
        answer = self._waiting.pop(message.number, None)
        self._look_idle()
        if answer is None or answer.done():  # the caller was cancelled
            return
        if isinstance(message, RefusedMessage):
            answer.set_exception(error_in(message))
        else:
            answer.set_result(message)


def _fail(answers: list[asyncio.Future[Any]]) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(StoreUnavailable(GONE))


class RemoteStore:
    """A Store in another process. Create one with `await RemoteStore.connect(socket)`."""

    def __init__(self, begin: Begin, counter: SharedCounter) -> None:
        self.begin = begin
        self._counter = counter
        self._tail = Tail(begin.revision, begin.oldest, max_bytes=TAIL_BYTES)
        self.opened = asyncio.Event()  # the parent allows us to serve
        self.forgotten: Callable[[Revision], None] = lambda before: None  # called after compactions
        self.counts: Callable[[], bytes] = lambda: packed_counts([])  # of this worker
        self.reset_counts: Callable[[], None] = lambda: None
        self.link: ParentLink  # set by `connect`

    @classmethod
    async def connect(cls, link: socket.socket, monotonic: Monotonic) -> "RemoteStore":
        """Wait for the parent's first message and create a store; raises StoreUnavailable."""
        begun: asyncio.Future[RemoteStore] = asyncio.get_running_loop().create_future()

        def directed(message: Begin | Open | Count | ResetCounts) -> None:
            if isinstance(message, Begin) is begun.done():
                raise Astray("the first message comes once, before all others")
            if isinstance(message, Begin):
                begun.set_result(cls(message, SharedCounter.inherit(message.counter)))
            else:
                begun.result()._obey(message)

        def pushed(news: News) -> None:
            if not begun.done():
                raise Astray("a change came before the first message")
            begun.result()._take(news)

        parent = await ParentLink.over(link, pushed, directed, monotonic)
        ends: list[asyncio.Future[Any]] = [begun, parent.lost]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not begun.done():
            raise StoreUnavailable(GONE)
        store = begun.result()
        store.link = parent
        parent.lost.add_done_callback(lambda _: store._tail.close())
        return store

    async def read(self, span: Span, *, at: Revision = LATEST, limit: int = 0) -> Page:
        check_read(at, limit)
        while True:
            try:
                return await self._read_whole(span, at, limit)
            except Compacted:
                # A large snapshot takes several responses, and its revision may be compacted
                # between two.
                if at != LATEST:
                    raise

    async def commit(
        self, changes: Sequence[Change], delete: DeleteRange | None = None
    ) -> Revision:
        self._check_open()
        check_changes(changes)
        size = 0
        for change in changes:
            if change.value is not None:
                size += len(change.value)
        if size > LARGEST_COMMIT:
            raise ValueTooLarge(
                f"a commit of {size} bytes is more than the {LARGEST_COMMIT} allowed"
            )
        if delete is None:
            return await self.link.commit(tuple(changes), size)
        check_delete(delete, changes)
        return await self.link.commit_with_range(tuple(changes), delete)

    def watch(self, span: Span, *, after: Revision) -> Following:
        return Following(self._tail, span, after, self._replay)

    async def revision(self) -> Revision:
        if self.link.lost.done():
            # The counter is no longer updated, but another server may be writing to the database.
            raise StoreUnavailable(GONE)
        newest = self._counter.value
        if newest > self._tail.revision:
            self.link.pull()
        return newest

    async def may_compact(self) -> bool:
        return False  # only the parent does

    async def compact(self, before: Revision) -> None:
        self._check_open()
        newest = await self.revision()
        if before > newest:
            raise FutureRevision(before, newest)
        done = await self.link.ask(Done, lambda number: Compact(number, max(before, 0)))
        self._tail.oldest = max(self._tail.oldest, done.revision)

    async def close(self) -> None:
        """End the watches, wait for pending responses, then close the connection."""
        self._tail.close()
        await self.link.idle.wait()
        self.link.close()
        await asyncio.wait([self.link.lost])

    async def ready(self) -> None:
        """Report that this worker can serve, and wait for permission."""
        self.link.send(Ready())
        await self.opened.wait()

    # Heartbeat

    async def beat(self) -> None:
        """Send a heartbeat every second; the parent sends it back, so both detect a failure."""
        while True:
            self.link.send(Alive())
            await asyncio.sleep(BEAT_SECONDS)

    def problem(self) -> str | None:
        """The problem of the connection to the parent, or None; for the readiness check."""
        if self.link.lost.done():
            return GONE
        if self.link.silence() > SILENT_SECONDS:
            return "the parent process does not answer"
        return None

    # Inside

    def _check_open(self) -> None:
        if self._tail.closed:
            raise StoreClosed("the store is closed")

    async def _read_whole(self, span: Span, at: Revision, limit: int) -> Page:
        records: list[Record] = []
        while True:
            self._check_open()
            left = limit - len(records) if limit else RECORDS_PER_READ
            page = await self._page(span, at, min(left, RECORDS_PER_READ))
            records += page.records
            if not page.more or len(records) == limit:
                return Page(records, page.revision, more=page.more, oldest=page.oldest)
            at, span = page.revision, span.after(page.records[-1].key)

    async def _page(self, span: Span, at: Revision, limit: int) -> FoundMessage:
        return await self.link.ask(
            FoundMessage, lambda number: Read(number, span.start, span.end, at, limit)
        )

    async def _replay(self, span: Span, after: Revision) -> Batch:
        self._check_open()
        history = await self.link.ask(
            HistoryMessage, lambda number: Replay(number, span.start, span.end, after)
        )
        return Batch(history.events, history.revision)

    def _obey(self, direction: Open | Count | ResetCounts) -> None:
        if isinstance(direction, Open):
            self.opened.set()
        elif isinstance(direction, Count):
            self.link.send(Counted(self.counts()))
        else:
            self.reset_counts()

    def _take(self, news: News) -> None:
        if isinstance(news, Happened):
            self._tail.append(Batch(news.events, news.revision))
        elif isinstance(news, Moved):
            self._tail.jump(news.revision)
        else:
            self._tail.oldest = max(self._tail.oldest, news.oldest)
            self.forgotten(news.oldest)


_: type[Store] = RemoteStore
