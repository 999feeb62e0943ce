"""Several workers over one store: the same order for all, and nobody waits for the slowest."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from orchid.kernel.store.interface import (
    ABSENT,
    Batch,
    Change,
    Outcome,
    Revision,
    RevisionConflict,
    Span,
    StoreUnavailable,
    ValueTooLarge,
)
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.store.sqlite.store import SQLiteStore
from orchid.kernel.workers import remote_store, store_server
from orchid.kernel.workers.framing import Reader
from orchid.kernel.workers.messages import (
    Commits,
    Happened,
    Moved,
    Outcomes,
    Ready,
    Report,
    Request,
    from_parent,
    packed,
)
from orchid.kernel.workers.remote_store import RemoteStore
from orchid.kernel.workers.store_server import Session
from tests.unit.kernel.store.asking import ALL, delete, events_until, put
from tests.unit.kernel.workers.linked import Parent, linked


@pytest.fixture
async def parent(tmp_path: Path) -> AsyncIterator[Parent]:
    async with linked(await SQLiteStore.open(tmp_path / "orchid.db")) as parent:
        yield parent


def transport_of(store: RemoteStore) -> asyncio.Transport:
    transport = store.link._transport
    assert transport is not None
    return transport


async def test_every_worker_sees_every_change_in_the_same_order(parent: Parent) -> None:
    """All workers receive every commit, once and in the order of revisions."""
    workers = [await parent.connect() for _ in range(3)]
    final = 1 + 3 * 40

    async def write(worker: RemoteStore, name: int) -> None:
        for n in range(40):
            await put(worker, f"{name}/{n}", b"%d" % n)

    async with asyncio.TaskGroup() as tasks:
        watches = [tasks.create_task(events_until(w, final, after=1)) for w in workers]
        for name, worker in enumerate(workers):
            tasks.create_task(write(worker, name))

    histories = [watch.result() for watch in watches]
    assert [event.revision for event in histories[0]] == list(range(2, final + 1))
    assert histories[0] == histories[1] == histories[2]


async def test_acknowledged_commit_shows_in_every_workers_revision(
    parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counter is set first, then workers are notified, then the commit is answered."""
    written: list[tuple[Session, Any, Revision]] = []
    really_write = Session.write

    def write(session: Session, data: bytes) -> None:
        [frame] = Reader().feed(data)
        written.append((session, from_parent(frame), parent.counter.value))
        really_write(session, data)

    one, other = await parent.connect(), await parent.connect()
    monkeypatch.setattr(Session, "write", write)

    revision = await put(one, "a", b"")

    *news, (answered, answer, _) = written
    assert {session for session, _, _ in news} == set(parent.sessions)
    assert [(type(message), message.revision, counter) for _, message, counter in news] == [
        (Happened, revision, revision),
        (Happened, revision, revision),
    ]
    assert (answered, answer.outcomes) == (parent.sessions[0], [revision])
    assert await other.revision() == revision


async def test_who_asks_for_the_revision_gets_what_has_come_up_to_it(parent: Parent) -> None:
    """A worker that is asked takes the changes from its socket, before the loop brings them."""
    one, other = await parent.connect(), await parent.connect()
    watch = other.watch(ALL, after=1)
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    transport_of(other).pause_reading()

    made = await put(one, "a", b"1")
    revision = await other.revision()

    assert revision == made
    batch = watch.poll()
    assert batch is not None
    assert [event.key for event in batch.events] == ["a"]
    waiting.cancel()
    transport_of(other).resume_reading()


async def test_worker_that_joins_late_has_the_past_too(parent: Parent) -> None:
    """Changes from before the start of a worker come from the store's history."""
    first = await parent.connect()
    await put(first, "a", b"1")
    late = await parent.connect()
    await put(first, "b", b"2")

    events = await events_until(late, 3, after=1)

    assert [(event.key, event.revision) for event in events] == [("a", 2), ("b", 3)]


