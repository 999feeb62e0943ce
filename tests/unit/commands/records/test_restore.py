"""`orchid restore` on files: what it leaves as it is, and what must not come back."""

import asyncio
import json
from pathlib import Path

import pytest

from orchid import cli
from orchid.commands.records.backup import CHECKPOINT, PRIVATE, PUBLIC, REVOCATIONS
from orchid.features.ledger.status import keep_newest
from orchid.kernel.store.interface import ABSENT, Change, Span
from orchid.kernel.store.sqlite.file import DATABASE
from orchid.kernel.store.sqlite.store import SQLiteStore
from tests.unit.features.ledger.logs import grow

FILES = (CHECKPOINT, REVOCATIONS, *PUBLIC, *PRIVATE)
OBJECT = json.dumps({"metadata": {"uid": "1"}}).encode()
MAPS = "core/configmaps/orch-system/"


def written(path: Path, *keys: str, entries: int = 0, kept: Path | None = None) -> Path:
    """A data file with some objects, and a ledger with so many entries."""

    async def run() -> None:
        store = await SQLiteStore.open(path)
        for key in keys:
            await store.commit([Change(key, OBJECT, ABSENT)])
        await grow(store, 0, entries)
        if kept is not None:
            await keep_newest(store, kept)
        await store.close()

    asyncio.run(run())
    return path


def keys_of(path: Path) -> list[str]:
    async def run() -> list[str]:
        store = await SQLiteStore.open(path)
        try:
            return [one.key for one in (await store.read(Span.prefix("core/"))).records]
        finally:
            await store.close()

    return asyncio.run(run())


def restore(source: Path, data: Path, *flags: str) -> int:
    return cli.main(["restore", str(source), "--data-dir", str(data), *flags])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory."""
    made = tmp_path / "data"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A backup of everything."""
    made = tmp_path / "saved"
    made.mkdir(mode=0o700)
    written(made / DATABASE)
    for name in FILES:
        file = made / name
        file.write_text("" if name == REVOCATIONS else "saved")
        file.chmod(0o600)
    return made


def test_files_that_are_there_stay_as_they_are(saved: Path, data: Path) -> None:
    """They are newer than the backup: keys that were replaced since, checkpoints, revocations."""
    for name in FILES:
        (data / name).write_text("" if name == REVOCATIONS else "newer")
        (data / name).chmod(0o600)

    assert restore(saved, data) == 0

    found = {name: (data / name).read_text() for name in FILES}
    assert found == {**dict.fromkeys(FILES, "newer"), REVOCATIONS: ""}


def test_files_that_are_lost_come_from_the_backup(saved: Path, data: Path) -> None:
    """For their owner alone."""
    assert restore(saved, data) == 0

    assert (data / "ca.key").read_text() == "saved"
    assert {(data / name).stat().st_mode & 0o777 for name in FILES} == {0o600}


@pytest.mark.parametrize(
    ("flags", "is_accepted"),
    [
        (("--accept-ledger",), True),
        (("--accept-ledger", "--dry-run"), False),
        ((), False),
    ],
)
def test_a_ledger_is_accepted_by_the_restore_itself(
    tmp_path: Path, data: Path, flags: tuple[str, ...], is_accepted: bool
) -> None:
    """Not by a dry run: the server must still detect a rollback that nobody announced."""
    written(data / DATABASE, entries=5, kept=data / CHECKPOINT)
    backup = written(tmp_path / "copy.db", entries=3)

    assert restore(backup, data, *flags) == 0

    assert (data / CHECKPOINT).exists() is not is_accepted


def test_editions_of_bundles_do_not_come_back(tmp_path: Path, data: Path) -> None:
    """Clients may have later ones, and would refuse or miss a sequence that goes back.

    Also the longest lifetime of tokens, which may have grown since. Other objects return.
    """
    names = ("trust.web.1795063733", "token-lifetimes", "trust.web", "settings")
    backup = written(tmp_path / "copy.db", *(f"{MAPS}{name}" for name in names))

    assert restore(backup, data) == 0

    assert keys_of(data / DATABASE) == [f"{MAPS}settings", f"{MAPS}trust.web"]


def test_lines_of_the_revocations_that_cannot_be_read_are_reported(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The restore may revive what they revoked."""
    backup = written(tmp_path / "copy.db")
    (data / REVOCATIONS).write_text("garbage\n")

    assert restore(backup, data) == 0

    assert "1 lines cannot be read" in capsys.readouterr().err


def test_revocations_that_cannot_be_opened_stop_the_restore(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing was changed, and the file is named."""
    backup = written(tmp_path / "copy.db")
    (data / REVOCATIONS).mkdir()

    assert restore(backup, data) == 1

    assert str(data / REVOCATIONS) in capsys.readouterr().err
    assert not (data / DATABASE).exists()
