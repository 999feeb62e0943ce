"""Status of the ledger: its length, pending entries, and whether it was rolled back."""

from datetime import timedelta
from pathlib import Path

import pytest

from orchid.features.ledger.reading import StoredLog
from orchid.features.ledger.sequencing import LedgerBroken, Sequencer
from orchid.features.ledger.signing_keys import LedgerKeys
from orchid.features.ledger.status import (
    LedgerStatus,
    keep_newest,
    read_kept,
    refuse_rolled_back,
    report_damaged,
)
from orchid.kernel.engine.ledger import store_keys
from orchid.kernel.store.interface import ABSENT, Change, Span
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.tlog.checkpoints import Checkpoint
from tests.unit.features.ledger.logs import KEY, NOW, ORIGIN, grow, leave_pending


def standing(store: MemoryStore, directory: Path) -> LedgerStatus:
    """A server that has just started."""
    return LedgerStatus(store, directory / "kept", lambda: NOW + timedelta(seconds=90))


def number(gauge: object) -> float:
    (sample,) = gauge.family().samples  # type: ignore[attr-defined]  # a Gauge
    return float(sample.value)


async def test_length_and_longest_wait_are_reported(tmp_path: Path) -> None:
    """Nothing waits once everything has its place."""
    store = MemoryStore()
    looking = standing(store, tmp_path)
    await leave_pending(store, 0, 3)
    await looking.check(keeps=True)
    before = number(looking.entries), number(looking.waiting)

    await grow(store, 3, 1)
    await looking.check(keeps=True)

    assert before == (0, 90)
    assert (number(looking.entries), number(looking.waiting)) == (4, 0)


async def test_an_entry_whose_key_has_no_time_counts_as_waiting_for_ever(tmp_path: Path) -> None:
    """No server of ours wrote it: the metric shows it."""
    store = MemoryStore()
    await store.commit([Change(f"{store_keys.PENDING.start}zebra", b"{}", ABSENT)])
    looking = standing(store, tmp_path)

    await looking.check(keeps=True)

    assert number(looking.waiting) > 1e9


async def test_the_first_check_reports_no_rollback(tmp_path: Path) -> None:
    """An alert needs a value from the start, before there is a log to compare with."""
    looking = standing(MemoryStore(), tmp_path)

    await looking.check(keeps=True)

    assert number(looking.rolled_back) == 0


@pytest.mark.parametrize(("first", "more"), [(1, 1), (255, 2), (256, 300), (3, 0)])
async def test_a_log_that_grows_is_the_same(tmp_path: Path, first: int, more: int) -> None:
    """Within a tile and beyond it, for the server that saw it and for the next one."""
    store = MemoryStore()
    await grow(store, 0, first)
    looking = standing(store, tmp_path)
    await looking.check(keeps=True)
    await grow(store, first, more)

    await looking.check(keeps=True)
    again = standing(store, tmp_path)
    await again.check(keeps=True)

    assert number(looking.rolled_back) == number(again.rolled_back) == 0
    kept = read_kept(tmp_path / "kept")
    assert kept is not None
    assert kept.size == first + more


