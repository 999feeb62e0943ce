"""The harness of all benchmarks: servers on one core, load on the other, two servers in turn.

`serving` starts a server of this checkout, or of another one, pinned to its core. `compare` loads
two servers in turn and yields, for each turn, the rate and the CPU time per request of both. The
speed of a virtual machine changes from second to second, so only ratios within a turn are compared,
and the median of all turns counts (`Ratio`). Absolute figures hold for one machine and one hour.
"""

import json
import math
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conformance.exchanges import TOKENS
from tests.e2e.serving import Server, running_server

SERVER_CORE, LOAD_CORE = 0, 1
ISSUER = "https://orchid.test"
FLAGS = (
    *("--token-auth-file", str(TOKENS)),
    *("--service-account-issuer", ISSUER),
    *("--api-audiences", ISSUER),
)
NO_CONTROLLERS = ("--controllers", "")
PINNED = ("taskset", "-c", str(SERVER_CORE))
RESULTS = Path(__file__).resolve().parent / "results"
PROGRAMS = {"wrk": "wrk", "taskset": "util-linux"}
NORMAL_95 = 1.96  # quantile of the normal distribution


@dataclass(frozen=True)
class Sent:
    """The requests of one turn."""

    requests: int
    per_second: float


Load = Callable[[], Sent]
"""Sends requests for a while."""


class Unsuitable(Exception):
    """This machine lacks something that a benchmark needs."""


@dataclass(frozen=True)
class Target:
    """A running server, its processes, and the load that it gets."""

    pids: tuple[int, ...]
    load: Load


@dataclass(frozen=True)
class Cost:
    """One turn on one server."""

    per_second: float
    cpu_us: float  # CPU time of all its processes, per request


@dataclass(frozen=True)
class Ratio:
    """The median of many ratios, and the interval that contains the true one (95 %)."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, ratios: list[float]) -> "Ratio":
        """The interval is that of the sign test: it holds for any distribution."""
        ranked, count = sorted(ratios), len(ratios)
        below = max(math.floor((count - NORMAL_95 * math.sqrt(count)) / 2), 0)
        return cls(statistics.median(ratios), ranked[below], ranked[count - 1 - below])

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def compare(first: Target, second: Target, turns: int) -> Iterator[tuple[Cost, Cost]]:
    """Load both servers in turn. The server that is not loaded is stopped meanwhile."""
    for _ in range(turns):
        with stopped(second.pids):
            one = cost(first)
        with stopped(first.pids):
            two = cost(second)
        yield one, two


def cost(target: Target) -> Cost:
    """Load a server once to warm it up, then measure it."""
    target.load()
    before = cpu_nanoseconds(target.pids)
    sent = target.load()
    if not sent.requests:
        raise SystemExit("no request was answered")
    used = cpu_nanoseconds(target.pids) - before
    return Cost(sent.per_second, used / sent.requests / 1000)


@contextmanager
def stopped(pids: tuple[int, ...]) -> Iterator[None]:
    """Suspend processes for the duration of the block."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def serving(
    data_dir: Path, *flags: str, checkout: Path | None = None, ready_seconds: float = 120.0
) -> AbstractContextManager[Server]:
    """A server on its core; of another checkout of this project if one is named."""
    source = () if checkout is None else ("env", f"PYTHONPATH={checkout / 'src'}")
    launcher = (*PINNED, *source)
    return running_server(data_dir, *FLAGS, *flags, launcher=launcher, ready_seconds=ready_seconds)


def processes(server: Server) -> tuple[int, ...]:
    """The processes of a server: they share a process group of their own."""
    found = [server.pid]
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(fields[2]) == server.pid and int(status.parent.name) != server.pid:
            found.append(int(status.parent.name))
    return tuple(found)


def cpu_nanoseconds(pids: tuple[int, ...]) -> int:
    """The CPU time that all threads of some processes have used, by the scheduler's clock."""
    threads = (one for pid in pids for one in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(int(one.read_text().split()[0]) for one in threads)


def resident_bytes(pids: tuple[int, ...]) -> int:
    pages = (int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return sum(pages) * resource.getpagesize()


def prepare() -> None:
    """Move to the load's core and allow many connections, or say what is missing."""
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    if missing:
        raise Unsuitable(f"missing programs: apt-get install {' '.join(missing)}")
    if not {SERVER_CORE, LOAD_CORE} <= os.sched_getaffinity(0):
        raise Unsuitable("two cores are needed: one for the server, one for the load")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.sched_setaffinity(0, {LOAD_CORE})


def selected(name: str, only: str) -> bool:
    """Whether `--only`, names or their beginnings with commas between, includes a row."""
    return not only or any(name.startswith(prefix) for prefix in only.split(","))


def write_results(name: str, content: dict[str, Any]) -> None:
    """Write benchmarks/results/NAME.json, so that two commits can be compared."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    RESULTS.mkdir(exist_ok=True)
    content = {"commit": described.stdout.strip(), "python": sys.version.split()[0], **content}
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
