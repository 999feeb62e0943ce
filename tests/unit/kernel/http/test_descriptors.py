"""File descriptors: the soft limit is raised, or the limits of the listener are lowered."""

import subprocess
import sys

PROGRAM = """
import logging, resource, sys
from orchid.kernel.http.descriptors import fitted
from orchid.kernel.http.listener_state import ConnectionLimits
logging.basicConfig(format="%(levelname)s %(message)s", level="INFO")
soft, hard, wanted = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
limits = fitted(ConnectionLimits(max_connections=wanted, max_unknown=wanted // 2))
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], limits.max_connections, limits.max_unknown)
"""


def started_with(soft: int, hard: int, wanted: int) -> tuple[list[int], str]:
    """Limits of a process of its own: the soft limit, connections, unknown ones; and its log."""
    command = [sys.executable, "-c", PROGRAM, str(soft), str(hard), str(wanted)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [int(number) for number in done.stdout.split()], done.stderr


def test_the_soft_limit_is_raised_to_what_connections_need() -> None:
    """Many systems start processes with few descriptors and allow many."""
    numbers, log = started_with(256, 4096, 1000)

    assert numbers == [1500, 1000, 500]
    assert log == ""


def test_limits_are_lowered_to_what_there_is_and_it_is_said() -> None:
    """Connections leave room for files and for calls to others; it is news, no warning."""
    numbers, log = started_with(256, 1024, 1000)

    assert numbers == [1024, 524, 262]
    assert "INFO listener.fewer_connections: 524 in place of 1000" in log
    assert "1024" in log


def test_a_limit_that_suffices_is_left_alone() -> None:
    """Nothing is lowered, and nothing is said."""
    numbers, log = started_with(2000, 4096, 1000)

    assert numbers == [2000, 1000, 500]
    assert log == ""
