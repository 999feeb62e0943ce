"""Members of etcd die, hang, restart and lose their data; the store carries on or says why not."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from typing import Any

import pytest

from orchid.kernel.store.etcd import client as etcd_client
from orchid.kernel.store.etcd import history as etcd_history
from orchid.kernel.store.etcd.client import EtcdEndpoint, Undecided
from orchid.kernel.store.etcd.messages import TXN, Method
from orchid.kernel.store.etcd.store import EtcdStore
from orchid.kernel.store.interface import (
    ABSENT,
    Change,
    Record,
    RevisionConflict,
    Span,
    StoreEvent,
    StoreFull,
    StoreUnavailable,
)
from tests.unit.kernel.store.asking import ALL, events_until, put
from tests.unit.kernel.store.etcd_process import Cluster, running

pytestmark = pytest.mark.system_package("etcd")


@pytest.fixture
async def three() -> AsyncIterator[Cluster]:
    with running(3) as cluster:
        await cluster.wait_healthy()
        yield cluster


@pytest.fixture
async def one() -> AsyncIterator[Cluster]:
    with running() as cluster:
        await cluster.wait_healthy()
        yield cluster


@pytest.fixture
async def store(one: Cluster) -> AsyncIterator[EtcdStore]:
    store = await EtcdStore.open(one.urls, timeout=20)
    yield store
    await store.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give members little time, so that tests with dead ones do not take long."""
    monkeypatch.setattr(etcd_client, "ATTEMPT_SECONDS", 0.5)
    monkeypatch.setattr(etcd_history, "STALL_SECONDS", 0.3)


class Writer:
    """Increments one key, and records what was acknowledged."""

    def __init__(self, store: EtcdStore, key: str) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self.unknown = 0
        self._store = store
        self._key = key

    async def write(self, times: int) -> None:
        revision = ABSENT
        for n in range(times):
            value = b"%d" % n
            while True:
                try:
                    revision = await put(self._store, self._key, value, revision)
                except RevisionConflict as conflict:  # an earlier one happened after all
                    assert self.unknown
                    revision = conflict.actual.revision if conflict.actual else ABSENT
                except StoreUnavailable:
                    self.unknown += 1
                else:
                    self.acknowledged[revision] = value
                    break


async def check(store: EtcdStore, writers: list[Writer]) -> None:
    """Everything acknowledged is in the history, once, in order."""
    newest = await store.revision()
    events = await events_until(store, newest, after=1)
    revisions = [event.revision for event in events]
    assert revisions == sorted(set(revisions))
    received = {event.revision: event.value for event in events}
    for writer in writers:
        assert writer.acknowledged.items() <= received.items()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("victim", [0, 1, 2])
async def test_death_of_any_member_loses_nothing_acknowledged(three: Cluster, victim: int) -> None:
    """Writers and watchers go on with those that are left, and with the one that comes back."""
    store = await EtcdStore.open(three.urls, timeout=20)
    writers = [Writer(store, f"w{n}") for n in range(4)]
    seen: list[StoreEvent] = []

    async def watch() -> None:
        async with aclosing(store.watch(ALL, after=1)) as batches:
            async for batch in batches:
                seen.extend(batch.events)
                if any(event.key == "end" for event in batch.events):
                    return

    watching = asyncio.create_task(watch())
    writing = asyncio.gather(*(writer.write(60) for writer in writers))
    await put(store, "begin", b"")
    three.members[victim].kill()
    await put_at_last(store, "killed")
    three.members[victim].start()
    await writing
    await three.wait_healthy()
    final = await put_at_last(store, "end")
    async with asyncio.timeout(30):
        await watching

    await check(store, writers)
    assert [event.revision for event in seen] == sorted({event.revision for event in seen})
    assert seen == await events_until(store, final, after=1)
    await store.close()


async def put_at_last(store: EtcdStore, key: str) -> int:
    """Create a key, however often that takes."""
    while True:
        with suppress(StoreUnavailable, RevisionConflict):
            if found := (await store.read(Span.key(key))).records:
                return found[0].revision
            return await put(store, key, b"")


@pytest.mark.usefixtures("impatient")
async def test_member_that_hangs_is_left(three: Cluster) -> None:
    """A member that keeps its connections but answers nothing is not waited for."""
    store = await EtcdStore.open(three.urls, timeout=3)
    first = await put(store, "a", b"1")
    three.members[0].signal(signal.SIGSTOP)

    async with asyncio.timeout(20):
        assert await store.revision() == first
        revision = await put_at_last(store, "b")
        assert [e.key for e in await events_until(store, revision, after=first)] == ["b"]

    three.members[0].signal(signal.SIGCONT)
    await store.close()


