"""The feed shows every change once, in order, and gets over a store in trouble."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from math import inf
from typing import Any, NamedTuple

import pytest

from orchid.features.objects.kinds import config_map
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.kernel.base.arrival import ARRIVAL, Arrival
from orchid.kernel.base.clock import SystemClock
from orchid.kernel.engine.cache import feed as feed_module
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.cache.kind_cache import KindCache, ObjectChange, weight_of
from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.engine.randomness import SystemRandomness
from orchid.kernel.store.interface import (
    ABSENT,
    LATEST,
    Batch,
    Change,
    Page,
    Revision,
    Span,
    StoreEvent,
)
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.wire import errors
from orchid.kernel.wire.naming import KUBERNETES, ORCH
from tests.unit.kernel.engine.troubled import TroubledStore
from tests.unit.kernel.engine.world import Engine, engine, following


class Ear:
    """A listener that records the changes it receives."""

    def __init__(self, world: Engine) -> None:
        self.heard: list[tuple[str, int]] = []
        self.lost = 0
        world.feed.cache(world.config_maps).listen(self, self.changed, self.miss)

    def changed(self, changes: list[ObjectChange[Any]]) -> None:
        self.heard += [(change.key.rpartition("/")[2], change.revision) for change in changes]

    def miss(self) -> None:
        self.lost += 1


async def until(condition: Any) -> None:
    """Let the loop run until something holds; the test's own time limit ends a wait for ever."""
    while not condition():  # noqa: ASYNC110 -- many conditions, none of which has an event
        await asyncio.sleep(0.001)


async def commit(world: Engine, name: str, value: bytes | None = None) -> int:
    """A write past the engine, as another server would make it."""
    key = world.config_maps.key("ns", name)
    inner = world.store.inner
    page = await inner.read(Span.key(key))
    expected = page.records[0].revision if page.records else 0
    body = value or (
        world.config_maps.head
        + b'"metadata":{"name":"%b","namespace":"ns","uid":"u"}}' % name.encode()
    )
    return await inner.commit([Change(key, body, expected)])


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "FIRST_WAIT", 0.001)
    monkeypatch.setattr(feed_module, "LONGEST_WAIT", 0.002)


async def test_every_change_is_sent_once_and_in_order(world: Engine) -> None:
    """A listener receives the commits of many writers in the order of the store."""
    ear = Ear(world)
    made = await asyncio.gather(*(world.make(f"m{i}") for i in range(50)))
    await world.feed.fresh()
    await until(lambda: world.feed.notified == world.feed.revision)

    assert sorted(ear.heard, key=lambda pair: pair[1]) == ear.heard
    assert {name for name, _ in ear.heard} == {entry.meta.name for entry in made}
    assert len(ear.heard) == 50


async def test_a_read_does_not_wait_for_thousands_who_listen(world: Engine) -> None:
    """The newest write can be read while listeners still receive an earlier one, in order."""
    ears = [Ear(world) for _ in range(3_000)]
    for name in ("a", "b", "c"):
        await world.make(name)
    newest = await world.feed.fresh()
    notified_then = world.feed.notified
    await until(lambda: world.feed.notified == world.feed.revision)

    assert notified_then < newest
    assert world.feed.notified == newest
    assert {tuple(name for name, _ in ear.heard) for ear in ears} == {("a", "b", "c")}


async def test_a_read_does_not_wait_for_a_few_who_hear_of_something_large(world: Engine) -> None:
    """Forty listeners of a large change may take as long as a thousand of small ones."""
    ears = [Ear(world) for _ in range(40)]
    await world.create({"metadata": {"name": "a"}, "data": {"x": "y" * 900_000}})
    newest = await world.feed.fresh()
    notified_then = world.feed.notified
    await until(lambda: world.feed.notified == world.feed.revision)

    assert notified_then < newest
    assert all([name for name, _ in ear.heard] == ["a"] for ear in ears)