async def test_worker_that_does_not_read_holds_up_nobody(
    parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a limit a worker gets no messages; later it reads the missed changes from history."""
    monkeypatch.setattr(store_server, "MOST_UNREAD", 1 << 16)
    stuck, lively = await parent.connect(), await parent.connect()
    [session, _] = parent.sessions
    transport_of(stuck).pause_reading()

    for n in range(100):
        await put(lively, f"k{n}", bytes(20_000))
    session_transport = session._transport
    assert session_transport is not None
    unsent = session_transport.get_write_buffer_size()
    transport_of(stuck).resume_reading()
    events = await events_until(stuck, 101, after=1)

    assert unsent < 2 * (1 << 16)
    assert [event.revision for event in events] == list(range(2, 102))
    assert await put(stuck, "after", b"") == 102


async def test_answer_never_overtakes_the_change_it_belongs_to(
    parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a worker that was left behind knows of its own commit once it has the answer."""
    worker = await parent.connect()
    [session] = parent.sessions
    really_commit = parent.store.commit_each

    async def commit_while_unread(commits: Sequence[Sequence[Change]]) -> list[Outcome]:
        session.pause_writing()  # as the transport does when too much lies unread
        return await really_commit(commits)

    monkeypatch.setattr(parent.store, "commit_each", commit_while_unread)
    watching = worker.watch(ALL, after=await worker.revision())

    revision = await put(worker, "a", b"1")
    known = worker._tail.revision
    session.resume_writing()
    batch = await anext(watching)
    await watching.aclose()

    assert known == revision
    assert (batch.revision, [event.key for event in batch.events]) == (revision, ["a"])


async def test_a_commit_is_answered_after_all_workers_are_notified(
    parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to a commit comes after its notification, however late that is."""
    worker, _ = await parent.connect(), await parent.connect()
    committed, written, unsent = asyncio.Event(), [], []
    server, really_answer, really_notify = (
        parent.server,
        parent.server._answer_at,
        parent.server._broadcast,
    )

    def answer_at(revision: Revision, session: Session, answer: Any) -> None:
        really_answer(revision, session, answer)
        committed.set()

    monkeypatch.setattr(server, "_answer_at", answer_at)
    monkeypatch.setattr(
        server, "_broadcast", unsent.append
    )  # the news stays with the store for now
    monkeypatch.setattr(Session, "write", lambda _, data: written.append(data))
    committing = asyncio.create_task(put(worker, "a", b"1"))
    async with asyncio.timeout(10):
        await committed.wait()
        before = list(written)
        while not unsent:  # noqa: ASYNC110 -- the store sets no event
            await asyncio.sleep(0.001)
    really_notify(unsent[0])
    committing.cancel()

    assert before == []
    kinds = [type(from_parent(frame)) for data in written for frame in Reader().feed(data)]
    assert kinds == [Happened, Happened, Outcomes]


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[Commits]:
    """The commits that arrive at the parent, message by message."""
    messages: list[Commits] = []
    really_take = Session._take

    def take(session: Session, message: Request | Report) -> None:
        if isinstance(message, Commits):
            messages.append(message)
        really_take(session, message)

    monkeypatch.setattr(Session, "_take", take)
    return messages


async def test_commits_of_one_turn_go_together_and_stand_for_themselves(
    parent: Parent, received: list[Commits]
) -> None:
    """They are one message; one that is refused does not keep the others from being made."""
    worker = await parent.connect()
    there = await put(worker, "b", b"1")

    made = await asyncio.gather(*(put(worker, key, b"2") for key in "abc"), return_exceptions=True)

    assert [len(message.commits) for message in received] == [1, 3]
    assert [made[0], made[2]] == [there + 1, there + 2]
    conflict = made[1]
    assert isinstance(conflict, RevisionConflict)
    assert conflict.actual is not None
    assert (conflict.key, conflict.actual.revision) == ("b", there)


async def test_commits_that_are_too_large_together_go_apart(
    parent: Parent, received: list[Commits], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No message holds more than one commit may; all of them arrive."""
    monkeypatch.setattr(remote_store, "LARGEST_COMMIT", 10)
    worker = await parent.connect()

    made = await asyncio.gather(*(put(worker, key, bytes(4)) for key in "abcde"))

    assert [len(message.commits) for message in received] == [2, 2, 1]
    assert made == [2, 3, 4, 5, 6]


async def test_commit_that_was_not_sent_when_the_parent_went_is_answered(parent: Parent) -> None:
    """The caller of the commit gets an unknown outcome."""
    worker = await parent.connect()

    doing = asyncio.create_task(put(worker, "a", b"1"))
    await asyncio.sleep(0)
    assert worker.link._unsent
    transport_of(worker).abort()

    with pytest.raises(StoreUnavailable):
        await doing


async def test_commit_behind_the_end_of_the_parent_does_not_hold_up_the_end(parent: Parent) -> None:
    """It is refused, and the store closes at once: no answer is due."""
    worker = await parent.connect()
    transport_of(worker).abort()
    await worker.link.lost

    with pytest.raises(StoreUnavailable):
        await worker.link.commit((Change("a", b"", ABSENT),), 0)

    async with asyncio.timeout(10):
        await worker.close()


async def test_a_failure_of_the_store_fails_each_commit(
    parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that could not be worked on refuses all that is in it."""
    worker = await parent.connect()

    async def fail(commits: Sequence[Sequence[Change]]) -> list[Outcome]:
        raise StoreUnavailable("out of order")

    monkeypatch.setattr(parent.store, "commit_each", fail)
    made = await asyncio.gather(*(put(worker, key, b"") for key in "ab"), return_exceptions=True)

    assert [str(failure) for failure in made] == ["out of order"] * 2
    assert {type(failure) for failure in made} == {StoreUnavailable}
    await worker.close()


async def test_history_behind_the_newest_revision_is_empty_and_comes_at_once(
    parent: Parent,
) -> None:
    """There is nothing to wait for, so such a call takes no place from others."""
    worker = await parent.connect()
    newest = await put(worker, "a", b"1")

    async with asyncio.timeout(10):
        asked = [worker._replay(ALL, newest) for _ in range(2 * store_server.READS_AT_ONCE)]
        batches = await asyncio.gather(*asked)

    assert set(batches) == {Batch((), newest)}


async def test_commit_of_a_worker_that_dies_stands(parent: Parent) -> None:
    """The parent carries on with what it was given; the others see it."""
    doomed, other = await parent.connect(), await parent.connect()

    doing = asyncio.create_task(put(doomed, "a", b"1"))
    async with asyncio.timeout(10):
        while not doomed.link._committing:  # noqa: ASYNC110 -- sent at the end of the turn
            await asyncio.sleep(0)
    transport_of(doomed).close()  # it sends what it has, and is gone
    with pytest.raises(StoreUnavailable):
        await doing
    events = await events_until(other, 2, after=1)

    assert [event.key for event in events] == ["a"]


async def test_worker_learns_that_the_parent_is_gone(parent: Parent) -> None:
    """Everything that waits, and everything asked later, says so."""
    worker = await parent.connect()
    watching = asyncio.ensure_future(anext(worker.watch(ALL, after=1)))
    await asyncio.sleep(0)

    parent.sessions[0].close()
    await worker.link.lost

    with pytest.raises(StoreUnavailable):
        await watching
    for asked in (worker.read(ALL), put(worker, "a", b""), worker.compact(1), worker.revision()):
        with pytest.raises(StoreUnavailable):
            await asked
    assert worker.problem() == "the parent process is gone"


async def test_nonsense_ends_only_the_session_it_came_from(parent: Parent) -> None:
    """A stream that has gone astray is closed; the other workers go on."""
    ours, theirs = socket.socketpair()
    await parent.server.attach(ours, parent.reports.append)
    other = await parent.connect()

    reader, writer = await asyncio.open_unix_connection(sock=theirs)
    writer.write(b"\xff\xff\xff\xff nonsense")
    assert await reader.read() == b""
    writer.close()

    assert await put(other, "a", b"") == 2


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"\xff\xff\xff\xff nonsense", "is too large"),
        (b"\x03\0\0\0abc", "not a message"),
        (packed(Moved(7)), "before the first message"),
        (packed(Ready())[:-1], "ends within a message"),
    ],
    ids=["too long", "no message", "out of turn", "cut"],
)
async def test_worker_leaves_a_parent_that_talks_nonsense(
    sent: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It ends the connection, says why in the log, and waits for nothing more."""
    ours, theirs = socket.socketpair()
    with ours:
        ours.sendall(sent)
        ours.shutdown(socket.SHUT_WR)

        with pytest.raises(StoreUnavailable):
            await RemoteStore.connect(theirs, time.monotonic)

    assert why in caplog.text


async def test_outcomes_of_commits_that_nobody_made_end_the_connection(
    parent: Parent, caplog: pytest.LogCaptureFixture
) -> None:
    """Answers that belong to no request show that the stream has gone astray."""
    worker = await parent.connect()

    parent.sessions[0].write(packed(Outcomes(99, [2])))
    await worker.link.lost

    assert "1 outcomes of 0 commits" in caplog.text


async def test_a_truncated_message_is_logged(
    parent: Parent, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that dies while it sends leaves a part of a message, and nothing is done with it."""
    ours, theirs = socket.socketpair()
    session = await parent.server.attach(ours, parent.reports.append)

    with theirs:
        theirs.sendall(packed(Commits(1, [(Change("a", b"1", ABSENT),)]))[:-1])
    await session.ended

    assert "ends within a message" in caplog.text
    assert await parent.store.revision() == 1


async def test_beats_are_answered_and_reports_passed_on(parent: Parent) -> None:
    """Each side is notified that the other is connected."""
    worker = await parent.connect()
    begun, heard = worker.link.heard, parent.sessions[0].heard

    beating = asyncio.create_task(worker.beat())
    ready = asyncio.create_task(worker.ready())
    await asyncio.sleep(0)
    await put(worker, "a", b"")  # its answer comes behind those to what was said before
    beating.cancel()
    ready.cancel()

    assert parent.reports == [Ready()]
    assert parent.sessions[0].heard > heard
    assert worker.link.heard > begun
    assert worker.problem() is None


async def test_silence_of_the_parent_is_a_problem(
    parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose parent does not answer is not ready."""
    worker = await parent.connect()

    monkeypatch.setattr(remote_store, "SILENT_SECONDS", -1.0)

    assert worker.problem() == "the parent process does not answer"


async def test_compaction_by_the_parent_reaches_the_workers(parent: Parent) -> None:
    """Workers drop history with the store, and notify the feed."""
    worker = await parent.connect()
    dropped: list[Revision] = []
    worker.forgotten = dropped.append
    revision = await delete(worker, "a", await put(worker, "a", b""))

    await parent.store.compact(revision)
    parent.server.forgot(revision)
    parent.server.forgot(revision - 1)
    await put(worker, "b", b"")

    assert dropped == [revision]


async def test_commit_too_large_for_the_line_is_refused(
    parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did not happen, and says so."""
    monkeypatch.setattr(remote_store, "LARGEST_COMMIT", 10)
    worker = await parent.connect()

    with pytest.raises(ValueTooLarge, match="11 bytes"):
        await worker.commit([Change("a", bytes(6), ABSENT), Change("b", bytes(5), ABSENT)])

    assert await worker.revision() == 1


async def test_snapshot_is_read_again_when_history_is_cut_under_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A read of the present, which takes several answers, never fails for age."""
    monkeypatch.setattr(remote_store, "RECORDS_PER_READ", 2)
    store = MemoryStore()
    for n in range(5):
        await put(store, f"k{n}", b"")
    cuts = 0
    read = store.read

    async def cut_and_read(span: Span, *, at: Revision = -1, limit: int = 0) -> object:
        nonlocal cuts
        if at > 0 and cuts < 2:
            cuts += 1
            await store.compact(await put(store, f"n{cuts}", b""))
        return await read(span, at=at, limit=limit)

    async with linked(store) as parent:
        worker = await parent.connect()
        monkeypatch.setattr(store, "read", cut_and_read)
        page = await worker.read(ALL)

    keys = [record.key for record in page.records]
    assert keys == ["k0", "k1", "k2", "k3", "k4", "n1", "n2"]