async def test_watch_resumes_where_it_was_when_its_member_returns(
    one: Cluster, store: EtcdStore
) -> None:
    """With its only member away the store waits, and then misses and repeats nothing."""
    first = await put(store, "a", b"1")
    async with aclosing(store.watch(ALL, after=1)) as watch:
        assert [event.key for event in (await anext(watch)).events] == ["a"]
        one.members[0].kill()
        waiting = asyncio.ensure_future(anext(watch))
        one.members[0].start()
        second = await put_at_last(store, "b")

        assert (await waiting).events == (StoreEvent("b", b"", second, None, ABSENT),)
        assert second > first


async def test_watches_fail_when_etcd_has_not_answered_for_long(one: Cluster) -> None:
    """A silent watch would look as if nothing happened; the next one goes on where it ended."""
    store = await EtcdStore.open(one.urls, timeout=0.3)
    first = await put(store, "a", b"1")
    async with aclosing(store.watch(ALL, after=first)) as watch:
        waiting = asyncio.ensure_future(anext(watch))
        one.members[0].kill()
        async with asyncio.timeout(30):
            with pytest.raises(StoreUnavailable, match=r"etcd 127\.0\.0\.1"):
                await waiting

    one.members[0].start()
    await one.wait_healthy()
    second = await put_at_last(store, "b")
    assert [event.key for event in await events_until(store, second, after=first)] == ["b"]
    await store.close()


async def test_an_unreachable_etcd_is_reported_within_the_timeout(one: Cluster) -> None:
    """Each call ends, with words that name the member."""
    store = await EtcdStore.open(one.urls, timeout=0.3)
    one.members[0].kill()

    for call in (store.revision(), store.read(ALL), put(store, "a", b"1"), store.compact(1)):
        with pytest.raises(StoreUnavailable, match=r"etcd 127\.0\.0\.1"):
            await call

    await store.close()
    with pytest.raises(StoreUnavailable):
        await EtcdStore.open(one.urls, timeout=0.3)


async def test_minority_neither_reads_nor_writes(three: Cluster) -> None:
    """One member of three cannot know what the others have done, so it says nothing."""
    store = await EtcdStore.open(three.urls, timeout=1)
    await put(store, "a", b"1")
    three.members[1].kill()
    three.members[2].kill()

    with pytest.raises(StoreUnavailable):
        await store.revision()
    with pytest.raises(StoreUnavailable):
        await put(store, "b", b"1")

    await store.close()


@pytest.mark.usefixtures("impatient")
async def test_etcd_that_lost_its_data_ends_the_store(one: Cluster, store: EtcdStore) -> None:
    """A watch from a lost revision fails instead of waiting for it."""
    for n in range(5):
        await put(store, f"k{n}", b"")
    watching = asyncio.ensure_future(anext(store.watch(ALL, after=6)))
    one.members[0].kill()
    one.members[0].forget()
    one.members[0].start()

    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(watching, 20)
    with pytest.raises(StoreUnavailable):
        await store.read(ALL)


async def test_a_full_etcd_is_reported_as_full() -> None:
    """No space is a condition of its own: the commit did not happen and reads go on."""
    with running(arguments=["--quota-backend-bytes", "200000"]) as cluster:
        await cluster.wait_healthy()
        store = await EtcdStore.open(cluster.urls)
        kept: list[str] = []

        async def fill() -> None:
            while len(kept) < 3000:  # etcd counts what it has written every tenth of a second
                await put(store, f"k{len(kept):04}", bytes(20_000))
                kept.append(f"k{len(kept):04}")

        with pytest.raises(StoreFull):
            await fill()

        assert [record.key for record in (await store.read(ALL)).records] == kept
        await store.close()


# Answers that are lost

LOST, NO_ROOM = Undecided("lost"), StoreFull("no room")

Lose = Callable[..., None]


@pytest.fixture
def lose_answer(monkeypatch: pytest.MonkeyPatch) -> Lose:
    """Make the next transaction raise something, whether it was carried out or not."""
    really_invoke = EtcdEndpoint.invoke

    def lose(carried_out: bool, answer: StoreUnavailable = LOST) -> None:
        async def invoke(
            endpoint: EtcdEndpoint, method: Method[Any, Any], request: Any, seconds: float
        ) -> Any:
            if method is TXN and request.compare:
                monkeypatch.setattr(EtcdEndpoint, "invoke", really_invoke)
                if carried_out:
                    await really_invoke(endpoint, method, request, seconds)
                raise answer
            return await really_invoke(endpoint, method, request, seconds)

        monkeypatch.setattr(EtcdEndpoint, "invoke", invoke)

    return lose


