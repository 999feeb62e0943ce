"""The etcd backend does what every store must, also beside others who use the same etcd."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from orchid.kernel.store.etcd import history as etcd_history
from orchid.kernel.store.etcd import store as etcd
from orchid.kernel.store.etcd.client import EtcdClient, TLSFiles
from orchid.kernel.store.etcd.messages import (
    COMPACT,
    TXN,
    CompactionRequest,
    DeleteRangeRequest,
    EtcdEvent,
    PutRequest,
    TxnRequest,
    WatchResponse,
)
from orchid.kernel.store.etcd.store import EtcdStore
from orchid.kernel.store.interface import (
    ABSENT,
    Batch,
    Change,
    Compacted,
    FutureRevision,
    Record,
    RevisionConflict,
    Span,
    StoreEvent,
    StoreUnavailable,
    StoreUnusable,
    ValueTooLarge,
)
from tests.unit.kernel.store.asking import ALL, events_until, put
from tests.unit.kernel.store.etcd_process import Cluster, running
from tests.unit.kernel.store.suite import StoreSuite

pytestmark = pytest.mark.system_package("etcd")


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    with running() as cluster:
        await cluster.wait_healthy()
        yield cluster


@pytest.fixture
async def store(cluster: Cluster) -> AsyncIterator[EtcdStore]:
    store = await EtcdStore.open(cluster.urls)
    yield store
    await store.close()


@pytest.fixture
async def second(cluster: Cluster, store: EtcdStore) -> AsyncIterator[EtcdStore]:
    """Another server's store, over the same etcd."""
    second = await EtcdStore.open(cluster.urls)
    yield second
    await second.close()


@pytest.fixture
async def stranger(cluster: Cluster) -> AsyncIterator[EtcdClient]:
    """Somebody else who uses the same etcd."""
    client = EtcdClient(cluster.urls, TLSFiles(), timeout=10)
    yield client
    await client.close()


async def put_elsewhere(stranger: EtcdClient, times: int = 1, key: bytes = b"/elsewhere") -> int:
    for _ in range(times):
        request = TxnRequest()
        request.success.add(request_put=PutRequest(key=key, value=b"theirs"))
        answer = await stranger.call(TXN, request)
    return answer.header.revision


class TestEtcdStore(StoreSuite):
    """The suite that every backend passes."""


class TestSmallSteps(StoreSuite):
    """The suite again, with pages and segments of history so small that all come in several."""

    @pytest.fixture(autouse=True)
    def _small_steps(self, monkeypatch: pytest.MonkeyPatch, store: EtcdStore) -> None:
        monkeypatch.setattr(etcd, "FIRST_PAGE", 2)
        monkeypatch.setattr(etcd, "LARGEST_PAGE", 3)
        monkeypatch.setattr(etcd_history, "EVENTS_PER_REPLAY", 2000)
        store._tail._max_events = 4


# Several servers


async def test_write_on_one_server_is_known_to_the_other(
    store: EtcdStore, second: EtcdStore
) -> None:
    """The other's newest revision is never behind an acknowledged commit, a thousand times."""
    revision = ABSENT
    for n in range(1000):
        writer, reader = (store, second) if n % 2 else (second, store)
        revision = await put(writer, "a", b"%d" % n, revision)

        assert await reader.revision() == revision


async def test_a_watch_on_one_server_receives_changes_of_both(
    store: EtcdStore, second: EtcdStore
) -> None:
    """Two servers' commits are one history, the same for the watchers of both."""

    async def write(one: EtcdStore, name: str) -> None:
        revision = ABSENT
        for n in range(100):
            revision = await put(one, name, b"%d" % n, revision)

    await asyncio.gather(write(store, "a"), write(second, "b"))

    events = await events_until(store, 201, after=1)
    assert [event.revision for event in events] == list(range(2, 202))
    assert await events_until(second, 201, after=1) == events


async def test_compaction_by_one_server_is_known_to_the_other(
    store: EtcdStore, second: EtcdStore
) -> None:
    """The other learns of it when it matters, and says how far it went."""
    newest = ABSENT
    for n in range(9):
        newest = await put(store, "a", b"%d" % n, newest)
    await store.compact(6)

    with pytest.raises(Compacted) as caught:
        await second.read(ALL, at=5)
    assert caught.value.oldest == 6
    assert (await second.read(ALL)).oldest == 6
    assert (await second.read(ALL, at=6)).records == [Record("a", b"4", 6)]


async def test_rival_compactions_are_harmless(store: EtcdStore, second: EtcdStore) -> None:
    """Every server may compact whenever it likes; the furthest mark counts."""
    newest = ABSENT
    for n in range(20):
        newest = await put(store, "a", b"%d" % n, newest)

    marks = [5, 15, 10, 15, 8]
    await asyncio.gather(*(one.compact(mark) for mark in marks for one in (store, second)))

    assert (await store.read(ALL)).oldest == (await second.read(ALL)).oldest == 15


