"""A restored backup revives no stolen credential silently."""

import shutil
from pathlib import Path

from tests.e2e.person import Person
from tests.e2e.serving import running_server

NO_CONTROLLERS = ("--controllers", "")


def test_an_account_deleted_after_the_backup_is_named_and_its_tokens_can_be_revoked(
    tmp_path: Path,
) -> None:
    """A dry run and the restore name it; with the flag its old tokens are refused, not new ones."""
    data, copy = tmp_path / "data", tmp_path / "copy.db"
    person = visitor(tmp_path, data)
    with running_server(data, *NO_CONTROLLERS) as server:
        person.types("account", "new", "ci/stolen")
        person.types("account", "new", "ci/other")
        stolen = person.types("token", "ci/stolen").stdout
        other = person.types("token", "ci/other").stdout
        person.types("backup", str(copy), "--data-dir", str(data))
        person.types("account", "delete", "--yes", "ci/stolen")
        server.stop()

    words = ("restore", str(copy), "--data-dir", str(data))
    shown = person.types(*words, "--dry-run").stdout
    said = person.types(*words, "--revoke-tokens", "deleted").stdout
    with running_server(data, *NO_CONTROLLERS, port=server.port):
        refused = person.gets("token", "show", "--verify", given=stolen, code=1)
        accepted = person.gets("token", "show", "--verify", given=other)
        later = person.types("token", "ci/stolen").stdout
        renewed = person.gets("token", "show", "--verify", given=later)

    for text in (shown, said):
        assert "service accounts, with their tokens: ci/stolen\n" in text
    assert "nothing is restored" in shown
    assert "revoke the tokens of 1 accounts" in said
    assert not refused["verified"]
    assert accepted["verified"]
    assert renewed["verified"]


def test_a_restore_without_the_old_database_says_what_it_cannot_know(tmp_path: Path) -> None:
    """After the loss of a disk; tokens of all accounts can be revoked."""
    data, saved = tmp_path / "data", tmp_path / "saved"
    person = visitor(tmp_path, data)
    with running_server(data, *NO_CONTROLLERS) as server:
        person.types("account", "new", "ci/builder")
        token = person.types("token", "ci/builder").stdout
        places = ("--keys", str(tmp_path / "keys"), "--data-dir", str(data))
        person.types("backup", "--all", str(saved), *places)
        server.stop()
    shutil.rmtree(data)

    words = ("restore", str(saved), *places)
    refused = person.types(*words, "--revoke-tokens", "deleted", code=2).stderr
    done = person.types(*words, "--revoke-tokens", "all")
    with running_server(data, *NO_CONTROLLERS, port=server.port):
        found = person.gets("token", "show", "--verify", given=token, code=1)

    assert "use --revoke-tokens all" in refused
    assert "revocations created after the backup are not known" in done.stderr
    assert "which credentials were deleted after the backup is not known" in done.stderr
    assert "error" in found["review"]
    assert "revoked" in found["review"]["error"]
    assert not [path for path in saved.iterdir() if path.suffix == ".key"]


def visitor(directory: Path, data: Path) -> Person:
    home = directory / "home"
    home.mkdir()
    return Person(home, data / "admin.kubeconfig")
