"""How many functions the interpreter calls for one request: the same on every machine.

    python -m benchmarks.calls                             all rows, as `make bench` prints them
    python -m benchmarks.calls --only get --show 40        and the most expensive functions

A server under a profiler answers the same request many times on one connection. The limits
(figures.py) count calls of functions written in Python; a test in tests/api counts only our own
functions and fails when a request exceeds its budget.
"""

import argparse
import itertools
import pstats
import signal
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import load
from benchmarks.figures import CALLS
from benchmarks.harness import FLAGS, NO_CONTROLLERS, selected
from benchmarks.setting import Administrator, Stage
from tests.e2e.serving import Server, running_server

ACCOUNTS = 500
WARM = 50  # requests before the count begins
PATIENCE = 30.0


@dataclass(frozen=True)
class Row:
    """Calls of one kind of request."""

    name: str
    every: float  # calls, of functions in C too
    python: float  # of functions written in Python
    functions: list[str]  # the most expensive first

    def __str__(self) -> str:
        must, aim = CALLS[self.name]
        verdict = "aim" if self.python <= aim else "ok" if self.python <= must else "OVER"
        return f"{self.name:18}{self.python:>10.1f}{self.every:>10.1f}{must:>8}{aim:>8}  {verdict}"


HEADER = f"{'calls per request':18}{'Python':>10}{'all':>10}{'must':>8}{'aim':>8}"


def measured(directory: Path, only: str = "", requests: int = 500) -> Iterator[Row]:
    """Count the calls of each row, each on a new server."""
    file = directory / "calls.prof"
    profiler = (sys.executable, "-m", "benchmarks.profiled_server", str(file))
    with (
        running_server(directory / "calls", *FLAGS, *NO_CONTROLLERS, launcher=profiler) as server,
        closing(Administrator(server.url)) as administrator,
    ):
        stage = Stage(administrator, accounts=ACCOUNTS)
        for name in CALLS:
            if selected(name, only):
                job = load.JOBS[name](stage)
                stats = _counted(server, administrator, job, file, requests)
                yield _row(name, stats, requests)


def _counted(
    server: Server, administrator: Administrator, job: load.Job, file: Path, requests: int
) -> dict[Any, Any]:
    body = job.bodies[0] if job.bodies else None  # always the same, but for names
    sent = zip(itertools.cycle(job.paths), itertools.count(), strict=False)

    def send(count: int) -> None:
        for path, number in itertools.islice(sent, count):
            text = body and body.replace(load.UNIQUE, f"c{number}")
            administrator.send(job.method, path, text)

    send(WARM)
    file.unlink(missing_ok=True)
    server.process.send_signal(signal.SIGUSR1)
    _wait_for(file.with_suffix(".on"))
    send(requests)
    server.process.send_signal(signal.SIGUSR2)
    _wait_for(file)
    found: dict[Any, Any] = pstats.Stats(str(file)).stats  # type: ignore[attr-defined]  # not in typeshed
    return found


def _wait_for(file: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not file.exists():
        if time.monotonic() > deadline:
            raise SystemExit(f"the server did not make {file}")
        time.sleep(0.02)


def _row(name: str, stats: dict[Any, Any], requests: int) -> Row:
    every = sum(calls for _, calls, *_ in stats.values())
    python = sum(calls for (file, *_), (_, calls, *_) in stats.items() if file != "~")
    dearest = sorted(stats.items(), key=lambda item: -item[1][2])
    functions = [
        f"{calls / requests:9.2f} x {own / max(calls, 1) * 1e6:8.2f} us  "
        f"{file.rpartition('orchid/')[2]}:{line} {function}"
        for (file, line, function), (_, calls, own, *_) in dearest
    ]
    return Row(name, every / requests, python / requests, functions)


def interpreter() -> str:
    """Name and build options of the interpreter of the server."""
    version = sys.version.partition(" ")[0]
    given = str(sysconfig.get_config_var("CONFIG_ARGS") or "")
    flags = str(sysconfig.get_config_var("PY_CORE_CFLAGS") or "")
    if "--enable-optimizations" in given or "-fprofile-use" in flags:
        return f"Python {version}, built with profile-guided optimisation"
    return (
        f"Python {version}, which does NOT SAY that it was built with profile-guided optimisation: "
        "without it a fifth slower (some distributions have it and do not say so)"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="names or their beginnings, with commas between")
    parser.add_argument("--show", type=int, default=0, help="how many functions of each row")
    parser.add_argument("--requests", type=int, default=500)
    options = parser.parse_args()
    print(interpreter(), HEADER, sep="\n", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        for row in measured(Path(directory), options.only, options.requests):
            print(row, *row.functions[: options.show], sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
