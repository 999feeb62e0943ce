"""Reloads by a signal: the process that a file names, if it belongs to the owner of the file."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from orchid.features.hosts.agent.configuration import Kubeconfig, Output, Reload
from orchid.features.hosts.agent.running.reloads import ReloadFailed, run_reload

OUTPUT = Output(name="web", directory="/web", kubeconfig=Kubeconfig())


def reload(file: Path) -> None:
    run_reload(Reload(signal="TERM", pid_file=str(file)), OUTPUT, lambda: None)


def test_the_first_line_names_the_process(tmp_path: Path) -> None:
    """The file of PostgreSQL has seven more lines."""
    process = subprocess.Popen(["/bin/sleep", "60"])
    file = tmp_path / "postmaster.pid"
    file.write_text(f"{process.pid}\n/var/lib/postgresql/15/main\n1700000000\n5432\n")

    reload(file)

    assert process.wait(30) == -signal.SIGTERM


@pytest.mark.parametrize("text", ["", "0", "1", "-5", "abc", "\n12", "9" * 5000])
def test_anything_else_is_no_process(tmp_path: Path, text: str) -> None:
    """Neither init nor a group of processes gets a signal."""
    file = tmp_path / "pid"
    file.write_text(text)

    with pytest.raises(ReloadFailed):
        reload(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_a_service_names_its_own_processes_only(tmp_path: Path) -> None:
    """Otherwise a service could have the agent, which is root, signal any process."""
    process = subprocess.Popen(["/bin/sleep", "60"])
    file = tmp_path / "service.pid"
    file.write_text(str(process.pid))
    os.chown(file, 65534, 65534)

    with pytest.raises(ReloadFailed, match="does not belong to the owner"):
        reload(file)

    is_running = process.poll() is None
    process.kill()
    process.wait()
    assert is_running