async def test_one_server_compacts_until_it_stops(store: EtcdStore, second: EtcdStore) -> None:
    """Servers that ask in turn agree on one; when it no longer asks, the other takes over."""
    asked = [await one.may_compact() for _ in range(3) for one in (store, second)]
    alone = [await second.may_compact() for _ in range(3)]
    too_late = await store.may_compact()

    assert asked == [True, False] * 3
    assert alone == [True, True, True]
    assert not too_late


async def test_a_watch_that_was_compacted_by_another_server_ends(
    store: EtcdStore, second: EtcdStore
) -> None:
    """A watcher whose past was compacted elsewhere gets Compacted, not a gap."""
    newest = ABSENT
    for n in range(9):
        newest = await put(store, "a", b"%d" % n, newest)
    second._tail.jump(newest)  # as if it had come too late for these

    await store.compact(7)

    with pytest.raises(Compacted) as caught:
        await anext(second.watch(ALL, after=4))
    assert caught.value.oldest == 7


# Others in the same etcd


async def test_writes_of_others_do_not_move_our_revision(
    store: EtcdStore, stranger: EtcdClient
) -> None:
    """Nobody waits for a revision that has nothing to do with us."""
    ours = await put(store, "a", b"1")
    theirs = await put_elsewhere(stranger, 5)

    assert await store.revision() == ours
    page = await store.read(ALL)
    assert (page.revision, page.oldest) == (ours, 1)
    with pytest.raises(FutureRevision):
        await store.read(ALL, at=theirs)
    async with aclosing(store.watch(ALL, after=ours)) as watch:
        revision = await put(store, "b", b"1")
        assert await anext(watch) == Batch(
            (StoreEvent("b", b"1", revision, None, ABSENT),), revision
        )
    assert revision == theirs + 1


async def test_two_prefixes_are_two_stores(cluster: Cluster, store: EtcdStore) -> None:
    """One etcd can hold several, even if one's prefix begins like the other's."""
    other = await EtcdStore.open(cluster.urls, prefix="/orchid2/")
    await put(store, "a", b"ours")
    theirs = await put(other, "a", b"theirs")

    assert [record.value for record in (await store.read(ALL)).records] == [b"ours"]
    assert (await other.read(ALL)).records == [Record("a", b"theirs", theirs)]
    assert await store.revision() < theirs
    await other.close()


async def test_compaction_by_others_beyond_our_newest_loses_nothing(
    cluster: Cluster, store: EtcdStore, stranger: EtcdClient
) -> None:
    """Unchanged keys can still be read, watched and resumed from."""
    ours = await put(store, "a", b"1")
    theirs = await put_elsewhere(stranger, 9)
    await stranger.call(COMPACT, CompactionRequest(revision=theirs))

    for server in (store, await EtcdStore.open(cluster.urls)):
        page = await server.read(ALL)
        assert (page.records, page.revision, page.oldest) == ([Record("a", b"1", ours)], ours, ours)
        assert (await server.read(ALL, at=ours)).records == page.records
    async with aclosing(server.watch(ALL, after=ours)) as watch:
        revision = await put(store, "a", b"2", ours)
        assert (await anext(watch)).events == (StoreEvent("a", b"2", revision, b"1", ours),)
    assert (await server.read(ALL, at=ours)).records == page.records
    with pytest.raises(Compacted) as caught:
        await server.read(ALL, at=ours - 1)
    assert caught.value.oldest == ours
    await server.close()


async def test_watch_resumes_behind_a_compaction_that_took_nothing_of_ours(
    store: EtcdStore, stranger: EtcdClient
) -> None:
    """A broken watch whose place was compacted goes on if no commit of ours went by."""
    ours = await put(store, "a", b"1")
    async with aclosing(store.watch(ALL, after=ours)) as watch:
        waiting = asyncio.ensure_future(anext(watch))
        theirs = await put_elsewhere(stranger, 9)
        await stranger.call(COMPACT, CompactionRequest(revision=theirs))
        assert store._history._watching is not None
        store._history._watching.give_up()

        revision = await put(store, "b", b"1")

        assert await waiting == Batch((StoreEvent("b", b"1", revision, None, ABSENT),), revision)


