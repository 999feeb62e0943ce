"""The attack: a local user turns files that the agent reads, as root, against the host."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchid.features.hosts.agent.configuration import Kubeconfig, Output, Reload
from orchid.features.hosts.agent.running.reloads import ReloadFailed, run_reload
from tests.unit.features.hosts.agent.pretend_server import PretendServer, serving
from tests.unit.features.hosts.agent.test_agent import CERTIFICATE, Host

OUTPUT = Output(name="web", directory="/web", kubeconfig=Kubeconfig())
HOLE = 1 << 42  # bytes that no disk has
SERVICE = 65534

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def server() -> Iterator[PretendServer]:
    with serving() as started:
        yield started


@pytest.fixture
def host(server: PretendServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setattr("orchid.features.hosts.agent.items.AFTER_SWAP", 0.0)
    made = Host(tmp_path, server)
    server.join_file(made.join)
    made.outputs.append(
        {"name": "other", "directory": str(tmp_path / "other"), "certificate": CERTIFICATE}
    )
    yield made
    made.stop()


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process of root, or of the user who runs the tests."""
    started = subprocess.Popen(["/bin/sleep", "60"])
    yield started
    started.kill()
    started.wait()


def test_an_endless_file_stops_neither_the_agent_nor_other_outputs(host: Host) -> None:
    """The owner of an output makes a hole of it: the agent starts, and the files are replaced."""
    host.check()
    os.truncate(host.web / "tls.key", HOLE)
    (host.place / "other" / "tls.crt").resolve().unlink()

    host.start()
    status = host.check()

    assert status.exit_code(host.clock.now()) == 0
    assert host.has_pair()
    assert (host.place / "other" / "tls.crt").exists()


def reload(file: Path) -> None:
    run_reload(Reload(signal="TERM", pid_file=str(file)), OUTPUT, lambda: None)


def refused(file: Path, process: subprocess.Popen[bytes], match: str) -> None:
    with pytest.raises(ReloadFailed, match=match):
        reload(file)
    assert process.poll() is None


def service_directory(tmp_path: Path) -> Path:
    directory = tmp_path / "service"
    directory.mkdir()
    os.chown(directory, SERVICE, SERVICE)
    return directory


@only_root
def test_a_link_to_a_file_of_root_names_no_process(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    """The service puts it in place of its own pid file."""
    of_root = tmp_path / "root.pid"
    of_root.write_text(str(process.pid))
    link = service_directory(tmp_path) / "service.pid"
    link.symlink_to(of_root)

    refused(link, process, "cannot read")


@only_root
def test_a_second_name_of_a_file_of_root_names_no_process(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    """A hard link has the owner of the file that it names."""
    of_root = tmp_path / "root.pid"
    of_root.write_text(str(process.pid))
    (service_directory(tmp_path) / "service.pid").hardlink_to(of_root)

    refused(tmp_path / "service" / "service.pid", process, "has other names")


@only_root
def test_a_file_that_a_service_can_replace_names_its_processes_only(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    """A file of root that was moved into the directory of the service."""
    file = service_directory(tmp_path) / "service.pid"
    file.write_text(str(process.pid))

    refused(file, process, "does not belong to the owner")


def test_a_file_in_an_open_directory_names_no_process(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    """Any user of the group could replace it."""
    directory = tmp_path / "open"
    directory.mkdir()
    directory.chmod(0o775)
    (directory / "pid").write_text(str(process.pid))

    refused(directory / "pid", process, "can be written by other users")


@only_root
def test_a_service_has_its_own_process_signalled(tmp_path: Path) -> None:
    """In a directory and with a file of its own, as before."""
    started = subprocess.Popen(["/bin/sleep", "60"], user=SERVICE)
    file = service_directory(tmp_path) / "service.pid"
    file.write_text(str(started.pid))
    os.chown(file, SERVICE, SERVICE)

    reload(file)

    assert started.wait(30) == -signal.SIGTERM
