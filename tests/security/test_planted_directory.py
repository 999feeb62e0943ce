"""A planted data directory in the working directory: the command does not use it.

The attacker plants `./orchid-data/admin.kubeconfig` with the address of their own server, which
would receive a file of the user who runs `orchid whoami` there.
"""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchid.cli import main
from orchid.kernel.terminal.output import USAGE

NOBODY = 65534
TEXT = """
apiVersion: v1
kind: Config
current-context: main
clusters:
- {{name: there, cluster: {{server: "https://127.0.0.1:{port}"}}}}
users:
- {{name: me, user: {{tokenFile: {token_file}}}}}
contexts:
- {{name: main, context: {{cluster: there, user: me}}}}
"""


@pytest.fixture
def attacker() -> Iterator[socket.socket]:
    """A socket that somebody may connect to; nobody has to answer."""
    with socket.create_server(("127.0.0.1", 0)) as waiting:
        waiting.setblocking(False)
        yield waiting


@pytest.fixture
def planted(attacker: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The kubeconfig in the working directory; it still belongs to the user."""
    path = tmp_path / "orchid-data" / "admin.kubeconfig"
    path.parent.mkdir(mode=0o700)
    path.write_text(TEXT.format(port=attacker.getsockname()[1], token_file="token"))
    path.chmod(0o600)
    (path.parent / "token").write_text("t")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return path


def has_visitors(attacker: socket.socket) -> bool:
    try:
        attacker.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def gives_away(path: Path) -> None:
    """Make a path somebody else's; who cannot, lets everybody change it, which is the same."""
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    else:
        path.chmod(0o777)


def test_ones_own_directory_is_taken(planted: Path, attacker: socket.socket) -> None:
    """So that the refusals below are refusals: the command does go where this file leads."""
    attacker.close()

    assert main(["whoami"]) == 1


@pytest.mark.parametrize("whose", ["directory", "file"])
def test_a_planted_directory_leads_nowhere(
    planted: Path, attacker: socket.socket, whose: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A kubeconfig of another user does not choose the server."""
    gives_away(planted.parent if whose == "directory" else planted)

    code = main(["whoami"])

    assert code == USAGE
    assert "is not taken" in capsys.readouterr().err
    assert not has_visitors(attacker)


@pytest.mark.parametrize("how", ["path", "link"])
def test_a_planted_file_sends_no_file_of_ones_own(
    planted: Path, attacker: socket.socket, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As unpacked from an archive: the user owns the files, but they name other files."""
    (planted.parent.parent / "secret").write_text("mine")
    if how == "path":
        planted.write_text(planted.read_text().replace("tokenFile: token", "tokenFile: ../secret"))
    else:
        (planted.parent / "token").unlink()
        (planted.parent / "token").symlink_to("../secret")

    code = main(["whoami"])

    assert code == USAGE
    assert "leads out of" in capsys.readouterr().err
    assert not has_visitors(attacker)
