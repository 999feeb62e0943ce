"""`orchid migrate`: the two sides, the mark on the source, and what is refused. No etcd runs."""

import json
from pathlib import Path

import pytest

from orchid import cli
from orchid.commands.records import migrate
from orchid.commands.records.backup import ENCRYPTION, REVOCATIONS
from orchid.kernel.store.interface import Store
from orchid.kernel.store.sqlite.file import DATABASE
from orchid.kernel.store.sqlite.store import SQLiteStore
from orchid.kernel.terminal.output import Complaint
from tests.unit.commands.records.test_restore import MAPS, keys_of, written

ETCD = "https://root:secret@a:2379,https://b:2379"


@pytest.fixture(autouse=True)
def etcd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data file in the place of etcd."""
    path = tmp_path / "etcd.db"

    async def opened(_arguments: object) -> Store:
        return await SQLiteStore.open(path)

    monkeypatch.setattr(migrate, "_etcd", opened)
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    made = tmp_path / "source"
    made.mkdir(mode=0o700)
    written(made / DATABASE, f"{MAPS}a", f"{MAPS}b")
    return made


def moved(*words: object) -> int:
    return cli.main(["migrate", *map(str, words)])


def test_objects_move_to_etcd_and_the_source_is_marked(
    source: Path, etcd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The name of etcd has no password."""
    assert moved("--from", source, "--to-etcd", ETCD) == 0

    assert keys_of(etcd) == [f"{MAPS}a", f"{MAPS}b"]
    printed = capsys.readouterr().out
    assert "moved 2 objects (SHA-256 " in printed
    assert f"does not start with {source.resolve() / DATABASE} any more" in printed
    assert "sealed" not in printed

    assert moved("--from", source, "--to-etcd", ETCD) == 1
    assert (
        "etcd at https://a:2379,https://b:2379 with the prefix /orchid" in capsys.readouterr().err
    )


def test_objects_move_back(source: Path, etcd: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / "data"
    written(etcd, f"{MAPS}c")

    assert moved("--from-etcd", ETCD, "--to", target) == 0

    assert keys_of(target / DATABASE) == [f"{MAPS}c"]
    assert target.stat().st_mode & 0o777 == 0o700


def test_a_source_without_objects_is_refused(
    etcd: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The prefix was mistyped; it is not marked, and the right one can follow."""
    target = tmp_path / "new"

    assert moved("--from-etcd", ETCD, "--etcd-prefix", "/mistyped", "--to", target) == 1
    assert "with the prefix /mistyped has no objects\n" in capsys.readouterr().err
    assert keys_of(etcd) == []

    written(etcd, f"{MAPS}c")
    assert moved("--from-etcd", ETCD, "--to", target) == 0


def test_a_target_with_objects_is_refused(
    source: Path, etcd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the source is not marked."""
    written(etcd, f"{MAPS}c")

    assert moved("--from", source, "--to-etcd", ETCD) == 1
    assert moved("--from", source, "--undo") == 1
    assert "was not moved" in capsys.readouterr().err


def test_a_source_is_served_again_after_undo(
    source: Path, etcd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of either side, once."""
    assert moved("--from", source, "--to-etcd", ETCD) == 0
    assert moved("--from", source, "--undo") == 0
    assert "is valid again there" in capsys.readouterr().out
    assert moved("--from", source, "--undo") == 1
    assert moved("--from-etcd", ETCD, "--undo") == 1
    assert "etcd at https://a:2379,https://b:2379" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--from", "source", "--to", "other"), "one side must be"),
        (("--from-etcd", ETCD, "--to-etcd", ETCD), "one side must be"),
        (("--from", "source"), "one side must be"),
        (("--from-etcd", ETCD), "one side must be"),
        (("--from", "source", "--undo", "--to", "other"), "--undo moves nothing"),
        (("--from", "source", "--undo", "--to-etcd", ETCD), "--undo moves nothing"),
        (("--from", "other", "--to-etcd", ETCD), "there is no"),
        (("--from", "other", "--undo"), "there is no"),
    ],
)
def test_each_refusal_of_the_flags(
    source: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], text: str
) -> None:
    folder = source.parent
    paths = [folder / word if word in ("source", "other") else word for word in words]

    assert moved(*paths) == 2

    assert text in capsys.readouterr().err
    assert not (folder / "other").exists()


def test_revocations_that_are_only_in_a_file_stop_the_move(
    source: Path, etcd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server stores them when it starts; in etcd they would be lost."""
    revocation = {
        "apiVersion": "identity.orch.io/v1alpha1",
        "kind": "CredentialRevocation",
        "metadata": {"name": "lost", "uid": "u1"},
    }
    line = {"key": "identity.orch.io/credentialrevocations/lost", "object": revocation}
    (source / REVOCATIONS).write_text(json.dumps(line) + "\n")

    assert moved("--from", source, "--to-etcd", ETCD) == 1

    assert "so that it stores them" in capsys.readouterr().err
    assert not etcd.exists()


@pytest.mark.parametrize("is_own", [True, False])
def test_the_flag_of_the_encryption_is_named(source: Path, is_own: bool) -> None:
    """Its file, if the source has it."""
    if is_own:
        (source / ENCRYPTION).write_text("")

    text = migrate._with_their_key(source)

    assert (str(source / ENCRYPTION) in text) is is_own
    assert "the same --encryption-provider-config" in migrate._with_their_key(None)


def test_a_key_of_etcd_that_others_can_read_is_refused(tmp_path: Path) -> None:
    key = tmp_path / "etcd.key"
    key.write_text("secret")
    key.chmod(0o644)

    with pytest.raises(Complaint, match="--etcd-keyfile"):
        migrate._refuse_exposed(key)
    key.chmod(0o600)
    migrate._refuse_exposed(key)