@pytest.mark.parametrize("answer", [LOST, NO_ROOM])
async def test_commit_whose_answer_was_lost_is_found(
    store: EtcdStore, lose_answer: Lose, answer: StoreUnavailable
) -> None:
    """The mark bears the commit's name: it happened, even if etcd speaks of the room it took."""
    lose_answer(True, answer)

    revision = await put(store, "a", b"1")

    assert (await store.read(ALL)).records == [Record("a", b"1", revision)]


async def test_commit_whose_answer_was_lost_is_found_among_others(
    store: EtcdStore, lose_answer: Lose, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if other commits have been made since, as long as its key is as it left it."""
    really_find = EtcdStore._find

    async def find_later(self: EtcdStore, change: Change, name: bytes) -> int | None:
        monkeypatch.setattr(EtcdStore, "_find", really_find)
        await put(store, "b", b"1")
        return await really_find(self, change, name)

    monkeypatch.setattr(EtcdStore, "_find", find_later)
    lose_answer(True)

    assert await put(store, "a", b"1") == 2
    assert await store.revision() == 3


async def test_commit_refused_for_lack_of_room_did_not_happen(
    store: EtcdStore, lose_answer: Lose
) -> None:
    """Nothing was committed since it was asked for, so the caller can be sure of it."""
    first = await put(store, "a", b"1")
    lose_answer(False, NO_ROOM)

    with pytest.raises(StoreFull):
        await put(store, "a", b"2", first)

    assert (await store.read(ALL)).records == [Record("a", b"1", first)]


async def test_lack_of_room_is_no_proof_when_others_have_committed_since(
    store: EtcdStore, lose_answer: Lose, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another write may hide our commit: its outcome is unknown, and is reported as such."""
    really_find = EtcdStore._find

    async def find_later(self: EtcdStore, change: Change, name: bytes) -> int | None:
        monkeypatch.setattr(EtcdStore, "_find", really_find)
        [ours] = (await store.read(Span.key("a"))).records
        await put(store, "a", b"2", ours.revision)
        return await really_find(self, change, name)

    monkeypatch.setattr(EtcdStore, "_find", find_later)
    lose_answer(True, NO_ROOM)

    with pytest.raises(StoreUnavailable) as failure:
        await put(store, "a", b"1")

    assert not isinstance(failure.value, StoreFull)


@pytest.mark.parametrize("rival", [False, True])
async def test_commit_that_cannot_be_found_is_unavailable(
    store: EtcdStore, lose_answer: Lose, monkeypatch: pytest.MonkeyPatch, rival: bool
) -> None:
    """Not finding it proves nothing: it is neither repeated nor called a conflict."""
    if rival:
        really_find = EtcdStore._find

        async def find_later(self: EtcdStore, change: Change, name: bytes) -> int | None:
            monkeypatch.setattr(EtcdStore, "_find", really_find)
            await put(store, "a", b"1")  # the very same, but not ours
            return await really_find(self, change, name)

        monkeypatch.setattr(EtcdStore, "_find", find_later)
    lose_answer(False)

    with pytest.raises(StoreUnavailable, match="lost"):
        await put(store, "a", b"1")

    assert len((await store.read(ALL)).records) == int(rival)


async def test_cancelled_read_is_cancelled_and_harms_nobody(store: EtcdStore) -> None:
    """Giving up a call is not mistaken for a failure of the member."""
    reading = [asyncio.create_task(store.read(ALL)) for _ in range(5)]
    reading += [asyncio.create_task(store.revision()) for _ in range(5)]
    await asyncio.sleep(0)
    for task in reading[::2]:
        task.cancel()

    results = await asyncio.gather(*reading, return_exceptions=True)

    assert all(isinstance(result, asyncio.CancelledError) for result in results[::2])
    assert not any(isinstance(result, BaseException) for result in results[1::2])


async def test_calls_in_flight_at_close_fail(store: EtcdStore) -> None:
    """Closing gives every caller an answer or StoreUnavailable, never a cancellation."""
    calls = [asyncio.create_task(store.read(ALL)) for _ in range(5)]
    calls += [asyncio.create_task(store.revision()) for _ in range(5)]
    await asyncio.sleep(0)

    await store.close()

    for result in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(result, StoreUnavailable) or not isinstance(result, BaseException)
