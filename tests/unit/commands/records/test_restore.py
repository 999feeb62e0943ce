"""`orchid restore` on files: what it leaves as it is, and what must not come back."""

import asyncio
import json
from pathlib import Path

import pytest

from orchid import cli
from orchid.commands.records import revived
from orchid.commands.records.backup import CHECKPOINT, ENCRYPTION, PRIVATE, PUBLIC, REVOCATIONS
from orchid.features.ledger.status import keep_newest
from orchid.features.revoking import revocation_file
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


def stored(path: Path, objects: dict[str, str]) -> Path:
    """A data file with objects: their keys and uids."""

    async def run() -> None:
        store = await SQLiteStore.open(path)
        for key, uid in objects.items():
            value = b'{"metadata":{"name":"x","uid":"%b"}}' % uid.encode()
            await store.commit([Change(key, value, ABSENT)])
        await store.close()

    asyncio.run(run())
    return path


REVOKED, ACCOUNTS = revived.REVOKED, revived.ACCOUNTS


def lines_of(data: Path) -> set[str]:
    return set(revocation_file.read(data / REVOCATIONS))


@pytest.mark.parametrize(
    ("noted", "in_place", "kept", "reported"),
    [
        ({"r": "1"}, {}, {"r"}, "r"),
        ({}, {"r": "1"}, {"r"}, "r"),
        ({"r": "1"}, {"r": "1", "s": "2"}, {"r", "s"}, "s, r"),
        ({"saved": "0"}, {"saved": "0"}, {"saved"}, ""),
        ({"saved": "9"}, {}, {"saved"}, "saved"),
    ],
)
def test_revocations_of_both_places_are_kept_and_those_of_later_are_reported(  # noqa: PLR0917 -- what is where
    tmp_path: Path,
    data: Path,
    capsys: pytest.CaptureFixture[str],
    noted: dict[str, str],
    in_place: dict[str, str],
    kept: set[str],
    reported: str,
) -> None:
    """The file, and the database that is replaced: a crash may be between them."""
    backup = stored(tmp_path / "copy.db", {f"{REVOKED}saved": "0"})
    stored(data / DATABASE, {f"{REVOKED}{name}": uid for name, uid in in_place.items()})
    lines = [
        revocation_file.line(f"{REVOKED}{name}", b'{"metadata":{"uid":"%b"}}' % uid.encode())
        for name, uid in noted.items()
    ]
    revocation_file.write(data / REVOCATIONS, lines)

    assert restore(backup, data) == 0

    assert lines_of(data) == {f"{REVOKED}{name}" for name in kept}
    printed = capsys.readouterr()
    text = f"revocations created since, which the server keeps: {reported}\n"
    assert (text in printed.out) is bool(reported)
    assert "are not known" not in printed.err


