"""A store names its format and the version that wrote it; a newer format is refused by name."""

import argparse
import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import apsw
import msgspec
import pytest

from orchid.assembly.settings import read
from orchid.assembly.stores import opened_store
from orchid.commands.records import backup, restore
from orchid.kernel.base.clock import SystemClock
from orchid.kernel.base.version import __version__
from orchid.kernel.settings.checking import check
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.store import format as store_format
from orchid.kernel.store.etcd.store import EtcdStore
from orchid.kernel.store.interface import ABSENT, Change, NewerFormat, Span, Store, StoreUnusable
from orchid.kernel.store.sqlite import restore as sqlite_restore
from orchid.kernel.store.sqlite.store import SQLiteStore
from orchid.kernel.terminal.output import Complaint
from tests.unit.kernel.store.etcd_process import running

NEWER = b'{"format":2,"writtenBy":"1.4.0","needs":"1.3.0","hint":"a field of a later version"}'
REFUSAL = (
    "has format 2, written by Orchid 1.4.0: it needs Orchid 1.3.0 or later. "
    f"This is Orchid {__version__}, which knows formats up to 1"
)

Opener = Callable[[], Awaitable[Store]]


@pytest.fixture(params=["sqlite", pytest.param("etcd", marks=pytest.mark.system_package("etcd"))])
async def opener(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opener]:
    """Opens the same store each time it is called."""
    if request.param == "sqlite":
        yield lambda: SQLiteStore.open(tmp_path / "orchid.db")
        return
    with running() as cluster:
        await cluster.wait_healthy()
        yield lambda: EtcdStore.open(cluster.urls)


async def put(opener: Opener, value: bytes) -> None:
    store = await opener()
    await store.commit([Change(store_format.KEY, value, ABSENT)])
    await store.close()


async def test_newer_format_is_refused_with_the_version_that_is_needed(opener: Opener) -> None:
    """On every store, before anything is read or written."""
    await put(opener, NEWER)

    with pytest.raises(NewerFormat) as refused:
        await opener()

    assert str(refused.value).endswith(REFUSAL)


async def test_damaged_record_is_refused(opener: Opener) -> None:
    """A format that cannot be read is not taken for the first."""
    await put(opener, b"{}x")

    with pytest.raises(StoreUnusable, match=r"its record ~server/format cannot be read"):
        await opener()


async def test_record_of_the_same_format_by_a_later_version_is_accepted(opener: Opener) -> None:
    """A later version of one format writes what this one reads."""
    await put(opener, b'{"format":1,"writtenBy":"1.4.0","needs":"0.1.0"}')

    await (await opener()).close()


async def stored(path: Path) -> dict[str, bytes]:
    store = await SQLiteStore.open(path / "orchid.db")
    page = await store.read(Span.prefix("~server/"))
    await store.close()
    return {record.key: record.value for record in page.records}


async def started(path: Path, **given: str) -> int:
    """Open the store of a server, and close it; return its revision."""
    settings = check(read(None, {"data-dir": str(path), **given}))
    async with opened_store(settings, SystemClock()) as store:
        return await store.revision()


async def test_server_records_naming_and_version_in_its_first_commit(tmp_path: Path) -> None:
    """A second start of the same version writes nothing."""
    first = await started(tmp_path)
    second = await started(tmp_path)

    records = await stored(tmp_path)
    assert first == second
    assert records["~server/naming"] == b"orch"
    assert json.loads(records[store_format.KEY]) == {
        "format": 1,
        "writtenBy": __version__,
        "needs": "0.1.0",
    }


async def test_another_version_of_the_same_format_takes_its_place(tmp_path: Path) -> None:
    """After an upgrade, and after a downgrade, the record names the version that started last."""
    await put(
        lambda: SQLiteStore.open(tmp_path / "orchid.db"),
        b'{"format":1,"writtenBy":"9.0.0","needs":"0.1.0"}',
    )

    await started(tmp_path)

    assert json.loads((await stored(tmp_path))[store_format.KEY])["writtenBy"] == __version__