async def test_a_feed_far_ahead_of_its_listeners_waits_for_them(
    world: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue of notifications is limited; every listener still gets every change."""
    monkeypatch.setattr(feed_module, "MOST_PENDING", 1)
    ears = [Ear(world) for _ in range(120)]
    names = [f"m{number}" for number in range(20)]
    for name in names:
        await world.make(name)
    await world.feed.fresh()
    await until(lambda: world.feed.notified == world.feed.revision)

    assert all([name for name, _ in ear.heard] == names for ear in ears)


async def test_a_read_behind_a_write_sees_it(world: Engine) -> None:
    """Once a write is acknowledged, `fresh` returns only when the feed shows it."""
    for i in range(20):
        entry = await world.make(f"m{i}")
        assert await world.feed.fresh() >= entry.revision
        assert world.feed.cache(world.config_maps).get("ns", f"m{i}") is not None


def asked_revisions(world: Engine, monkeypatch: pytest.MonkeyPatch) -> list[asyncio.Event]:
    """An event for each question to the store; it is answered once the event is set."""
    asked: list[asyncio.Event] = []
    revision = world.store.revision

    async def held() -> int:
        asked.append(asyncio.Event())
        newest = await revision()
        await asked[-1].wait()
        return newest

    monkeypatch.setattr(world.store, "revision", held)
    return asked


async def test_the_store_is_asked_once_after_a_moment(
    world: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked for after it is new enough; what was asked for before it is not."""
    asked = asked_revisions(world, monkeypatch)
    ARRIVAL.set(Arrival(SystemClock.monotonic()))
    first = asyncio.create_task(world.feed.fresh())
    await until(lambda: len(asked) == 1)
    asked[0].set()
    await first

    await world.feed.fresh_for_request()
    earlier = len(asked)
    ARRIVAL.set(Arrival(SystemClock.monotonic()))
    later = asyncio.create_task(world.feed.fresh_for_request())
    await until(lambda: len(asked) > earlier)
    asked[1].set()
    await later

    assert earlier == 1


async def test_an_answer_counts_when_what_it_names_is_here(
    world: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has announced a change that the feed does not show yet."""
    arrival = Arrival(SystemClock.monotonic())
    newest = world.feed.revision + 1

    async def announced() -> int:
        return newest

    monkeypatch.setattr(world.store, "revision", announced)
    first = asyncio.create_task(world.feed.fresh())
    await until(lambda: bool(world.feed._waiting))
    ARRIVAL.set(arrival)
    second = asyncio.create_task(world.feed.fresh_for_request())
    await until(lambda: len(world.feed._waiting) == 2 or second.done())
    assert not second.done()

    await world.make("a")
    await first
    await second


async def test_a_request_that_arrives_with_the_question_asks_again(
    world: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a coarse clock, a write may have come between the two."""
    asked = asked_revisions(world, monkeypatch)
    monkeypatch.setattr(world.feed, "_monotonic", lambda: 5.0)
    first = asyncio.create_task(world.feed.fresh())
    await until(lambda: len(asked) == 1)
    asked[0].set()
    await first

    ARRIVAL.set(Arrival(5.0))
    second = asyncio.create_task(world.feed.fresh_for_request())
    await until(lambda: len(asked) == 2)
    asked[1].set()
    await second


async def test_a_question_that_is_under_way_is_no_answer_to_a_later_one(
    world: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write may have come since it was asked."""
    asked = asked_revisions(world, monkeypatch)
    first = asyncio.create_task(world.feed.fresh())
    await until(lambda: len(asked) == 1)
    ARRIVAL.set(Arrival(SystemClock.monotonic()))
    asked[0].set()
    await first

    second = asyncio.create_task(world.feed.fresh_for_request())
    await until(lambda: len(asked) == 2)
    asked[1].set()
    await second


async def test_a_request_asks_the_store_once(
    world: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is authenticated, authorized and answered with what was there after it arrived."""
    asked = asked_revisions(world, monkeypatch)
    arrival = Arrival(SystemClock.monotonic())
    ARRIVAL.set(arrival)
    first = asyncio.create_task(world.feed.fresh_for_request())
    await until(lambda: len(asked) == 1)
    asked[0].set()
    await first

    await world.feed.fresh_for_request()

    assert len(asked) == 1


async def test_requests_may_join_a_wait_until_the_store_is_asked(
    world: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that has joined need not ask again; one that came later has to."""
    asked = asked_revisions(world, monkeypatch)
    joint = Arrival(SystemClock.monotonic())
    first = asyncio.create_task(world.feed.fresh(joint))
    await until(lambda: len(asked) == 1)
    joined = Arrival(SystemClock.monotonic())
    joint.moment = SystemClock.monotonic()
    late = Arrival(SystemClock.monotonic())
    asked[0].set()
    await first

    ARRIVAL.set(joined)
    await world.feed.fresh_for_request()
    earlier = len(asked)
    ARRIVAL.set(late)
    second = asyncio.create_task(world.feed.fresh_for_request())
    await until(lambda: len(asked) == 2)
    asked[1].set()
    await second

    assert earlier == 1


@pytest.mark.parametrize("later", ["another request", "after the request", "no request"])
async def test_what_a_request_has_asked_is_too_old_afterwards(
    world: Engine, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    """The next request asks again, and so does a task that outlives the request."""
    asked = asked_revisions(world, monkeypatch)
    arrival = Arrival(SystemClock.monotonic())
    ARRIVAL.set(arrival)
    first = asyncio.create_task(world.feed.fresh_for_request())
    await until(lambda: len(asked) == 1)
    asked[0].set()
    await first

    match later:
        case "another request":
            ARRIVAL.set(Arrival(SystemClock.monotonic()))
        case "after the request":
            arrival.moment = inf
        case _:
            ARRIVAL.set(None)
    second = asyncio.create_task(world.feed.fresh_for_request())
    await until(lambda: len(asked) == 2)
    asked[1].set()
    await second


async def test_a_new_feed_remembers_the_past_that_the_store_keeps(world: Engine) -> None:
    """After a restart, watchers go on from revisions of before, with old and new content."""
    first = await world.make("a")
    await world.merge("a", {"data": {"k": "1"}})
    await world.delete("a")

    again = Feed(world.store, world.catalog)
    async with following(again):
        await again.wait_loaded()
        changes = list(again.cache(world.config_maps).since(first.revision - 1))

    assert [(t.old is not None, t.new is not None) for t in changes] == [
        (False, True), (True, True), (True, False),
    ]  # fmt: skip
    assert changes[2].old is not None
    assert changes[2].old.object.data == {"k": "1"}
    assert again.cache(world.config_maps).get("ns", "a") is None


async def test_what_is_still_there_was_not_there_before_it_was_made(world: Engine) -> None:
    """Changes before the loaded revision are cached as history; listeners do not get them."""
    first = await world.make("a")
    await world.merge("a", {"data": {"k": "1"}})

    again = Feed(world.store, world.catalog)
    heard: list[Any] = []
    again.cache(world.config_maps).listen("ear", heard.append)
    async with following(again):
        await again.wait_loaded()
        changes = list(again.cache(world.config_maps).since(first.revision - 1))

    assert [(t.old and t.old.object.data, t.new and t.new.object.data) for t in changes] == [
        (None, {}), ({}, {"k": "1"}),
    ]  # fmt: skip
    assert heard == []


async def test_history_is_forgotten_with_the_stores(world: Engine) -> None:
    """A watch cannot start from a revision that the store has compacted."""
    made = [await world.make(f"m{i}") for i in range(4)]
    await world.feed.fresh()
    cache = world.feed.cache(world.config_maps)

    world.feed.forget_before(made[1].revision)

    assert cache.oldest == made[1].revision
    assert [change.revision for change in cache.since(0)] == [e.revision for e in made[2:]]
    assert len(cache.entries) == 4


async def seven_made(
    world: Engine, monkeypatch: pytest.MonkeyPatch
) -> tuple[KindCache[ConfigMap], list[Entry[ConfigMap]]]:
    """A cache that drops two changes at a time, and seven objects in it."""
    monkeypatch.setattr(feed_module, "DROPPED_PER_TURN", 2)
    made = [await world.make(f"m{i}") for i in range(7)]
    await world.feed.fresh()
    return world.feed.cache(world.config_maps), made


async def test_much_history_is_forgotten_at_once_and_dropped_little_by_little(
    world: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch from before is refused from now on; no request waits for the memory to be freed."""
    cache, made = await seven_made(world, monkeypatch)

    world.feed.forget_before(made[-2].revision)

    assert cache.oldest == made[-2].revision
    assert [change.revision for change in cache.changes] == [each.revision for each in made[2:]]
    await until(lambda: len(cache.changes) == 1)
    assert cache.changes[0].revision == made[-1].revision
    assert cache.kept_bytes == weight_of(cache.changes)


async def test_history_that_waits_to_be_dropped_may_make_room_for_more(
    world: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused revision is not offered again because older changes are dropped."""
    cache, made = await seven_made(world, monkeypatch)
    world.feed.forget_before(made[-2].revision)

    cache.drop_oldest(1)

    assert cache.oldest == made[-2].revision


async def test_goes_on_without_a_gap_when_the_store_comes_back() -> None:
    """A cut connection loses nothing and repeats nothing; meanwhile the feed does not follow."""
    store = TroubledStore()
    async with engine(store) as world:
        ear = Ear(world)
        first = await commit(world, "before")
        await until(lambda: len(ear.heard) == 1)
        store.cut()
        await until(lambda: not world.feed.following)
        second = await commit(world, "meanwhile")
        with pytest.raises(errors.Unavailable):
            await world.feed.fresh()
        store.mend()
        third = await commit(world, "after")
        await until(lambda: len(ear.heard) == 3)

        assert ear.heard == [("before", first), ("meanwhile", second), ("after", third)]
        assert ear.lost == 0
        assert world.feed.following


async def test_the_feed_reloads_when_history_is_gone() -> None:
    """If what was missed is compacted, the feed holds what is there, and says that it is so."""
    store = TroubledStore()
    async with engine(store) as world:
        ear = Ear(world)
        await commit(world, "stays")
        await commit(world, "goes")
        await until(lambda: len(ear.heard) == 2)
        before = world.feed.revision
        store.cut()
        await until(lambda: not world.feed.following)
        key = world.config_maps.key("ns", "goes")
        page = await store.inner.read(Span.key(key))
        await store.inner.commit([Change(key, None, page.records[0].revision)])
        newest = await commit(world, "comes")
        await store.compact(newest)
        store.mend()
        await until(lambda: ear.lost)

        cache = world.feed.cache(world.config_maps)
        assert sorted(key.rpartition("/")[2] for key in cache.entries) == ["comes", "stays"]
        assert (cache.oldest, world.feed.revision) == (newest, newest)
        assert len(ear.heard) == 2
        watch = await world.watch(resource_version=str(before))
        assert watch.error is not None
        assert watch.error.status().code == 410
        later = await commit(world, "later")
        await until(lambda: len(ear.heard) == 3)
        assert ear.heard[-1] == ("later", later)


async def test_a_reload_claims_no_history_that_was_not_loaded() -> None:
    """The store still has some; but a watch from there would miss the changes up to the load."""
    store = TroubledStore()
    async with engine(store) as world:
        ear = Ear(world)
        await commit(world, "before")
        await until(lambda: len(ear.heard) == 1)
        store.cut()
        await until(lambda: not world.feed.following)
        await commit(world, "missed")
        left = await commit(world, "left")
        newest = await commit(world, "newest")
        await store.compact(left)
        store.mend()
        await until(lambda: ear.lost)

        cache = world.feed.cache(world.config_maps)
        assert (cache.oldest, world.feed.revision) == (newest, newest)
        assert (await store.inner.read(Span.all(), limit=1)).oldest == left
        watch = await world.watch(resource_version=str(left))
        assert watch.error is not None
        assert watch.error.status().code == 410


async def test_waits_for_a_store_that_is_not_there_yet() -> None:
    """A store that cannot be read at the start is asked again until it answers."""
    store = TroubledStore()
    store.cut()
    catalog_only = MemoryStore()
    async with engine(catalog_only) as world:
        feed = Feed(store, world.catalog)
        async with following(feed):
            await asyncio.sleep(0.01)
            assert not feed.loaded
            store.mend()
            await feed.wait_loaded()
            assert feed.following


async def test_a_listener_that_fails_is_alone_with_it(world: Engine) -> None:
    """One watcher's exception neither stops the feed nor keeps others from hearing."""

    class Broken(Ear):
        def changed(self, changes: list[ObjectChange[Any]]) -> None:
            raise RuntimeError("broken")

    broken, ear = Broken(world), Ear(world)
    await world.make("a")
    await until(lambda: ear.heard)

    assert broken.lost == 1


async def test_waiting_for_a_revision_that_never_comes_leaves_nothing_behind(
    world: Engine,
) -> None:
    """A client that asks for the far future does not grow the server."""
    for _ in range(5):
        assert not await world.feed.reach_within(10**12, 0.001)

    assert world.feed._waiting == []


async def test_a_wait_that_is_given_up_without_a_task_leaves_nothing_behind(
    world: Engine,
) -> None:
    """As the listener gives up to wait for changes that are announced, and not here yet."""
    waiting = world.feed.reach(10**12)
    waiting.send(None)

    waiting.close()

    assert world.feed._waiting == []


def test_an_entry_stored_under_another_naming_is_read() -> None:
    """A store written as `orch` can be served as `kubernetes`: only the head differs."""
    old = config_map.declare(ORCH)
    value = old.head + b'"metadata":{"name":"a","namespace":"n","uid":"u"},"data":{"x":"y"}}'
    foreign = value.replace(b'"v1"', b'"something.much/longer"')

    entry = Entry.stored(config_map.declare(KUBERNETES), "k", foreign, 7)

    assert entry.object.data == {"x": "y"}
    assert b'"uid":"u","resourceVersion":"7"' in entry.data


def test_a_deletion_shows_the_old_content_at_its_own_revision() -> None:
    """Only the version changes, even where a label looks like one."""
    value = (
        config_map.declare(ORCH).head
        + b'"metadata":{"name":"a","uid":"u","annotations":{"x":"\\"resourceVersion\\":\\"7\\""}}}'
    )
    entry = Entry.stored(config_map.declare(ORCH), "k", value, 7).at(9)

    assert entry.object.metadata.resource_version == "9"
    assert entry.object.metadata.annotations == {"x": '"resourceVersion":"7"'}


def test_suffixes_have_no_vowels() -> None:
    """Generated names never spell anything."""
    made = {SystemRandomness().suffix() for _ in range(200)}

    assert all(len(suffix) == 5 and not set(suffix) & set("aeiou013") for suffix in made)


async def test_a_list_after_a_reload_shows_the_reloaded_objects() -> None:
    """The items of a list are joined once per change; loading is none, and still changes all."""
    kind = config_map.declare(ORCH)
    cache = KindCache(kind)

    def loaded(name: str) -> dict[str, Entry[Any]]:
        key = kind.key("ns", name)
        data = kind.head + b'"metadata":{"name":"%b","namespace":"ns","uid":"u"}}' % name.encode()
        return {key: Entry.stored(kind, key, data, 1)}

    cache.load(loaded("old"), 0)
    before = cache.joined_tails(kind.key_prefix)
    cache.load(loaded("new"), 0)
    after = cache.joined_tails(kind.key_prefix)

    assert b'"old"' in before
    assert b'"new"' in after
    assert b'"old"' not in after


async def test_a_store_of_many_pages_is_loaded_whole(
    world: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Objects are read a page at a time, at one revision, and the log says how far it is."""
    monkeypatch.setattr(feed_module, "RECORDS_PER_PAGE", 3)
    monkeypatch.setattr(feed_module, "LOG_EVERY", 5)
    for number in range(11):
        await world.make(f"m{number:02d}")
    again = Feed(world.store, world.catalog)

    with caplog.at_level("INFO", logger=feed_module.__name__):
        async with following(again):
            await again.wait_loaded()

    found = [entry.meta.name for entry in again.cache(world.config_maps).scan()]
    logged = [vars(line)["objects"] for line in caplog.records if line.msg == "feed.loading"]
    assert found == [f"m{number:02d}" for number in range(11)]
    assert logged == [6, 11]


class WritingWhileRead(MemoryStore):
    """Another server writes behind every page that is read."""

    async def read(self, span: Span, *, at: Revision = LATEST, limit: int = 0) -> Page:
        page = await super().read(span, at=at, limit=limit)
        if page.more:
            key = f"core/configmaps/ns/z{await self.revision()}"
            await self.commit([Change(key, b"no object", ABSENT)])
        return page


async def test_what_is_written_during_a_load_is_taken_in_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All pages show the revision of the first; later writes arrive as changes, each once."""
    monkeypatch.setattr(feed_module, "RECORDS_PER_PAGE", 2)
    store = WritingWhileRead()
    kind = config_map.declare(ORCH)
    for name in "abcde":
        body = kind.head + b'"metadata":{"name":"%b","namespace":"ns","uid":"u"}}' % name.encode()
        await store.commit([Change(kind.key("ns", name), body, ABSENT)])
    before = await store.revision()
    feed = Feed(store, Catalog([kind]))

    async with following(feed):
        await feed.wait_loaded()
        await feed.reach(await store.revision())

    cache = feed.cache(kind)
    assert [entry.meta.name for entry in cache.scan()] == list("abcde")
    assert list(cache.unreadable.values()) == list(range(before + 1, feed.revision + 1))


class ChangedWhileRead(MemoryStore):
    """Another server changes an object of the first page, and deletes one, before the second."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__()
        self._first, self._second = first, second
        self.changed: Revision = ABSENT

    async def read(self, span: Span, *, at: Revision = LATEST, limit: int = 0) -> Page:
        page = await super().read(span, at=at, limit=limit)
        if page.more and not self.changed:
            found = {record.key: record for record in page.records}
            old, gone = found[self._first], found[self._second]
            value = old.value.replace(b'"uid":"u"', b'"uid":"u","labels":{"is":"new"}')
            changes = [Change(old.key, value, old.revision), Change(gone.key, None, gone.revision)]
            self.changed = await self.commit(changes)
        return page


async def test_what_changes_on_a_page_that_was_read_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server with more than a page of objects starts while another one writes."""
    monkeypatch.setattr(feed_module, "RECORDS_PER_PAGE", 2)
    kind = config_map.declare(ORCH)
    store = ChangedWhileRead(kind.key("ns", "a"), kind.key("ns", "b"))
    for name in "abcde":
        body = kind.head + b'"metadata":{"name":"%b","namespace":"ns","uid":"u"}}' % name.encode()
        await store.commit([Change(kind.key("ns", name), body, ABSENT)])
    feed = Feed(store, Catalog([kind]))

    async with following(feed):
        await feed.wait_loaded()
        await feed.reach(await store.revision())

    found = {entry.meta.name: entry.meta.labels for entry in feed.cache(kind).scan()}
    assert store.changed
    assert found == {"a": {"is": "new"}, "c": {}, "d": {}, "e": {}}


@pytest.mark.parametrize("sole_writer", [True, False])
async def test_only_what_others_may_have_written_is_decoded_to_see_that_it_can_be(
    sole_writer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry is the same; bytes without the place for a revision are no object in any case."""
    kind, store = config_map.declare(ORCH), MemoryStore()
    feed = Feed(store, Catalog([kind]), sole_writer=sole_writer)
    body = kind.head + b'"metadata":{"name":"a","namespace":"ns","uid":"u"}}'
    decoded: list[bytes] = []
    really_decode = kind.decoder.stored

    def decode(data: bytes) -> config_map.ConfigMap:
        decoded.append(data)
        return really_decode(data)

    async with following(feed):
        await feed.wait_loaded()
        monkeypatch.setattr(kind.decoder, "stored", decode)
        await store.commit([Change(kind.key("ns", "a"), body, ABSENT)])
        await store.commit([Change(kind.key("ns", "b"), b"rubbish", ABSENT)])
        await feed.fresh()

    entry = feed.cache(kind).entries[kind.key("ns", "a")]
    placed = body.replace(b'"u"', b'"u","resourceVersion":"2"')
    assert entry.data == placed
    assert decoded == ([] if sole_writer else [placed])
    assert list(feed.cache(kind).unreadable) == [kind.key("ns", "b")]


class LoadedFeed(NamedTuple):
    """A feed that has loaded and waits for changes."""

    feed: Feed
    cache: KindCache[ConfigMap]
    store: MemoryStore

    async def commit_one(self) -> None:
        kind = self.cache.kind
        body = kind.head + b'"metadata":{"name":"a","namespace":"ns","uid":"u"}}'
        await self.store.commit([Change(kind.key("ns", "a"), body, ABSENT)])


@pytest.fixture
async def loaded() -> AsyncIterator[LoadedFeed]:
    kind, store = config_map.declare(ORCH), MemoryStore()
    feed = Feed(store, Catalog([kind]), sole_writer=True)
    async with following(feed):
        await feed.wait_loaded()
        await until(lambda: feed.following)
        yield LoadedFeed(feed, feed.cache(kind), store)


async def test_a_read_does_not_wait_for_changes_that_have_arrived(loaded: LoadedFeed) -> None:
    """It takes the change in itself; the feed's own task finds nothing left to do."""
    heard: list[int] = []
    loaded.cache.listen("ear", lambda changes: heard.extend(c.revision for c in changes))
    await loaded.commit_one()
    behind = loaded.feed.revision

    reading = loaded.feed.fresh()
    with pytest.raises(StopIteration) as answer:  # it ends without giving way to the loop
        reading.send(None)

    assert answer.value.value == loaded.feed.revision == behind + 1
    assert loaded.cache.get("ns", "a") is not None
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert heard == [loaded.feed.revision]


async def test_a_change_that_a_read_fails_to_take_in_is_not_lost(
    loaded: LoadedFeed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The feed reloads everything, and the read waits for it; the feed can still be stopped."""

    def fail(event: StoreEvent, *, ours: bool = False) -> ObjectChange[Any]:
        monkeypatch.undo()
        raise KeyError

    monkeypatch.setattr(loaded.cache, "apply", fail)
    await loaded.commit_one()

    async with asyncio.timeout(10):
        newest = await loaded.feed.fresh()

    assert loaded.cache.get("ns", "a") is not None
    assert newest == loaded.feed.revision
    assert "feed.batch_failed" in caplog.text


class SlowReplay(MemoryStore):
    """A store that returns its history change by change."""

    async def watch(self, span: Span, *, after: Revision) -> AsyncGenerator[Batch, None]:
        async for batch in super().watch(span, after=after):
            for event in batch.events:
                yield Batch((event,), event.revision)


async def test_the_past_is_taken_in_without_going_back_to_it() -> None:
    """While the history before the start is read, no reader gets an older revision."""
    kind = config_map.declare(ORCH)
    store = SlowReplay()
    for number in range(20):
        data = kind.head + b'"metadata":{"name":"n%d","namespace":"ns","uid":"u"}}' % number
        await store.commit([Change(kind.key("ns", f"n{number}"), data, 0)])
    newest = await store.revision()
    feed = Feed(store, Catalog([kind]))
    seen = []
    advance = feed._advance

    def noted(revision: int) -> None:
        seen.append(revision)
        advance(revision)

    feed._advance = noted  # type: ignore[method-assign]  # to see each step
    running = asyncio.create_task(feed.run())
    await feed.wait_loaded()
    await feed.fresh()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await store.close()

    assert seen
    assert min(seen) == newest