async def test_watch_that_missed_commits_for_good_says_so(
    store: EtcdStore, second: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When commits were compacted before a broken watch resumed, watchers get Compacted."""
    ours = await put(store, "a", b"1")
    watch = second.watch(ALL, after=ours)
    watching = asyncio.ensure_future(anext(watch))
    history = second._history
    async with asyncio.timeout(10):
        while history._watching is None:  # noqa: ASYNC110 - sets no event
            await asyncio.sleep(0.001)
    really_take, broken = history._take, [history._watching]

    def take_from_others(answer: WatchResponse) -> None:
        if is_deaf:
            broken.append(history._watching)  # another one, if the first was lost by itself
        if history._watching not in broken:
            really_take(answer)

    is_deaf = True
    monkeypatch.setattr(history, "_take", take_from_others)
    newest = ours
    for n in range(9):
        newest = await put(store, "a", b"%d" % n, newest)
    await store.compact(newest)
    is_deaf = False
    if history._watching is not None:
        broken.append(history._watching)
        history._watching.give_up()

    async def to_the_end() -> None:
        await watching  # may report progress first, from before the interruption
        async for _ in watch:
            pass

    with pytest.raises(Compacted) as caught:
        await to_the_end()
    assert caught.value.oldest == newest
    assert await second.revision() == newest


async def test_an_event_without_its_previous_value_is_requested_again(
    store: EtcdStore, second: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """etcd may leave out what was before; the watch resumes, and watchers get the whole event."""
    seen: list[bool] = []
    really_take = store._history._take

    def take_first_without(answer: WatchResponse) -> None:
        events = answer.events
        if any(event.kv.key.endswith(b"/a") for event in events):
            seen.append(True)
            if len(seen) == 1:
                answer = WatchResponse(events=[EtcdEvent(kv=event.kv) for event in events])
        really_take(answer)

    first = await put(store, "a", b"1")
    monkeypatch.setattr(store._history, "_take", take_first_without)
    other = await put(second, "b", b"1")  # what the watch was about to take before
    await events_until(store, other, after=first)

    later = await put(second, "a", b"2", first)  # by another server: only the watch reports it

    assert await events_until(store, later, after=other) == [
        StoreEvent("a", b"2", later, b"1", first)
    ]
    assert len(seen) == 2


async def test_watchers_receive_keys_written_by_other_clients(
    store: EtcdStore, stranger: EtcdClient
) -> None:
    """An operator who edits our keys in etcd confuses nobody, even with a key that is no text."""
    ours = await put(store, "a", b"1")
    async with aclosing(store.watch(ALL, after=ours)) as watch:
        theirs = await put_elsewhere(stranger, key=b"/orchid/\xff")
        batch = await anext(watch)
        request = TxnRequest()
        request.success.add(request_delete_range=DeleteRangeRequest(key=b"/orchid/a"))
        deleted = (await stranger.call(TXN, request)).header.revision
        assert (await anext(watch)).events == (StoreEvent("a", None, deleted, b"1", ours),)

    assert batch.revision == theirs
    assert await store.revision() == (await store.read(ALL)).revision == deleted


# Sizes


async def test_many_records_are_read_as_one_snapshot(store: EtcdStore) -> None:
    """Pages of a large read all show one revision, whatever is written meanwhile."""
    count = 20_000
    for start in range(0, count, 100):
        await store.commit([Change(f"k{n:06}", b"old", ABSENT) for n in range(start, start + 100)])
    begun = await store.revision()

    async def write() -> None:
        for n in range(count - 1, 0, -500):
            await put(store, f"k{n:06}", b"new", 2 + n // 100)

    writing = asyncio.create_task(write())
    page = await store.read(ALL, at=begun)
    await writing

    assert len(page.records) == count
    assert {record.value for record in page.records} == {b"old"}
    assert not page.more


async def test_commit_that_is_too_large_is_refused_in_clear_words(store: EtcdStore) -> None:
    """Both above etcd's own limit and above that of its listener; the store goes on."""
    for size in (1_800_000, 20_000_000):
        with pytest.raises(ValueTooLarge, match="larger than etcd takes"):
            await put(store, "a", bytes(size))

    assert await put(store, "a", b"1") == 2


@pytest.mark.parametrize("prefix", ["", "/", "a\0b"])
async def test_prefix_that_cannot_be_one_is_refused(prefix: str) -> None:
    """Without a prefix the store would own all of etcd."""
    with pytest.raises(StoreUnusable, match="prefix"):
        await EtcdStore.open(["http://127.0.0.1:1"], prefix=prefix)


async def test_span_of_one_key_reads_one_key(store: EtcdStore) -> None:
    """A key that is the beginning of another is not mixed up with it."""
    await put(store, "a", b"1")
    await put(store, "ab", b"2")

    assert [record.key for record in (await store.read(Span.key("a"))).records] == ["a"]
    assert [record.key for record in (await store.read(Span("a", "a"))).records] == []


async def test_commits_leave_nothing_behind(store: EtcdStore) -> None:
    """Those that succeed, are in conflict, or are cancelled, whose caller is not left waiting."""
    await put(store, "a", b"1")
    with pytest.raises(RevisionConflict):
        await store.commit([Change("a", b"2", ABSENT)])
    waiting = asyncio.create_task(store.commit([Change("b", b"1", ABSENT)]))
    await asyncio.sleep(0)  # it has begun
    for commit in tuple(store._commits):
        commit.cancel()
    with pytest.raises(StoreUnavailable, match="closed"):
        await waiting

    assert store._commits == set()
