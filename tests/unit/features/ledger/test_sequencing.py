"""Each pending entry gets one index, with any number of servers, and the log is complete."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest

from orchid.features.ledger import sequencing
from orchid.features.ledger.reading import StoredLog
from orchid.features.ledger.sequencing import (
    MOST_AT_ONCE,
    MOST_SEGMENTS,
    MOST_SINGLE,
    QUIET_SECONDS,
    LedgerBroken,
    Sequencer,
)
from orchid.features.ledger.signing_keys import LedgerKeys
from orchid.kernel.engine.ledger import store_keys
from orchid.kernel.engine.ledger.entries import Fact
from orchid.kernel.store.interface import (
    ABSENT,
    LATEST,
    Change,
    DeleteRange,
    Page,
    Revision,
    Span,
    StoreUnavailable,
)
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.tlog.audit import audit, entries
from orchid.kernel.tlog.checkpoints import Checkpoint
from tests.unit.features.ledger.logs import (
    KEY,
    NOW,
    ORIGIN,
    OTHER_KEY,
    VERIFIER,
    grow,
    leave_pending,
    sequencer,
)


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    store = MemoryStore()
    yield store
    await store.close()


async def numbers(store: MemoryStore, size: int) -> list[int]:
    found = [json.loads(entry) async for entry in entries(StoredLog(store), size)]
    return [content["number"] for content in found]


async def test_pending_entries_are_logged_in_the_order_of_their_commits(store: MemoryStore) -> None:
    """All pending entries are in the log, and none is pending any more."""
    await leave_pending(store, 0, 70)

    await sequencer(store).drain()

    assert await numbers(store, 70) == list(range(70))
    assert await StoredLog(store).pending() == 0
    assert (await audit(StoredLog(store), VERIFIER)).size == 70


async def test_a_clock_that_goes_back_changes_no_order(store: MemoryStore) -> None:
    """Keys begin with the time; what counts is which commit came first."""
    for number in range(5):
        facts = [Fact("test.made", {"number": number})]
        await store.commit(store_keys.pending(facts, "uid", NOW - timedelta(seconds=number)))

    await sequencer(store).drain()

    assert await numbers(store, 5) == list(range(5))


async def test_a_commit_that_did_not_happen_leaves_no_trace(store: MemoryStore) -> None:
    """The same sequencer begins again from what is stored, not from what it had in mind."""
    one = sequencer(store)
    await leave_pending(store, 0, 1)
    await one.drain()
    await leave_pending(store, 1, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "commit", unavailable)
        with pytest.raises(StoreUnavailable):
            await one.step()

    await one.drain()

    assert await numbers(store, 4) == list(range(4))
    assert (await audit(StoredLog(store), VERIFIER)).size == 4


async def unavailable(changes: Sequence[Change], delete: DeleteRange | None = None) -> Revision:
    raise StoreUnavailable("not now")


async def test_a_log_is_gone_on_with_by_a_server_that_did_not_begin_it(store: MemoryStore) -> None:
    """Whatever the steps, across full tiles too, each new sequencer reads the edge and goes on."""
    size = 0
    for count in (1, 2, 60, 193, 1, 255, 256, 3):
        await grow(store, size, count)
        size += count

    assert await numbers(store, size) == list(range(size))
    assert (await audit(StoredLog(store), VERIFIER)).size == size


async def test_one_sequencer_remembers_the_edge(store: MemoryStore) -> None:
    """A sequencer continues step by step like a new one."""
    one = sequencer(store)
    for number in range(300):
        await leave_pending(store, number, 1)
        await one.drain()

    assert await numbers(store, 300) == list(range(300))
    assert (await audit(StoredLog(store), VERIFIER)).size == 300


async def test_segments_of_a_bundle_are_joined(store: MemoryStore) -> None:
    """A log that grows by single entries does not keep a key for each."""
    one = sequencer(store)
    most = 0
    for number in range(256):
        await leave_pending(store, number, 1)
        await one.drain()
        most = max(most, len((await store.read(store_keys.bundle_span(0))).records))

    assert most == MOST_SEGMENTS
    assert len((await store.read(store_keys.bundle_span(0))).records) == 1


async def test_very_many_entries_after_many_segments_fit_into_a_commit(
    store: MemoryStore,
) -> None:
    """As many as are logged at once, while as many segments as there can be are joined."""
    one = sequencer(store)
    for number in range(MOST_SEGMENTS):
        await leave_pending(store, number, 1)
        await one.drain()
    await leave_pending(store, MOST_SEGMENTS, 300)

    await one.drain()

    assert await numbers(store, MOST_SEGMENTS + 300) == list(range(MOST_SEGMENTS + 300))
    assert (await audit(StoredLog(store), VERIFIER)).size == MOST_SEGMENTS + 300


async def test_two_servers_append_at_once_without_loss_or_repeat(store: MemoryStore) -> None:
    """Sequencers that race log every entry exactly once, and the log holds."""
    rivals = [sequencer(store) for _ in range(3)]

    async def write(first: int) -> None:
        for number in range(first, first + 60):
            await leave_pending(store, number, 1)
            await asyncio.sleep(0)

    async def log(one: Sequencer) -> None:
        while not done.is_set():
            await one.step()
            await asyncio.sleep(0)

    done = asyncio.Event()
    logging = [asyncio.create_task(log(one)) for one in rivals]
    await asyncio.gather(*(write(first) for first in (0, 60, 120)))
    done.set()
    await asyncio.gather(*logging)
    await rivals[0].drain()

    assert sorted(await numbers(store, 180)) == list(range(180))
    assert (await audit(StoredLog(store), VERIFIER)).size == 180


class Overtaken(MemoryStore):
    """A store in which another server logs all entries, just when somebody has read them."""

    rival: Sequencer | None = None

    async def read(self, span: Span, *, at: Revision = LATEST, limit: int = 0) -> Page:
        page = await super().read(span, at=at, limit=limit)
        if span == store_keys.PENDING and page.records and self.rival is not None:
            rival, self.rival = self.rival, None
            await rival.drain()
        return page


@pytest.mark.parametrize("begun", [True, False], ids=["begun", "not-begun"])
async def test_an_entry_that_another_server_logs_meanwhile_is_not_logged_again(
    begun: bool,
) -> None:
    """Entries removed before the head was read are not logged twice."""
    store = Overtaken()
    one = sequencer(store)
    if begun:
        await leave_pending(store, 0, 3)
        await one.drain()
    await leave_pending(store, 3, 5)
    store.rival = sequencer(store)

    await one.drain()

    expected = [*(range(3) if begun else ()), *range(3, 8)]
    assert await numbers(store, len(expected)) == expected
    assert (await audit(StoredLog(store), VERIFIER)).size == len(expected)
    await store.close()


class Busy(MemoryStore):
    """A store to which another entry comes with every commit of the log."""

    arrived = 0
    commits = 0

    async def commit(
        self, changes: Sequence[Change], delete: DeleteRange | None = None
    ) -> Revision:
        revision = await super().commit(changes, delete)
        if any(change.key == store_keys.HEAD for change in changes):
            self.commits += 1
            self.arrived += 1
            await leave_pending(self, 100 + self.arrived, 1)
        return revision


async def test_entries_that_come_meanwhile_gather_for_the_next_time() -> None:
    """Under load a commit of the log is not spent on each few entries that have just come."""
    store = Busy()
    one = sequencer(store)
    await leave_pending(store, 0, 3)

    await one.drain()
    after_first = store.commits, await StoredLog(store).pending()
    await leave_pending(store, 3, 5)
    await one.drain()

    assert after_first == (1, 1)
    assert store.commits == 2
    assert await numbers(store, 9) == [0, 1, 2, 101, 3, 4, 5, 6, 7]
    await store.close()


async def test_many_new_entries_wait_for_the_next_look(store: MemoryStore) -> None:
    """Others may still come between them; a look later nobody does, and they have their places."""
    one, left = sequencer(store), []
    await leave_pending(store, 0, MOST_SINGLE + 1)

    for arriving in (3, 0, 0):
        await one.log_pending()
        left.append(await StoredLog(store).pending())
        await leave_pending(store, MOST_SINGLE + 1, arriving)

    assert left == [MOST_SINGLE + 1, 3, 0]
    assert await numbers(store, MOST_SINGLE + 4) == list(range(MOST_SINGLE + 4))


async def test_of_many_entries_the_older_ones_have_their_places_at_once(store: MemoryStore) -> None:
    """Entries slightly older than the newest are read once, and not again by the next call."""
    later = NOW + timedelta(seconds=QUIET_SECONDS)
    await leave_pending(store, 0, MOST_SINGLE)
    await leave_pending(store, MOST_SINGLE, 1, later - timedelta(milliseconds=1))
    await leave_pending(store, MOST_SINGLE + 1, 2, later + timedelta(milliseconds=1))

    await sequencer(store).log_pending()

    assert await StoredLog(store).pending() == 3
    assert await numbers(store, MOST_SINGLE) == list(range(MOST_SINGLE))


@pytest.mark.parametrize("word", ["zebra", "9" * 5000, "²" * 13 + "-x", ""])
async def test_a_key_that_nobody_of_us_made_holds_up_no_other_entry(
    store: MemoryStore, word: str
) -> None:
    """Somebody wrote to the store by hand, behind all other entries."""
    await leave_pending(store, 0, MOST_SINGLE)
    key = f"{store_keys.PENDING.start}~{word}"
    await store.commit([Change(key, b'{"number": -1}', ABSENT)])
    one = sequencer(store)

    for _ in range(2):
        await one.log_pending()

    assert await StoredLog(store).pending() == 0
    assert sorted(await numbers(store, MOST_SINGLE + 1)) == [-1, *range(MOST_SINGLE)]


class Counting(MemoryStore):
    """A store that notes how large each commit of the log is."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    async def commit(
        self, changes: Sequence[Change], delete: DeleteRange | None = None
    ) -> Revision:
        if changes[0].key == store_keys.HEAD:
            self.sizes.append(sum(len(change.value or b"") for change in changes))
        return await super().commit(changes, delete)


