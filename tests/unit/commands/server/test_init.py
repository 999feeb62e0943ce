"""`orchid init` makes what a server needs, keeps what is there, and starts nothing."""

import errno
import os
from pathlib import Path

import pytest

from orchid import cli
from orchid.kernel.settings import data_directory

SHARED = ("ca.crt", "ca.key", "ledger.key", "token-signing.key", "encryption.yaml")
OWN = ("serving.crt", "serving.key", "admin.kubeconfig", "orchid.db-lock")


def test_makes_the_files_of_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Keys are for their owner alone; what several servers share is named."""
    code = cli.main(["init", "--data-dir", str(tmp_path / "data")])

    made = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "data").iterdir()}
    assert code == 0
    assert made.keys() == {*SHARED, *OWN}
    assert set(made.values()) == {0o600}
    assert (
        "share: ca.crt ca.key token-signing.key ledger.key encryption.yaml"
        in capsys.readouterr().out
    )


def test_keeps_what_is_there(tmp_path: Path) -> None:
    """A second time changes no file."""
    cli.main(["init", "--data-dir", str(tmp_path / "data")])
    before = {path: path.read_bytes() for path in (tmp_path / "data").iterdir()}

    cli.main(["init", "--data-dir", str(tmp_path / "data")])

    assert {path: path.read_bytes() for path in (tmp_path / "data").iterdir()} == before


@pytest.mark.parametrize("given", ["", "keys.yaml"])
def test_makes_the_encryption_key_that_servers_over_etcd_share(
    tmp_path: Path, given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also with the settings of such a server, at the path that they name."""
    words = ["init", "--data-dir", str(tmp_path / "data"), "--etcd-servers", "https://etcd:2379"]
    path = tmp_path / given if given else tmp_path / "data" / "encryption.yaml"
    if given:
        words += ["--encryption-provider-config", str(path)]

    code = cli.main(words)

    assert code == 0
    assert path.stat().st_mode & 0o777 == 0o600
    assert f"--encryption-provider-config {path}\n" in capsys.readouterr().out


def test_directory_that_others_can_enter_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says what to do; the exit code is that of a bad setting."""
    (tmp_path / "data").mkdir(mode=0o755)

    code = cli.main(["init", "--data-dir", str(tmp_path / "data")])

    assert code == 2
    assert "chmod 0700" in capsys.readouterr().err


def full(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(("place", "call"), [(os, "pwrite"), (data_directory, "write_private")])
def test_a_full_disk_is_one_line(
    tmp_path: Path,
    place: object,
    call: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """While the lock or a key is written; the message names the file or the directory."""
    monkeypatch.setattr(place, call, full)

    assert cli.main(["init", "--data-dir", str(tmp_path / "data")]) != 0

    printed = capsys.readouterr().err
    assert printed.startswith("orchid: ")
    assert str(tmp_path / "data") in printed
    assert printed.endswith(": No space left on device\n")
    assert printed.count("\n") == 1
