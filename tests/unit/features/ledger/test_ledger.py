"""`orchid ledger accept`: only a log that was rolled back needs it."""

import asyncio
from pathlib import Path

import pytest

from orchid import cli
from orchid.features.ledger.status import FILE, keep_newest
from orchid.kernel.store.interface import ABSENT, Change
from orchid.kernel.store.migrate import MOVED
from orchid.kernel.store.sqlite.store import SQLiteStore
from tests.unit.features.ledger.logs import grow

SEEN = 5  # entries


def prepare(data: Path, stored: int, *extra: Change, first: int = 0) -> None:
    """A server that has seen so many entries of a log, and a store with another number."""

    async def run() -> None:
        seen = await SQLiteStore.open(data / "seen.db")
        await grow(seen, 0, SEEN)
        await keep_newest(seen, data / FILE)
        await seen.close()
        store = await SQLiteStore.open(data / "orchid.db")
        await grow(store, first, stored)
        if extra:
            await store.commit(extra)
        await store.close()

    asyncio.run(run())


def accept(data: Path) -> int:
    return cli.main(["ledger", "accept", "--yes", "--data-dir", str(data)])


@pytest.mark.parametrize("stored", [SEEN, SEEN + 1, 300])
def test_a_log_that_was_not_rolled_back_is_not_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stored: int
) -> None:
    """The checkpoint stays: without it, the server could not detect the next time."""
    prepare(tmp_path, stored)

    code = accept(tmp_path)

    assert code == 1
    assert "nothing was rolled back" in capsys.readouterr().err
    assert (tmp_path / FILE).exists()


@pytest.mark.parametrize(
    ("stored", "first"), [(SEEN - 1, 0), (SEEN + 1, 1), (0, 0)], ids=["shorter", "other", "empty"]
)
def test_a_log_that_was_rolled_back_or_rewritten_is_accepted(
    tmp_path: Path, stored: int, first: int
) -> None:
    """The checkpoint gets another name."""
    prepare(tmp_path, stored, first=first)

    assert accept(tmp_path) == 0
    assert not (tmp_path / FILE).exists()


def test_a_store_that_was_moved_says_nothing(tmp_path: Path) -> None:
    """The log is elsewhere, and no server answers: the operator decides."""
    prepare(tmp_path, SEEN, Change(MOVED, b"etcd", ABSENT))

    assert accept(tmp_path) == 0


def test_a_damaged_store_says_nothing(tmp_path: Path) -> None:
    """It begins with no checkpoint."""
    prepare(tmp_path, SEEN)
    (tmp_path / "orchid.db").write_bytes(b"garbage" * 1000)

    assert accept(tmp_path) == 0
