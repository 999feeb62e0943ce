"""The SQLite backend does what every store must, keeps it, and guards its file."""

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import apsw
import pytest

from orchid.kernel.store.interface import (
    ABSENT,
    AlreadyInUse,
    Change,
    DeleteRange,
    Record,
    RevisionConflict,
    Span,
    StoreEvent,
    StoreFull,
    StoreUnavailable,
    StoreUnusable,
)
from orchid.kernel.store.sqlite import file as sqlite_file
from orchid.kernel.store.sqlite import tables as sqlite_tables
from orchid.kernel.store.sqlite import writer as sqlite_writer
from orchid.kernel.store.sqlite.store import SQLiteStore
from tests.unit.kernel.store.asking import ALL, delete, events_until, put
from tests.unit.kernel.store.suite import StoreSuite


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orchid.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    store = await SQLiteStore.open(path)
    yield store
    await store.close()


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def files_beside(path: Path) -> list[Path]:
    return sorted(path.parent.iterdir())


def make_foreign(path: Path) -> None:
    db = apsw.Connection(str(path))
    db.execute("CREATE TABLE theirs (x)")
    db.close()


class TestSQLiteStore(StoreSuite):
    """The suite that every backend passes."""


class TestSmallSteps(StoreSuite):
    """The suite again, with every batch, group and stretch so small that all seams show."""

    @pytest.fixture(autouse=True)
    def small_steps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sqlite_tables, "ROWS_PER_INSERT", 2)
        monkeypatch.setattr(sqlite_tables, "ROWS_PER_SWEEP", 3)
        monkeypatch.setattr(sqlite_tables, "EVENTS_PER_REPLAY", 2)
        monkeypatch.setattr(sqlite_writer, "MAX_GROUP", 3)


# Reopening