async def test_entries_of_several_bundles_share_a_commit() -> None:
    """A crowd costs as few signatures as can be, and the log holds."""
    store = Counting()
    await grow(store, 0, 100)
    await leave_pending(store, 100, 2 * MOST_AT_ONCE)
    store.sizes.clear()

    await sequencer(store).drain()

    assert len(store.sizes) == 2
    size = 100 + 2 * MOST_AT_ONCE
    assert await numbers(store, size) == list(range(size))
    assert (await audit(StoredLog(store), VERIFIER)).size == size
    await store.close()


async def test_large_entries_are_logged_in_commits_that_every_store_takes() -> None:
    """The largest entries there can be, onto a bundle of such: etcd refuses 1.5 MB."""
    store = Counting()
    for number in range(255 + 600):
        facts = [Fact("test.made", {"number": number, "long": "x" * 3900})]
        await store.commit(store_keys.pending(facts, "uid", NOW))
        if number in (100, 254):
            await sequencer(store).drain()

    await sequencer(store).drain()

    assert max(store.sizes) < 1_500_000
    assert await numbers(store, 855) == list(range(855))
    assert (await audit(StoredLog(store), VERIFIER)).size == 855
    await store.close()


class Crowded(MemoryStore):
    """A store into which an entry with an older key comes just before each range is deleted."""

    arrived = 0
    calm = False

    async def commit(
        self, changes: Sequence[Change], delete: DeleteRange | None = None
    ) -> Revision:
        if delete is not None and not self.calm:
            self.arrived += 1
            facts = [Fact("test.made", {"number": 1000 + self.arrived})]
            late = NOW + timedelta(milliseconds=1)
            await super().commit(store_keys.pending(facts, "uid", late))
        return await super().commit(changes, delete)


