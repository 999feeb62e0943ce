"""A restored backup revives no credential that was taken back since."""

from pathlib import Path

from tests.e2e.serving import running_server
from tests.e2e.test_commands import Person


def test_a_revocation_made_after_the_backup_is_named_and_kept(tmp_path: Path) -> None:
    """It is told at the restore, and in force when the server starts; a lifted hold is not."""
    data, copy, home = tmp_path / "data", tmp_path / "copy.db", tmp_path / "home"
    home.mkdir()
    person = Person(home, data / "admin.kubeconfig")
    alice = ("whoami", "--kubeconfig", "alice.kubeconfig")
    bob = ("whoami", "--kubeconfig", "bob.kubeconfig")
    with running_server(data) as server:
        for name in ("alice", "bob"):
            person.types("csr", "new", name)
            person.types("csr", "approve", name)
            person.types("csr", "fetch", name)
            files = ("--cert", f"{name}.crt", "--key", f"{name}.key")
            person.types("kubeconfig", *files, "--out", f"{name}.kubeconfig")
        person.types("backup", str(copy), "--data-dir", str(data))
        made = person.gets("revoke", "csr/alice", "--reason", "keyCompromise")
        person.types(*alice, code=1)
        server.stop()

    restored = person.types("restore", str(copy), "--data-dir", str(data)).stdout
    with running_server(data, port=server.port) as again:
        refused = person.types(*alice, code=1)
        person.types(*bob)

        log = again.log_text()

    name = made[0]["metadata"]["name"]
    assert f"revocations made since, which the server keeps: {name}" in restored
    assert "does not accept the credential" in refused.stderr
    assert "revocation.put_back" in log