async def test_the_events_of_a_commit_are_never_split(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the history in the file, a batch ends with a revision, even if that makes it too long."""
    monkeypatch.setattr(sqlite_tables, "EVENTS_PER_REPLAY", 2)
    store = await SQLiteStore.open(path)
    first = await store.commit([Change(key, b"1", ABSENT) for key in "abcde"])
    await put(store, "f", b"1")
    await store.close()

    store = await SQLiteStore.open(path)
    async with aclosing(store.watch(ALL, after=first - 1)) as watch:
        batch = await anext(watch)
    await store.close()

    assert ([event.key for event in batch.events], batch.revision) == ([*"abcde"], first)


async def test_reopened_file_has_everything(path: Path) -> None:
    """Records, history, the mark of compaction and the counter outlive the process."""
    store = await SQLiteStore.open(path)
    await put(store, "a", b"1")
    await put(store, "a", b"2", 2)
    await put(store, "b", b"1")
    await store.compact(3)
    await store.close()

    store = await SQLiteStore.open(path)
    page = await store.read(ALL)
    events = await events_until(store, 4, after=3)
    revision = await put(store, "c", b"1")
    await store.close()

    assert page.records == [Record("a", b"2", 3), Record("b", b"1", 4)]
    assert (page.oldest, page.revision, revision) == (3, 4, 5)
    assert events == [StoreEvent("b", b"1", 4, None, ABSENT)]


async def test_counter_survives_when_the_last_change_is_compacted_away(path: Path) -> None:
    """A revision is never used twice, even if the log has no row of it any more."""
    store = await SQLiteStore.open(path)
    newest = await delete(store, "a", await put(store, "a", b"1"))
    await store.compact(newest)
    await store.close()

    store = await SQLiteStore.open(path)
    assert await store.revision() == newest
    assert await put(store, "a", b"1") == newest + 1
    await store.close()


async def test_deleted_keys_leave_nothing_behind(store: SQLiteStore, path: Path) -> None:
    """After compaction no table holds a trace of a deleted key or a replaced value."""
    revision = await put(store, "secret/a", b"first")
    revision = await put(store, "secret/a", b"second", revision)
    newest = await delete(store, "secret/a", revision)

    await store.compact(newest)
    await store.close()

    with sqlite_file.connect(path, writable=False) as db:
        counts = [
            db.execute("SELECT (SELECT count(*) FROM log), (SELECT count(*) FROM current)").get,
            db.execute("SELECT count(*) FROM replaced").get,
        ]
    db.close()
    assert counts == [(0, 0), 0]


async def test_deleted_range_leaves_nothing_behind(store: SQLiteStore, path: Path) -> None:
    """After compaction no table holds a trace of any key of the range."""
    for key in ("w/1", "w/2", "w/3"):
        await put(store, key, b"secret")
    range_ = DeleteRange(Span.prefix("w/"), await store.revision())
    newest = await store.commit([Change("a", b"", ABSENT)], range_)

    await store.compact(newest)
    await store.close()

    with sqlite_file.connect(path, writable=False) as db:
        tables = ("log", "current", "replaced", "ranges")
        counts = [db.execute(f"SELECT count(*) FROM {table}").get for table in tables]  # noqa: S608 - names from above
    db.close()
    assert counts == [1, 1, 0, 0]


async def test_history_of_a_range_is_read_from_the_file(store: SQLiteStore, path: Path) -> None:
    """After a restart a watcher of the past sees each key deleted once, whatever its span."""
    for key in ("w/1", "w/2", "w/3"):
        await put(store, key, key.encode())
    await store.commit([Change("a", b"", ABSENT)], DeleteRange(Span.prefix("w/"), 4))
    await put(store, "w/2", b"again")
    await store.close()

    store = await SQLiteStore.open(path)
    whole = await events_until(store, 6, after=4)
    part = await events_until(store, 6, after=4, span=Span("w/2", "w/3"))
    await store.close()

    gone = [StoreEvent(f"w/{n}", None, 5, b"w/%d" % n, n + 1) for n in (1, 2, 3)]
    again = StoreEvent("w/2", b"again", 6, None, ABSENT)
    assert whole == [StoreEvent("a", b"", 5, None, ABSENT), *gone, again]
    assert part == [gone[1], again]


async def test_file_from_before_ranges_takes_them(path: Path) -> None:
    """A file that an earlier version made is opened as it is, and can do the same."""
    store = await SQLiteStore.open(path)
    await put(store, "w/1", b"1")
    await store.close()
    with sqlite_file.connect(path) as db:
        db.execute("DROP TABLE ranges")
    db.close()

    store = await SQLiteStore.open(path)
    await put(store, "w/2", b"2")
    revision = await store.commit([Change("a", b"", ABSENT)], DeleteRange(Span.prefix("w/"), 3))

    events = await events_until(store, revision, after=3, span=Span.prefix("w/"))
    assert [(event.key, event.previous) for event in events] == [("w/1", b"1"), ("w/2", b"2")]
    await store.close()


# The file


async def test_only_the_owner_can_read_the_files(store: SQLiteStore, path: Path) -> None:
    """The data holds secrets; the companions of the file are as private as the file."""
    await put(store, "a", b"1")

    modes = {file.name: mode(file) for file in files_beside(path)}

    assert set(modes) >= {"orchid.db", "orchid.db-wal"}
    assert set(modes.values()) == {0o600}


async def test_loose_permissions_are_tightened(path: Path) -> None:
    """A file restored with wide permissions does not stay readable."""
    await (await SQLiteStore.open(path)).close()
    os.chmod(path, 0o644)  # noqa: PTH101 - what this test is about

    await (await SQLiteStore.open(path)).close()

    assert mode(path) == 0o600


async def test_second_store_on_the_same_file_is_refused(store: SQLiteStore, path: Path) -> None:
    """Two owners would each keep a counter; the error names the process that has the file."""
    with pytest.raises(AlreadyInUse, match=str(os.getpid())):
        await SQLiteStore.open(path)

    assert await put(store, "a", b"1") == 2


async def test_another_process_is_refused_too(store: SQLiteStore, path: Path) -> None:
    """The lock holds between processes."""
    program = (
        "import asyncio, sys; from pathlib import Path\n"
        "from orchid.kernel.store.sqlite.store import SQLiteStore\n"
        "asyncio.run(SQLiteStore.open(Path(sys.argv[1])))"
    )

    result = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", program, str(path)],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )

    assert b"AlreadyInUse" in result.stderr


@pytest.mark.parametrize(
    "make", [make_foreign, lambda path: path.write_bytes(b"noise, and no database" * 100)]
)
async def test_foreign_file_is_refused(path: Path, make: Callable[[Path], object]) -> None:
    """Neither noise nor another program's database is taken for our data."""
    make(path)

    with pytest.raises(StoreUnusable, match="not an Orchid data file"):
        await SQLiteStore.open(path)


async def test_unknown_format_is_refused(path: Path) -> None:
    """A file from a later version is left alone, and the message says why."""
    await (await SQLiteStore.open(path)).close()
    db = apsw.Connection(str(path))
    db.execute("PRAGMA user_version = 99")
    db.close()

    with pytest.raises(StoreUnusable, match="format 99"):
        await SQLiteStore.open(path)


async def test_missing_directory_is_a_clear_error(tmp_path: Path) -> None:
    """The path is named in the message."""
    with pytest.raises(StoreUnusable, match=r"nowhere/orchid\.db"):
        await SQLiteStore.open(tmp_path / "nowhere" / "orchid.db")


@pytest.mark.parametrize("version", ["3.40.1", "3.51.2"])
def test_old_sqlite_is_refused(version: str) -> None:
    """Versions that can damage a file are not used."""
    with pytest.raises(StoreUnusable, match=version):
        sqlite_file.check_sqlite(version)
    sqlite_file.check_sqlite("3.51.3")


async def test_commits_are_made_durable(store: SQLiteStore) -> None:
    """The settings that acknowledged commits rest on are really in force."""
    db = store._file.writing

    settings = [db.pragma(name) for name in ("journal_mode", "synchronous", "mmap_size")]

    assert settings == ["wal", 2, 0]


async def test_compaction_goes_on_beyond_one_step(store: SQLiteStore, path: Path) -> None:
    """History of any length is removed in whole, and nothing of it stays in the file for ever."""
    revision = ABSENT
    for n in range(2 * sqlite_tables.ROWS_PER_SWEEP + 10):
        revision = await put(store, "a", b"%d" % n, revision)

    await store.compact(revision)
    await store.close()

    db = apsw.Connection(str(path))
    counting = "SELECT (SELECT count(*) FROM log), (SELECT count(*) FROM replaced)"
    rows = db.execute(counting).get
    db.close()
    assert rows == (1, 0)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are synced and renamed from here on, by name and in order."""
    steps: list[str] = []
    really_sync, really_replace = sqlite_file.sync, Path.replace

    def sync(path: Path) -> None:
        really_sync(path)
        steps.append(f"synced {path.name}")

    def replace(old: Path, new: Path) -> Path:
        steps.append(f"named {old.name}")
        return really_replace(old, new)

    monkeypatch.setattr(sqlite_file, "sync", sync)
    monkeypatch.setattr(Path, "replace", replace)
    return steps


async def test_new_file_is_listed_on_the_disk(path: Path, synced: list[str]) -> None:
    """A power cut must not take the file itself, with all that it holds, out of its directory."""
    store = await SQLiteStore.open(path)
    await store.close()

    assert synced == [f"synced {path.parent.name}"]


async def test_backup_is_on_the_disk_before_it_has_its_name(
    store: SQLiteStore, tmp_path: Path, synced: list[str]
) -> None:
    """The last backup gives way only to one that a power cut does not empty."""
    await store.backup(tmp_path / "backup.db")

    content, name, place = synced
    assert content.removeprefix("synced ") == name.removeprefix("named ")
    assert content.endswith(".partial")
    assert place == f"synced {tmp_path.name}"


# When things fail


async def test_full_disk_refuses_commits_until_there_is_room(store: SQLiteStore) -> None:
    """A commit that finds no room fails clearly; reads and watches go on; later ones succeed."""
    await put(store, "a", b"1")
    db = store._file.writing
    db.execute(f"PRAGMA max_page_count = {db.pragma('page_count')}")

    with pytest.raises(StoreFull, match="no room"):
        await put(store, "big", bytes(1_000_000))
    assert (await store.read(ALL)).records == [Record("a", b"1", 2)]
    db.execute("PRAGMA max_page_count = 1000000")

    assert await put(store, "big", bytes(1_000_000)) == 3
    assert [event.key for event in await events_until(store, 3, after=1)] == ["a", "big"]


async def test_commits_that_came_together_fail_together_when_the_disk_is_full(
    store: SQLiteStore,
) -> None:
    """They share a transaction: none is made, and there is one error for all of them."""
    await put(store, "a", b"1")
    db = store._file.writing
    db.execute(f"PRAGMA max_page_count = {db.pragma('page_count')}")

    with pytest.raises(StoreFull, match="no room"):
        await store.commit_each(
            [[Change("small", b"1", ABSENT)], [Change("big", bytes(1_000_000), ABSENT)]]
        )

    assert (await store.read(ALL)).records == [Record("a", b"1", 2)]


async def test_commit_that_reached_the_disk_unnoticed_is_seen(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the outcome of a commit is unknown, the counter and the watchers follow the file."""
    really_apply = sqlite_tables.apply

    def apply_and_lose_the_answer(*arguments: object) -> sqlite_tables.CommitOutcome:
        really_apply(*arguments)
        monkeypatch.setattr(sqlite_tables, "apply", really_apply)
        raise apsw.IOError("lost")

    monkeypatch.setattr(sqlite_tables, "apply", apply_and_lose_the_answer)
    with pytest.raises(StoreUnavailable):
        await put(store, "a", b"1")

    assert await put(store, "b", b"1") == 3

    assert [event.key for event in await events_until(store, 3, after=1)] == ["a", "b"]


async def test_unforeseen_error_fails_the_commit_not_the_store(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer thread outlives a defect, and its text does not leave the process."""
    monkeypatch.setattr(sqlite_tables, "_held", lambda *_: {}["a detail"])
    with pytest.raises(StoreUnavailable) as caught:
        await put(store, "a", b"1")
    monkeypatch.undo()

    assert "detail" not in str(caught.value)
    assert await put(store, "a", b"1") == 2


async def test_conflict_does_not_harm_its_neighbours_in_a_group(store: SQLiteStore) -> None:
    """Commits in one transaction are checked one by one, in order."""
    results = await asyncio.gather(
        put(store, "a", b"1"),
        put(store, "a", b"2"),
        put(store, "a", b"3", 2),
        delete(store, "a", 3),
        put(store, "a", b"4"),
        store.commit([Change("b", b"1", ABSENT), Change("a", b"5", 2)]),
        return_exceptions=True,
    )

    assert [result for result in results if not isinstance(result, RevisionConflict)] == [
        2,
        3,
        4,
        5,
    ]
    assert isinstance(results[1], RevisionConflict)
    assert isinstance(results[5], RevisionConflict)
    assert results[5].actual == Record("a", b"4", 5)
    assert (await store.read(ALL)).records == [Record("a", b"4", 5)]
    assert (await store.read(ALL, at=3)).records == [Record("a", b"3", 3)]


async def test_a_compaction_that_waits_at_close_ends(store: SQLiteStore) -> None:
    """Closing does not leave a compaction unanswered."""
    for n in range(20):
        await put(store, f"k{n}", b"")
    compacting = asyncio.ensure_future(store.compact(20))
    await asyncio.sleep(0)

    await store.close()

    [result] = await asyncio.gather(compacting, return_exceptions=True)
    assert result is None or isinstance(result, StoreUnavailable)


# Backup


async def test_backup_is_one_moment_of_a_busy_store(store: SQLiteStore, tmp_path: Path) -> None:
    """A copy made among writers opens as a store, private, whole and without a gap."""
    target = tmp_path / "backup.db"
    busy, done = asyncio.Event(), asyncio.Event()

    async def write(name: int) -> None:
        revision = ABSENT
        while not done.is_set():
            revision = await put(store, f"w{name}", b"after %d" % revision, revision)
            if revision >= 50:
                busy.set()

    writing = [asyncio.create_task(write(name)) for name in range(4)]
    await busy.wait()
    await store.backup(target)
    done.set()
    await asyncio.gather(*writing)

    assert mode(target) == 0o600
    copy = await SQLiteStore.open(target)
    page = await copy.read(ALL)
    events = await events_until(copy, page.revision, after=1)
    await copy.close()
    assert [event.revision for event in events] == list(range(2, page.revision + 1))
    assert page.revision >= 50
    assert (await store.read(ALL, at=page.revision)).records == page.records


async def test_failed_backup_leaves_the_last_one(
    store: SQLiteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing half-made takes the place of a good backup, and nothing is left lying about."""
    target = tmp_path / "backup.db"
    await store.backup(target)
    good = target.read_bytes()
    before = files_beside(target)

    def fail(*_: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr(sqlite_file, "_copy_pages", fail)
    with pytest.raises(StoreUnusable, match="no room"):
        await store.backup(target)

    assert target.read_bytes() == good
    assert files_beside(target) == before


async def test_damaged_data_gives_no_backup(store: SQLiteStore, path: Path, tmp_path: Path) -> None:
    """Pages are copied as they are; what cannot be read back is found out now, not when needed."""
    for number in range(100):
        await put(store, f"k{number}", bytes(1_000))
    store._file.writing.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (root,) = (
        store._file.writing.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'log'").get,
    )
    size = store._file.writing.pragma("page_size")
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(bytes(size))

    with pytest.raises(StoreUnusable, match="damaged"):
        await store.backup(tmp_path / "backup.db")

    assert not (tmp_path / "backup.db").exists()


async def test_backup_onto_the_data_itself_is_refused(store: SQLiteStore, path: Path) -> None:
    """The one target that would destroy what it saves."""
    with pytest.raises(ValueError, match="itself"):
        await store.backup(path)