async def test_refused_naming_leaves_the_record_unchanged(tmp_path: Path) -> None:
    """A server that does not start has not written."""
    await started(tmp_path)
    before = await stored(tmp_path)

    with pytest.raises(BadSettings, match="begun with orch"):
        await started(tmp_path, naming="kubernetes")

    assert await stored(tmp_path) == before


async def test_server_does_not_start_on_a_newer_format(tmp_path: Path) -> None:
    """The sentence is the error of the start."""
    await put(lambda: SQLiteStore.open(tmp_path / "orchid.db"), NEWER)

    with pytest.raises(BadSettings) as refused:
        await started(tmp_path)

    assert str(refused.value) == (f"the store cannot be opened: {tmp_path / 'orchid.db'} {REFUSAL}")


def change_header(path: Path, number: int) -> None:
    db = apsw.Connection(str(path))
    db.execute(f"PRAGMA user_version = {number}")
    db.close()


async def test_newer_tables_are_refused_by_the_number_in_the_header(tmp_path: Path) -> None:
    """The record of the version that changed them still names the version that is needed."""
    path = tmp_path / "orchid.db"
    await put(lambda: SQLiteStore.open(path), NEWER.replace(b'"format":2', b'"format":1'))
    change_header(path, 7)

    with pytest.raises(NewerFormat, match=r"has format 7, .* needs Orchid 1\.3\.0 or later"):
        await SQLiteStore.open(path)


async def test_tables_that_cannot_be_read_are_refused_as_well(tmp_path: Path) -> None:
    """Without the record, the version that is needed is not known; nothing is changed."""
    path = tmp_path / "orchid.db"
    await (await SQLiteStore.open(path)).close()
    change_header(path, 7)
    db = apsw.Connection(str(path))
    db.execute("ALTER TABLE current RENAME TO present")
    db.close()

    with pytest.raises(NewerFormat, match="it needs a later version of Orchid"):
        await SQLiteStore.open(path)
    with pytest.raises(NewerFormat, match="it needs a later version of Orchid"):
        sqlite_restore.inspect(path)


def newer_directory(tmp_path: Path) -> Path:
    """A data directory of a later version."""
    data = tmp_path / "data"
    data.mkdir()
    asyncio.run(put(lambda: SQLiteStore.open(data / "orchid.db"), NEWER))
    return data


@pytest.mark.parametrize("flags", [["{target}"], ["{target}", "--all"]])
def test_backup_of_a_newer_format_writes_nothing(tmp_path: Path, flags: list[str]) -> None:
    """A copy that this version has not understood would be no backup."""
    parser = argparse.ArgumentParser()
    backup.configure(parser)
    data, target = newer_directory(tmp_path), tmp_path / "copy"
    words = [word.format(target=target) for word in flags]

    with pytest.raises(Complaint) as refused:
        backup.run(parser.parse_args([*words, "--data-dir", str(data)]))

    assert str(refused.value).endswith(REFUSAL)
    assert not target.exists()


@pytest.mark.parametrize("flags", [[], ["--dry-run"]])
def test_restore_of_a_newer_format_changes_nothing(tmp_path: Path, flags: list[str]) -> None:
    """The data directory stays as it was."""
    parser = argparse.ArgumentParser()
    restore.configure(parser)
    source, target = newer_directory(tmp_path) / "orchid.db", tmp_path / "target"

    with pytest.raises(Complaint) as refused:
        restore.run(parser.parse_args([str(source), *flags, "--data-dir", str(target)]))

    assert str(refused.value).endswith(REFUSAL)
    assert not target.exists()


def test_format_needs_no_later_version_than_this_one() -> None:
    """A new format raises the version that it needs; the record is written as documented."""
    needs, this = (tuple(map(int, v.split("."))) for v in (store_format.NEEDS, __version__))

    assert needs <= this
    assert msgspec.json.encode(store_format.CURRENT) == (
        b'{"format":%d,"writtenBy":"%b","needs":"%b"}'
        % (store_format.FORMAT, __version__.encode(), store_format.NEEDS.encode())
    )
