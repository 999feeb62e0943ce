"""A server process starts, stops, and says why when it does not."""

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import StartServer
from tests.e2e.serving import ServerFailed, running_server

# What takes long to load, or much memory, and serves a setting that most servers do not have.
NOT_AT_START = (
    "cel_expr_python", "difflib", "google", "hpack", "http.client", "lzma", "multiprocessing",
    "nacl", "orchid.features.sign_in.oidc", "orchid.assembly.controllers.remote_controllers",
    "orchid.kernel.server.openapi.pages", "orchid.kernel.store.etcd", "orchid.kernel.workers",
    "rich", "sqlite3", "tomllib", "unicodedata", "unittest", "urllib.request", "xml", "yaml",
)  # fmt: skip


def test_stops_cleanly_and_starts_again_on_the_same_data(start_server: StartServer) -> None:
    """SIGTERM ends a server with exit code 0, and its data directory serves the next one."""
    first = start_server()
    first.stop()

    second = start_server(port=first.port)

    assert first.process.returncode == 0
    assert second.is_ready()
    assert second.kubeconfig.exists()


def test_starts_again_after_a_kill(start_server: StartServer) -> None:
    """A server that was killed leaves nothing behind that keeps the next one from starting."""
    first = start_server()
    first.kill()

    second = start_server(port=first.port)

    assert first.process.returncode == -signal.SIGKILL
    assert second.is_ready()


def test_start_loads_only_what_is_asked_for(tmp_path: Path) -> None:
    """Imports are most of a start, so that what few settings need is imported with them."""
    env = {"PYTHONPROFILEIMPORTTIME": "1"}  # the log then names each module that is imported

    with running_server(tmp_path / "data", env=env) as server:
        log = server.log_text()

    imported = re.findall(r"^import time:.*\| +(\S+)$", log, re.MULTILINE)
    needless = [
        name
        for name in imported
        if f"{name}.".startswith(tuple(f"{package}." for package in NOT_AT_START))
    ]
    assert "orchid.assembly.server" in imported
    assert needless == []


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_supervisor_is_notified_when_the_server_is_ready(tmp_path: Path, workers: str) -> None:
    """systemd waits for this message (Type=notify), with one process and with workers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(tmp_path / "notify"))
        supervisor.settimeout(60)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        with running_server(tmp_path / "data", "--workers", workers, env=environment) as server:
            word = supervisor.recv(100)
            ready = server.is_ready()

    assert (word, ready) == (b"READY=1", True)


def test_unknown_flag_is_a_clear_message(tmp_path: Path) -> None:
    """A flag that does not exist ends the program with exit code 2 and without a traceback."""
    with (
        pytest.raises(
            ServerFailed, match=re.compile("exit code 2 .*no-such-flag", re.DOTALL)
        ) as failure,
        running_server(tmp_path / "data", "--no-such-flag"),
    ):
        pass

    assert "Traceback" not in str(failure.value)


def test_store_that_does_not_answer_is_no_mistake_of_the_settings(tmp_path: Path) -> None:
    """Exit code 1 in place of 2: a supervisor that tries again may well succeed."""
    nobody = ("--etcd-servers", "http://127.0.0.1:1")

    with (
        pytest.raises(ServerFailed, match=r"exit code 1 [\s\S]*the store cannot be opened"),
        running_server(tmp_path / "data", *nobody),
    ):
        pass


def test_a_server_that_hangs_says_where(tmp_path: Path) -> None:
    """The log names the functions that blocked the event loop."""
    nobody = ("--etcd-servers", "http://127.0.0.1:1")

    with (
        pytest.raises(ServerFailed, match=r"not ready after 2 s[\s\S]*Fatal Python error: Aborted"),
        running_server(tmp_path / "data", *nobody, ready_seconds=2),
    ):
        pass


def test_a_store_keeps_to_the_naming_it_began_with(start_server: StartServer) -> None:
    """Another one is refused with a sentence that says what to type."""
    first = start_server()
    first.stop()

    with (
        pytest.raises(ServerFailed, match="start with --naming orch, or with another --data-dir"),
        running_server(first.data_dir, "--naming", "kubernetes"),
    ):
        pass

    assert start_server(port=first.port).is_ready()


def test_printed_commands_can_be_typed_and_debug_logs_every_request(tmp_path: Path) -> None:
    """Paths with blanks are quoted; requests are logged with path and status, without the query."""
    with running_server(tmp_path / "my data", "--log-level", "debug") as server:
        line = next(text for text in server.log_text().splitlines() if "orchid status" in text)
        done = subprocess.run(
            ["bash", "-c", f"{sys.executable} -m {line.strip()} -o json"],
            capture_output=True,
            text=True,
            check=True,
        )
        log = server.log_text()

    assert '"ready": true' in done.stdout
    assert "request.answered method=GET path=/readyz status=200" in log
    assert "verbose" not in log
