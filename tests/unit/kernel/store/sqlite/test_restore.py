"""A backup put back in place: nothing lost, nobody misled, nothing done under a running server."""

from pathlib import Path

import apsw
import pytest

from orchid.kernel.store.first_revision import EPOCH, first_revision
from orchid.kernel.store.interface import (
    ABSENT,
    AlreadyInUse,
    Change,
    Compacted,
    Span,
    StoreUnusable,
)
from orchid.kernel.store.sqlite import restore as sqlite_restore
from orchid.kernel.store.sqlite.store import SQLiteStore

STAMP = "20260101T000000Z"


async def written(path: Path, *keys: str) -> SQLiteStore:
    store = await SQLiteStore.open(path)
    for key in keys:
        await store.commit([Change(key, key.encode(), ABSENT)])
    return store


async def keys_of(path: Path) -> list[str]:
    store = await SQLiteStore.open(path)
    try:
        return [record.key for record in (await store.read(Span.all())).records]
    finally:
        await store.close()


@pytest.fixture
async def backup(tmp_path: Path) -> Path:
    """Two keys, saved while the store was open; a third came later."""
    store = await written(tmp_path / "data.db", "a", "b")
    await store.backup(tmp_path / "backup.db")
    await store.commit([Change("c", b"c", ABSENT)])
    await store.close()
    return tmp_path / "backup.db"


async def test_restored_store_holds_what_was_saved(backup: Path, tmp_path: Path) -> None:
    """Later writes are gone from the store, and in the file that was moved aside."""
    target = tmp_path / "data.db"

    done = sqlite_restore.restore(backup, target, first=1, stamp=STAMP)

    assert done.contents.records == 2
    assert await keys_of(target) == ["a", "b"]
    assert done.aside == tmp_path / f"data.db.before-{STAMP}"
    assert await keys_of(done.aside) == ["a", "b", "c"]


async def test_values_below_some_prefixes_are_kept(backup: Path, tmp_path: Path) -> None:
    """Those of the store in place that the backup lacks, below each prefix; nothing else."""
    target = tmp_path / "data.db"
    store = await SQLiteStore.open(target)
    for key in ("a", "kept/x", "lost/y", "past/z"):
        if not (await store.read(Span.key(key))).records:
            await store.commit([Change(key, b"later", ABSENT)])
    await store.close()

    done = sqlite_restore.restore(backup, target, first=1, stamp=STAMP, keeps=("kept/", "past/"))

    assert done.kept == 2
    assert await keys_of(target) == ["a", "b", "kept/x", "past/z"]


async def test_a_watch_from_a_later_revision_gets_compacted(backup: Path, tmp_path: Path) -> None:
    """A revision that the replaced store gave out is compacted away, and never given out again."""
    target = tmp_path / "data.db"
    before = await SQLiteStore.open(target)
    seen = await before.revision()
    await before.close()

    sqlite_restore.restore(backup, target, first=1, stamp=STAMP)

    after = await SQLiteStore.open(target)
    try:
        with pytest.raises(Compacted):
            await anext(after.watch(Span.all(), after=seen))
        assert await after.commit([Change("d", b"d", ABSENT)]) > seen + 1
    finally:
        await after.close()


async def test_restored_store_goes_on_from_the_clock(backup: Path, tmp_path: Path) -> None:
    """Without the replaced store, the clock is ahead of the revisions that it returned."""
    now = first_revision(EPOCH + 5_000)

    done = sqlite_restore.restore(backup, tmp_path / "new.db", first=now, stamp=STAMP)

    assert (done.contents.oldest, done.contents.newest) == (5_000, 5_000)
    assert done.aside is None


async def test_nothing_is_restored_under_a_running_server(backup: Path, tmp_path: Path) -> None:
    """The store that is open stays as it is."""
    store = await SQLiteStore.open(tmp_path / "data.db")
    try:
        with pytest.raises(AlreadyInUse):
            sqlite_restore.restore(backup, tmp_path / "data.db", first=1, stamp=STAMP)
    finally:
        await store.close()

    assert await keys_of(tmp_path / "data.db") == ["a", "b", "c"]


