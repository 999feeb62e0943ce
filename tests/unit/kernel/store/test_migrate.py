"""A store is copied whole, or it is said that it was not."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchid.kernel.store import migrate as migrating
from orchid.kernel.store.etcd.store import EtcdStore
from orchid.kernel.store.interface import (
    LATEST,
    Change,
    Compacted,
    Page,
    Record,
    Revision,
    Span,
    Store,
    StoreUnavailable,
)
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.store.migrate import NotMigrated, Progress, migrate
from orchid.kernel.store.sqlite.store import SQLiteStore
from tests.unit.kernel.store.asking import ALL, delete, put, read_pairs
from tests.unit.kernel.store.etcd_process import running

SEALED = b"sealed:"


@pytest.fixture
async def filled() -> MemoryStore:
    """A store with a past, and with values of all sizes."""
    store = MemoryStore()
    for n in range(300):
        await put(store, f"k/{n:03}", b"%d" % n)
    await delete(store, "k/007", 9)
    await put(store, "k/008", b"changed", 10)
    await put(store, "é/\U0001f600", bytes(range(256)))
    await put(store, "large/1", b"x" * 900_000)
    await put(store, "large/2", b"y" * 900_000)
    await put(store, "empty", b"")
    await put(store, "secret", SEALED + b"secret")
    return store


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[Store]:
    store = await SQLiteStore.open(tmp_path / "orchid.db")
    yield store
    await store.close()


@pytest.fixture
async def etcd() -> AsyncIterator[Store]:
    with running() as cluster:
        await cluster.wait_healthy()
        store = await EtcdStore.open(cluster.urls)
        yield store
        await store.close()


@pytest.mark.system_package("etcd")
async def test_store_goes_to_etcd_and_back(
    filled: MemoryStore, sqlite: Store, etcd: Store, tmp_path: Path
) -> None:
    """After both ways every key and value is what it was, and the digests agree."""
    back = await SQLiteStore.open(tmp_path / "back.db")

    first = await migrate(filled, sqlite, SEALED)
    second = await migrate(sqlite, etcd, SEALED)
    third = await migrate(etcd, back, SEALED)

    pairs = await read_pairs(filled)
    assert await read_pairs(sqlite) == await read_pairs(etcd) == await read_pairs(back) == pairs
    assert first.digest == second.digest == third.digest
    assert first.records == second.records == third.records == len(pairs)
    assert first.sealed == second.sealed == third.sealed == 1
    await back.close()


async def test_old_revisions_are_refused_in_the_copy(filled: MemoryStore) -> None:
    """A client that comes with a revision of the source is sent to list again."""
    target = MemoryStore()

    done = await migrate(filled, target, SEALED)

    assert done.target == await target.revision() == (await target.read(ALL)).oldest
    with pytest.raises(Compacted):
        await anext(target.watch(ALL, after=done.target - 1))


async def test_empty_store_is_copied_too() -> None:
    """Nothing to copy is not an error."""
    done = await migrate(MemoryStore(), MemoryStore(), SEALED)

    assert (done.records, done.target) == (0, 1)


async def test_target_with_records_is_left_alone(filled: MemoryStore) -> None:
    """Nothing is mixed and nothing overwritten."""
    target = MemoryStore()
    await put(target, "theirs", b"1")

    with pytest.raises(NotMigrated, match="not empty"):
        await migrate(filled, target, SEALED)

    assert (await target.read(ALL)).records == [Record("theirs", b"1", 2)]


async def test_progress_is_reported_to_the_end(
    filled: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step counts up and ends with everything done."""
    monkeypatch.setattr(migrating, "RECORDS_PER_READ", 100)
    reports: list[Progress] = []

    await migrate(filled, MemoryStore(), SEALED, report=reports.append)

    records = len((await filled.read(ALL)).records)
    for step in ("count", "copy", "verify"):
        numbers = [progress.done for progress in reports if progress.step == step]
        assert numbers == sorted(numbers)
        assert len(numbers) > 2
        assert numbers[-1] == records
    assert [each.step for each in reports] == sorted(
        (each.step for each in reports), key=["count", "copy", "verify"].index
    )


class Written(MemoryStore):
    """Somebody else writes to it, whenever a page behind the first is read."""

    async def read(self, span: Span, *, at: Revision = LATEST, limit: int = 0) -> Page:
        page = await super().read(span, at=at, limit=limit)
        if span.start:
            await put(self, f"new/{await self.revision()}", b"")
        return page


class Forgetful(MemoryStore):
    """Loses a record of every commit."""

    async def commit(self, changes: list[Change]) -> Revision:
        return await super().commit(changes[1:])


class Garbling(MemoryStore):
    """Changes a value on the way."""

    async def commit(self, changes: list[Change]) -> Revision:
        return await super().commit([Change(changes[0].key, b"?", 0), *changes[1:]])


@pytest.mark.parametrize("target", [Forgetful, Garbling, Written])
async def test_copy_that_is_not_one_is_noticed(
    filled: MemoryStore, target: type[MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lost, changed and added records are all reported as a failure."""
    monkeypatch.setattr(migrating, "RECORDS_PER_READ", 100)

    with pytest.raises(NotMigrated):
        await migrate(filled, target(), SEALED)


async def test_source_that_moves_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that the copy may have missed makes the copy worthless."""
    monkeypatch.setattr(migrating, "RECORDS_PER_READ", 2)
    source = Written()
    for n in range(5):
        await put(source, f"k{n}", b"")

    with pytest.raises(NotMigrated, match="source"):
        await migrate(source, MemoryStore(), SEALED)


async def test_the_error_of_a_failed_store_is_passed_on(filled: MemoryStore) -> None:
    """The store's own error comes through."""
    target = MemoryStore()
    await target.close()

    with pytest.raises(StoreUnavailable):
        await migrate(filled, target, SEALED)