def test_without_the_file_revocations_are_unknown(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backup = stored(tmp_path / "copy.db", {})

    assert restore(backup, data) == 0

    assert "revocations created after the backup are not known" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("which", "revoked"), [("all", {"ci/old", "ci/same"}), ("deleted", {"ci/old"}), ("", set())]
)
def test_tokens_are_revoked_of_all_accounts_or_of_those_that_come_back(
    tmp_path: Path, data: Path, which: str, revoked: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Not by a dry run."""
    backup = stored(tmp_path / "copy.db", {f"{ACCOUNTS}ci/old": "1", f"{ACCOUNTS}ci/same": "2"})
    stored(data / DATABASE, {f"{ACCOUNTS}ci/same": "2"})
    flags = ("--revoke-tokens", which) if which else ()

    assert restore(backup, data, *flags, "--dry-run") == 0
    assert not (data / REVOCATIONS).exists()
    assert keys_of(data / DATABASE) == [f"{ACCOUNTS}ci/same"]
    assert restore(backup, data, *flags) == 0

    found = revocation_file.read(data / REVOCATIONS).values() if revoked else ()
    accounts = [json.loads(value)["spec"]["account"] for value in found]
    assert {f"{one['namespace']}/{one['name']}" for one in accounts} == revoked
    printed = capsys.readouterr()
    assert printed.out.count("deleted after the backup, and valid again:") == 2
    assert "  service accounts, with their tokens: ci/old\n" in printed.out
    dry, done = ("when the server runs, orchid revoke account/NAMESPACE/NAME",) * 2
    assert (dry in printed.err) == (not which)
    assert printed.err.count(f"--revoke-tokens deleted, or, {dry}") == (not which)
    assert printed.err.count(f"these accounts: {done}") == (not which)


def test_deleted_accounts_are_unknown_without_a_database_in_place(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backup = stored(tmp_path / "copy.db", {f"{ACCOUNTS}ci/old": "1"})

    assert restore(backup, data, "--revoke-tokens", "deleted") == 2
    assert not (data / DATABASE).exists()
    assert "use --revoke-tokens all" in capsys.readouterr().err
    assert restore(backup, data, "--revoke-tokens", "all") == 0
    assert len(lines_of(data)) == 1
    revoked = capsys.readouterr().err
    assert "which credentials were deleted after the backup is not known" in revoked
    assert "are valid until they expire" not in revoked
    (data / DATABASE).unlink()
    assert restore(backup, data) == 0
    assert (
        "are valid until they expire; --revoke-tokens all revokes them" in capsys.readouterr().err
    )


def test_keys_and_certificates_of_later_are_named(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of the backup are not."""
    common = {f"{revived.KEYS}tokens-1": "1", f"{revived.ISSUED}a1": "2"}
    backup = stored(tmp_path / "copy.db", common)
    later = {f"{revived.KEYS}tokens-2": "3", f"{revived.ISSUED}b2": "4"}
    stored(data / DATABASE, {**common, **later})

    assert restore(backup, data, "--dry-run") == 0

    out = capsys.readouterr().out
    assert out.startswith("nothing is restored: the backup is whole and has 2 objects\n")
    assert "keys created after the backup, whose signatures are refused: tokens-2\n" in out
    assert "certificates issued after the backup, kept in the inventory: b2\n" in out


def test_keys_that_were_saved_apart_are_restored(
    tmp_path: Path, data: Path, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the key of a single copy, from beside it."""
    apart = tmp_path / "apart"
    apart.mkdir()
    for name in PRIVATE:
        (saved / name).rename(apart / name)

    assert restore(saved, data, "--keys", str(apart)) == 0

    assert {name: (data / name).read_text() for name in FILES} == {
        **dict.fromkeys(FILES, "saved"),
        REVOCATIONS: "",
    }
    other = tmp_path / "other"
    copy = written(tmp_path / "copy.db")
    (tmp_path / f"copy.db.{ENCRYPTION}").write_text("beside")
    (tmp_path / f"copy.db.{ENCRYPTION}").chmod(0o600)
    assert restore(copy, other) == 0
    assert (other / ENCRYPTION).read_text() == "beside"
    assert {file.name for file in other.iterdir()} >= {DATABASE, ENCRYPTION}
    assert other.stat().st_mode & 0o777 == 0o700
    assert "restored 0 objects; the next revision is " in capsys.readouterr().out


def test_what_was_there_is_kept_aside(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backup = stored(tmp_path / "copy.db", {f"{MAPS}a": "1"})
    stored(data / DATABASE, {f"{MAPS}b": "1"})

    assert restore(backup, data) == 0

    aside = capsys.readouterr().out.partition("what was there is now ")[2].split("\n")[0]
    assert keys_of(Path(aside)) == [f"{MAPS}b"]
    assert keys_of(data / DATABASE) == [f"{MAPS}a"]


def test_a_backup_that_is_missing_is_named(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also in a directory."""
    assert restore(tmp_path / "none.db", data) == 2
    assert restore(tmp_path, data) == 2
    assert capsys.readouterr().err.count("there is no file") == 2