async def test_damaged_store_can_be_replaced(backup: Path, tmp_path: Path) -> None:
    """Damage is the usual reason for a restore."""
    target = tmp_path / "data.db"
    target.write_bytes(b"not a database" * 1000)

    done = sqlite_restore.restore(backup, target, first=9, stamp=STAMP)

    assert await keys_of(target) == ["a", "b"]
    assert done.aside is not None
    assert done.aside.read_bytes().startswith(b"not a database")


async def test_leftover_log_of_the_replaced_file_is_never_applied_to_the_new_one(
    backup: Path, tmp_path: Path
) -> None:
    """A write-ahead log belongs to its file, and goes aside with it."""
    target = tmp_path / "data.db"
    target.write_bytes(b"x" * 100)
    target.with_name("data.db-wal").write_bytes(b"y" * 100)

    sqlite_restore.restore(backup, target, first=9, stamp=STAMP)

    assert (tmp_path / f"data.db.before-{STAMP}-wal").read_bytes() == b"y" * 100
    assert await keys_of(target) == ["a", "b"]


@pytest.mark.parametrize("content", [b"", b"nonsense" * 1000])
async def test_what_is_no_backup_changes_nothing(
    backup: Path, tmp_path: Path, content: bytes
) -> None:
    """Everything is checked before anything is touched."""
    bad = tmp_path / "bad.db"
    bad.write_bytes(content)

    with pytest.raises(StoreUnusable):
        sqlite_restore.restore(bad, tmp_path / "data.db", first=1, stamp=STAMP)

    assert await keys_of(tmp_path / "data.db") == ["a", "b", "c"]


async def test_backup_with_a_missing_value_is_refused(backup: Path, tmp_path: Path) -> None:
    """A file that SQLite finds sound may still not be what we wrote."""
    db = apsw.Connection(str(backup))
    db.execute("DELETE FROM log WHERE key = 'a'")
    db.close()

    with pytest.raises(StoreUnusable, match="1 keys have no value"):
        sqlite_restore.restore(backup, tmp_path / "data.db", first=1, stamp=STAMP)


async def test_store_is_not_restored_from_itself(backup: Path, tmp_path: Path) -> None:
    """The file in place is no backup of itself."""
    with pytest.raises(StoreUnusable, match="is the data file itself"):
        sqlite_restore.restore(tmp_path / "data.db", tmp_path / "data.db", first=1, stamp=STAMP)


def test_new_stores_count_seconds_since_2020() -> None:
    """Decision 11."""
    assert first_revision(EPOCH + 5.9) == 5
    assert first_revision(0) == 1


async def test_values_below_a_prefix_are_kept_from_the_replaced_store(tmp_path: Path) -> None:
    """Those that the backup lacks, however many; watchers learn of them by listing."""
    target, backup = tmp_path / "data.db", tmp_path / "backup.db"
    store = await written(target, "kept/0", "other/0")
    await store.backup(backup)
    for number in range(1, 300):
        await store.commit([Change(f"kept/{number}", b"%d" % number, ABSENT)])
    await store.commit([Change("other/1", b"x", ABSENT)])
    await store.close()

    done = sqlite_restore.restore(backup, target, first=1, stamp=STAMP, keeps=("kept/",))

    found = await keys_of(target)
    again = await SQLiteStore.open(target)
    page = await again.read(Span.key("kept/299"))
    with pytest.raises(Compacted):
        await again.read(Span.all(), at=done.contents.newest - 1)
    revision = await again.commit([Change("kept/299", b"changed", page.records[0].revision)])
    await again.close()
    assert done.kept == 299
    assert sorted(found) == sorted([f"kept/{number}" for number in range(300)] + ["other/0"])
    assert page.records[0].value == b"299"
    assert revision == done.contents.newest + 1


async def test_newer_values_replace_those_of_the_backup(backup: Path, tmp_path: Path) -> None:
    """Below some prefixes those of the store in place count; so do values of the caller."""
    target = tmp_path / "data.db"
    store = await SQLiteStore.open(target)
    record = (await store.read(Span.key("a"))).records[0]
    await store.commit([Change("a", b"later", record.revision)])
    await store.close()

    sqlite_restore.restore(
        backup, target, first=1, stamp=STAMP, newer=("a", "c"), values={"b": b"given"}
    )

    restored = await SQLiteStore.open(target)
    values = {record.key: record.value for record in (await restored.read(Span.all())).records}
    await restored.close()
    assert values == {"a": b"later", "b": b"given", "c": b"c"}
