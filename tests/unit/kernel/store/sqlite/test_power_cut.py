"""Acknowledged writes survive a power cut, which removes everything that was not synced."""

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from orchid.kernel.store.interface import ABSENT, Change
from orchid.kernel.store.sqlite import file as sqlite_file
from orchid.kernel.store.sqlite.store import SQLiteStore
from tests.unit.kernel.store.asking import ALL, put
from tests.unit.kernel.store.sqlite.power_cut import Disk, installed

CUTS = 12


@pytest.fixture
def disk() -> Iterator[Disk]:
    with installed() as disk:
        yield disk


async def lost_in_cuts(disk: Disk, directory: Path) -> int:
    """How many acknowledged records are missing after power cuts between commits."""
    store = await SQLiteStore.open(directory / "orchid.db")
    acknowledged: list[int] = []
    missing = 0
    for n in range(CUTS):
        acknowledged.append(await put(store, f"k{n}", b"%d" % n))
        # Enough to have the write-ahead log brought home now and then.
        filling = [Change(f"f{n}/{m}", bytes(60_000), ABSENT) for m in range(30)]
        acknowledged += [await store.commit(filling)] * len(filling)
        disk.cut(directory, directory / f"cut{n}")
        found = await revisions_in(directory / f"cut{n}" / "orchid.db")
        missing += len(acknowledged) - len(found)
    await store.close()
    return missing


async def revisions_in(path: Path) -> list[int]:
    store = await SQLiteStore.open(path)
    try:
        return [record.revision for record in (await store.read(ALL)).records]
    finally:
        await store.close()


async def test_acknowledged_commits_survive_a_power_cut(disk: Disk, tmp_path: Path) -> None:
    """Whenever the power goes, every commit that was answered is in what the disk has kept."""
    assert await lost_in_cuts(disk, tmp_path) == 0


async def test_cut_takes_what_is_not_synced(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is no ordinary one: with commits that are not synced, the same test finds losses."""
    really_connect = sqlite_file.connect

    def connect(path: Path, *, writable: bool = True) -> apsw.Connection:
        db = really_connect(path, writable=writable)
        db.execute("PRAGMA synchronous = NORMAL")
        return db

    monkeypatch.setattr(sqlite_file, "connect", connect)

    assert await lost_in_cuts(disk, tmp_path) > 0
