"""A store that was moved elsewhere is not served: what ended since would be valid again there."""

import argparse
import asyncio
from pathlib import Path

import pytest

from orchid.assembly.stores import opened_store
from orchid.commands.records import migrate as command
from orchid.kernel.base.clock import SystemClock
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.store.migrate import NotMigrated, mark_moved, migrate
from orchid.kernel.store.sqlite.store import SQLiteStore
from orchid.kernel.terminal.output import Complaint
from tests.api.world import settings

WHERE = "etcd at https://a:2379 with the prefix /orchid, 2026-11-19T08:00:00Z"


async def moved(directory: Path) -> Path:
    """A data directory whose objects were moved."""
    store = await SQLiteStore.open(directory / "orchid.db")
    await mark_moved(store, WHERE)
    await store.close()
    return directory


async def test_a_store_that_was_moved_is_not_opened(tmp_path: Path) -> None:
    """The message says where the objects went, and how to go back."""
    chosen = settings(await moved(tmp_path), store="sqlite")

    with pytest.raises(BadSettings, match=f"moved to {WHERE}.*`orchid migrate --undo`"):
        async with opened_store(chosen, SystemClock()):
            pass


async def test_it_is_not_moved_twice() -> None:
    """A second copy would have what ended in the first one."""
    left = MemoryStore()
    await mark_moved(left, WHERE)

    with pytest.raises(NotMigrated, match=f"moved to {WHERE}"):
        await migrate(left, MemoryStore(), b"sealed:")


def undo(directory: Path, **more: object) -> int:
    nothing = {"target": None, "to_etcd": None, "from_etcd": None}
    return command.run(argparse.Namespace(source=directory, undo=True, **nothing | more))


async def opened(directory: Path) -> None:
    async with opened_store(settings(directory, store="sqlite"), SystemClock()):
        pass


def test_the_way_back_is_explicit(tmp_path: Path) -> None:
    """`--undo` removes the mark, once; it moves nothing."""
    asyncio.run(moved(tmp_path))

    with pytest.raises(Complaint, match="--undo moves nothing"):
        undo(tmp_path, target=tmp_path / "other")
    undo(tmp_path)
    asyncio.run(opened(tmp_path))
    with pytest.raises(Complaint, match="was not moved"):
        undo(tmp_path)
