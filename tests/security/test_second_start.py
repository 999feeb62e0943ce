"""A second start on the data directory of a running server does it no harm."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.serving import ServerFailed, running_server

FLAGS = ("--advertise-address", "10.0.0.1")


def files_of(directory: Path) -> dict[str, bytes]:
    """The keys, certificates and configurations, which only their owner writes."""
    others = ("orchid.db", ".probe")  # the store, and the trial of the directory
    paths = (path for path in directory.iterdir() if not path.name.startswith(others))
    return {path.name: path.read_bytes() for path in paths}


def test_a_second_server_on_a_directory_in_use_changes_nothing(tmp_path: Path) -> None:
    """It is refused before it writes anything, whatever its flags would make it write."""
    with running_server(tmp_path / "data") as first:
        deadline = time.monotonic() + 30
        while not (first.data_dir / "ledger.checkpoint").exists():  # its first one
            assert time.monotonic() < deadline
            time.sleep(0.05)
        before = files_of(first.data_dir)

        with (
            pytest.raises(ServerFailed, match="is in use by process"),
            running_server(first.data_dir, *FLAGS),
        ):
            pass
        command = [sys.executable, "-m", "orchid", "init", "--data-dir", str(first.data_dir)]
        made = subprocess.run(
            [*command, *FLAGS], capture_output=True, text=True, timeout=60, check=False
        )

        assert made.returncode == 1
        assert "stop the server first" in made.stderr
        assert files_of(first.data_dir) == before
        assert first.is_ready()