async def test_a_rollback_is_reported_also_when_the_log_has_grown_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once in the log file, and by the metric for as long as the older checkpoint is kept."""
    store, restored = MemoryStore(), MemoryStore()
    await grow(store, 0, 5)
    await standing(store, tmp_path).check(keeps=True)
    looking = standing(restored, tmp_path)

    await grow(restored, 0, 3)
    await looking.check(keeps=True)
    shorter = number(looking.rolled_back)
    await looking.check(keeps=True)
    await grow(restored, 100, 4)
    await looking.check(keeps=True)

    assert (shorter, number(looking.rolled_back)) == (1, 1)
    assert caplog.text.count("it had 5 entries and has 3") == 1
    assert "its first 5 entries are not those" in caplog.text
    (tmp_path / "kept").unlink()
    forgetful = standing(restored, tmp_path)
    await forgetful.check(keeps=True)
    assert number(forgetful.entries) == 7


async def test_a_missing_log_is_reported(tmp_path: Path) -> None:
    """No head at all is the shortest log there is."""
    store = MemoryStore()
    await grow(store, 0, 2)
    looking = standing(store, tmp_path)
    await looking.check(keeps=False)
    [head] = (await store.read(Span.key(store_keys.HEAD))).records

    await store.commit([Change(head.key, None, head.revision)])
    await looking.check(keeps=False)

    assert number(looking.rolled_back) == 1
    assert read_kept(tmp_path / "kept") is None  # another process keeps it


async def test_a_log_that_was_rolled_back_is_not_signed_until_that_is_accepted(
    tmp_path: Path,
) -> None:
    """Entries wait meanwhile; when the stored checkpoint is gone, they get their places."""
    store, restored, kept = MemoryStore(), MemoryStore(), tmp_path / "kept"
    await grow(store, 0, 5)
    await standing(store, tmp_path).check(keeps=True)
    await grow(restored, 0, 3)
    looking = standing(restored, tmp_path)
    await looking.check(keeps=True)

    async def check(head: Checkpoint) -> None:
        await refuse_rolled_back(restored, kept, head)

    cautious = Sequencer(restored, LedgerKeys([KEY]), ORIGIN, check)
    await leave_pending(restored, 3, 1)
    with pytest.raises(LedgerBroken, match=r"rolled back.*orchid ledger accept"):
        await cautious.drain()
    waiting = await StoredLog(restored).pending()
    kept.rename(tmp_path / "aside")
    await cautious.drain()
    await looking.check(keeps=True)

    assert (waiting, await StoredLog(restored).pending()) == (1, 0)
    assert (number(looking.rolled_back), number(looking.entries)) == (0, 4)


async def test_an_emptied_log_is_not_begun_again(tmp_path: Path) -> None:
    """A store without a log is the shortest log; what the server knew is longer."""
    store, kept = MemoryStore(), tmp_path / "kept"
    await grow(store, 0, 2)
    await standing(store, tmp_path).check(keeps=True)
    empty = MemoryStore()
    await leave_pending(empty, 0, 1)

    async def check(head: Checkpoint) -> None:
        await refuse_rolled_back(empty, kept, head)

    with pytest.raises(LedgerBroken, match="it had 2 entries and has 0"):
        await Sequencer(empty, LedgerKeys([KEY]), ORIGIN, check).drain()


async def test_a_server_that_knew_more_goes_by_what_was_accepted(tmp_path: Path) -> None:
    """An accepted log is not reported as rolled back, also by a server that saw the longer one."""
    store = MemoryStore()
    await grow(store, 0, 2)
    looking = standing(store, tmp_path)
    await looking.check(keeps=True)
    [head] = (await store.read(Span.key(store_keys.HEAD))).records
    await store.commit([Change(head.key, None, head.revision)])
    await looking.check(keeps=True)
    before = number(looking.rolled_back)

    (tmp_path / "kept").unlink()
    await looking.check(keeps=True)

    assert (before, number(looking.rolled_back)) == (1, 0)


async def test_a_log_that_was_rolled_back_is_not_kept_at_a_stop(tmp_path: Path) -> None:
    """Otherwise the next start would know nothing of the longer one."""
    store, restored, kept = MemoryStore(), MemoryStore(), tmp_path / "kept"
    await grow(store, 0, 5)
    await keep_newest(store, kept)
    await grow(restored, 0, 3)

    with pytest.raises(LedgerBroken, match="it had 5 entries and has 3"):
        await keep_newest(restored, kept)

    found = read_kept(kept)
    assert found is not None
    assert found.size == 5


def test_a_damaged_checkpoint_is_reported_and_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The next checkpoint replaces it, and nobody would know that the log was not compared."""
    kept = tmp_path / "kept"
    kept.write_text("garbage")

    report_damaged(kept, NOW)

    assert (tmp_path / "kept.unreadable-20261115T100000Z").read_text() == "garbage"
    assert "ledger.checkpoint_unreadable" in caplog.text


async def test_a_good_checkpoint_stays_and_a_missing_one_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is reported about either."""
    store = MemoryStore()
    await grow(store, 0, 2)
    await keep_newest(store, tmp_path / "kept")

    report_damaged(tmp_path / "kept", NOW)
    report_damaged(tmp_path / "none", NOW)

    assert caplog.text == ""
    assert read_kept(tmp_path / "kept") is not None
