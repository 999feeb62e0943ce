"""`orchid backup`: what is copied to which directory, and what is refused before."""

import asyncio
import errno
import os
from pathlib import Path

import apsw
import pytest

from orchid import cli
from orchid.commands.records.backup import CHECKPOINT, ENCRYPTION, PRIVATE, PUBLIC, REVOCATIONS
from orchid.kernel.credentials import files
from orchid.kernel.store.migrate import mark_moved
from orchid.kernel.store.sqlite import file
from orchid.kernel.store.sqlite.file import DATABASE
from orchid.kernel.store.sqlite.store import SQLiteStore
from tests.unit.commands.records.test_restore import MAPS, keys_of, written

FILES = (CHECKPOINT, REVOCATIONS, *PUBLIC, *PRIVATE)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with every file."""
    made = tmp_path / "data"
    made.mkdir(mode=0o700)
    written(made / DATABASE, f"{MAPS}a", f"{MAPS}b")
    for name in FILES:
        (made / name).write_text(f"text of {name}")
        (made / name).chmod(0o600)
    return made


def backup(data: Path, *words: object) -> int:
    return cli.main(["backup", *map(str, words), "--data-dir", str(data)])


def names_in(directory: Path) -> set[str]:
    return {file.name for file in directory.iterdir()}


def test_a_copy_has_the_objects_alone(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For its owner; the other files of a restore are named."""
    target = tmp_path / "copies" / "copy.db"
    target.parent.mkdir()

    assert backup(data, target) == 0

    assert names_in(target.parent) == {"copy.db"}
    assert keys_of(target) == [f"{MAPS}a", f"{MAPS}b"]
    assert target.stat().st_mode & 0o777 == 0o600
    printed = capsys.readouterr()
    assert ": 2 objects at revision " in printed.out
    assert all(name in printed.err for name in FILES)
    assert "orchid backup --all DIR saves everything" in printed.err


def test_the_encryption_key_is_beside_the_copy_if_it_is_named(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "copy.db"

    assert backup(data, target, "--with-encryption-key") == 0

    key = tmp_path / f"copy.db.{ENCRYPTION}"
    assert key.read_text() == f"text of {ENCRYPTION}"
    assert key.stat().st_mode & 0o777 == 0o600
    assert "can read the secrets" in capsys.readouterr().out


def test_everything_is_in_one_directory_or_the_keys_apart(data: Path, tmp_path: Path) -> None:
    whole, rest, keys = (tmp_path / name for name in ("whole", "rest", "keys"))

    assert backup(data, "--all", whole) == 0
    assert backup(data, "--all", rest, "--keys", keys) == 0

    assert names_in(whole) == {DATABASE, *FILES}
    assert names_in(keys) == set(PRIVATE)
    assert names_in(rest) == {DATABASE, CHECKPOINT, REVOCATIONS, *PUBLIC}
    assert {file.read_text() for file in keys.iterdir()} == {f"text of {one}" for one in PRIVATE}
    files = [*whole.iterdir(), *keys.iterdir()]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert {folder.stat().st_mode & 0o777 for folder in (whole, rest, keys)} == {0o700}


def test_files_that_are_missing_are_named(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that are saved are not."""
    for name in ("ledger.key", REVOCATIONS):
        (data / name).unlink()

    assert backup(data, "--all", tmp_path / "whole") == 0

    assert f"and so not saved: ledger.key, {REVOCATIONS}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("copy.db", "--keys", "keys"), "--keys needs --all"),
        (("folder",), "is a directory; name a file in it"),
        (("--all", "folder"), "folder is not empty"),
        (("--all", "whole", "--keys", "folder"), "folder is not empty"),
        (("--all", "file/whole"), "Not a directory"),
    ],
)
def test_each_refusal_comes_before_anything_is_written(
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    text: str,
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/other").write_text("")
    (tmp_path / "file").write_text("")
    paths = [word if word.startswith("--") else tmp_path / word for word in words]

    assert backup(data, *paths) == 2

    assert text in capsys.readouterr().err
    assert names_in(tmp_path / "folder") == {"other"}
    assert not list(tmp_path.rglob("whole/*"))
    assert not list(tmp_path.rglob("copy.db*"))


def test_a_directory_without_a_database_has_nothing_to_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert backup(tmp_path, tmp_path / "copy.db") == 2
    assert "say where it is with --data-dir" in capsys.readouterr().err


def test_objects_that_were_moved_are_not_copied(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The store that they moved to has later ones."""

    async def move() -> None:
        store = await SQLiteStore.open(data / DATABASE)
        await mark_moved(store, "etcd at a")
        await store.close()

    asyncio.run(move())

    assert backup(data, tmp_path / "copy.db") == 2
    assert cli.main(["restore", str(data / DATABASE), "--data-dir", str(data)]) == 2
    assert capsys.readouterr().err.count("etcd at a") == 2
    assert not (tmp_path / "copy.db").exists()


def test_a_full_disk_is_reported_as_full(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """SQLite calls it "not an error"; nothing is left of the copy."""

    def full(*_: object) -> None:
        raise apsw.FullError("not an error")

    monkeypatch.setattr(file, "_copy_pages", full)

    assert backup(data, tmp_path / "copy.db") == 1

    assert names_in(tmp_path) == {data.name}
    printed = capsys.readouterr().err
    assert (
        printed == f"orchid: cannot write the backup {tmp_path}/copy.db: No space left on device\n"
    )


@pytest.mark.parametrize("words", [("--all",), ("--with-encryption-key",)])
def test_a_file_that_cannot_be_copied_is_named(
    data: Path,
    tmp_path: Path,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "write_private", full)

    assert backup(data, *words, tmp_path / "copy") == 1

    printed = capsys.readouterr().err
    assert printed.startswith(f"orchid: cannot copy {data}/")
    assert f" to {tmp_path}/copy" in printed
    assert printed.endswith(": No space left on device\n")