async def test_an_entry_that_comes_between_others_is_not_removed_without_its_place() -> None:
    """Neither is it lost, nor does it hold up those that it came between."""
    store = Crowded()
    one = sequencer(store)
    for number in range(150):
        facts = [Fact("test.made", {"number": number})]
        await store.commit(store_keys.pending(facts, "uid", NOW + timedelta(seconds=number)))

    await one.step()
    waiting = await StoredLog(store).pending()
    store.calm = True
    await one.log_pending()

    assert (store.arrived, waiting) == (1, 1)
    assert await numbers(store, 151) == [*range(150), 1001]
    assert await StoredLog(store).pending() == 0
    await store.close()


async def test_more_entries_than_are_read_at_once_are_all_logged(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries that were pending at the beginning have an index at the end, page after page."""
    monkeypatch.setattr(sequencing, "PAGE", 4)
    await leave_pending(store, 0, 11)

    await sequencer(store).drain()

    assert await StoredLog(store).pending() == 0
    assert await numbers(store, 11) == list(range(11))


class Forgetful(MemoryStore):
    """A store that commits and then cannot say so."""

    broken = False

    async def commit(
        self, changes: Sequence[Change], delete: DeleteRange | None = None
    ) -> Revision:
        revision = await super().commit(changes, delete)
        if self.broken:
            self.broken = False
            raise StoreUnavailable("no answer")
        return revision


async def test_a_commit_whose_outcome_is_unknown_is_not_repeated() -> None:
    """After a commit with a lost response, the entries are in the log once."""
    store = Forgetful()
    one = sequencer(store)
    await leave_pending(store, 0, 3)
    store.broken = True

    with pytest.raises(StoreUnavailable):
        await one.drain()
    await leave_pending(store, 3, 1)
    await one.drain()

    assert await numbers(store, 4) == [0, 1, 2, 3]
    assert (await audit(StoredLog(store), VERIFIER)).size == 4
    await store.close()


async def test_a_server_with_another_key_adds_nothing(store: MemoryStore) -> None:
    """A log has one key: a server with another key leaves the entries pending."""
    await grow(store, 0, 2)
    await leave_pending(store, 2, 1)

    with pytest.raises(LedgerBroken, match="not signed by"):
        await Sequencer(store, LedgerKeys([OTHER_KEY]), ORIGIN).drain()

    assert await StoredLog(store).pending() == 1
    assert (await audit(StoredLog(store), VERIFIER)).size == 2


async def test_a_log_keeps_the_name_it_began_with(store: MemoryStore) -> None:
    """A server with a changed address continues the same log."""
    await grow(store, 0, 1)
    await leave_pending(store, 1, 1)

    await Sequencer(store, LedgerKeys([KEY]), "elsewhere.example/ledger").drain()

    assert (await audit(StoredLog(store), VERIFIER)).size == 2


@pytest.mark.parametrize("value", [b"x" * 64, None])
async def test_a_log_that_does_not_fit_its_head_is_not_gone_on_with(
    store: MemoryStore, value: bytes | None
) -> None:
    """A new signature must never cover a changed or removed tile."""
    await grow(store, 0, 2)
    [tile] = (await store.read(Span.prefix(f"{store_keys.PREFIX}tile/"))).records
    await store.commit([Change(tile.key, value, tile.revision)])
    await leave_pending(store, 2, 1)

    with pytest.raises(LedgerBroken):
        await sequencer(store).drain()


async def test_a_failure_is_logged_once_and_retried(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """A head of another key is one line in the log, however often it is met."""
    await grow(store, 0, 1)
    await leave_pending(store, 1, 1)
    looks = 0

    async def sleep(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await Sequencer(store, LedgerKeys([OTHER_KEY]), ORIGIN).run(sleep=sleep)

    logged = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert len(logged) == 1
    assert logged[0].startswith(f"ledger.not_written: the note is not signed by {ORIGIN}+")


async def test_checkpoints_are_only_of_what_is_there(store: MemoryStore) -> None:
    """No log, no checkpoint; a tile or bundle beyond the end is not there either."""
    log = StoredLog(store)
    assert await log.checkpoint() is None

    await grow(store, 0, 3)

    note = await log.checkpoint()
    assert note is not None
    assert Checkpoint.opened(note, VERIFIER).size == 3
    for level in (-1, 0):
        assert await log.tile(store_keys.Tile(level, 0, 3)) is not None
        assert await log.tile(store_keys.Tile(level, 0, 4)) is None
        assert await log.tile(store_keys.Tile(level, 1, 1)) is None
