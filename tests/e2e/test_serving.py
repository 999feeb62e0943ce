"""A server process starts, stops, and says why when it does not."""

import re
import signal
from pathlib import Path

import pytest

from tests.e2e.conftest import StartServer
from tests.e2e.serving import ServerFailed, running_server


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
