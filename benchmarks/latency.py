"""`make latency`: how long requests take at half of the rate that the server can sustain.

Open load, without coordinated omission: see open_load.py. The sustainable rate is what wrk gets
from 32 connections that never pause, just before. The first row is a bare TLS server that answers
every request with the same bytes (echo.py) at the rate of the second: what the machine, the
interpreter and the load generator need by themselves. The last row is a store that is compacted
while it is written to.

Beside each row: how late the generator was (p99), for which part of the time server and generator
waited for a core that somebody else had, for which part the host of a virtual machine had taken
their cores away, and the collections of the server's garbage collector. A row during which much was
stolen says nothing about the server: repeat it.

    python -m benchmarks.latency --seconds 20
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks import load
from benchmarks.bench import ACCOUNTS, FLAGS, LOAD_CORE, NO_CONTROLLERS, SERVER_CORE
from benchmarks.host import Stolen
from benchmarks.lines import request
from benchmarks.load import UNIQUE, Job
from benchmarks.open_load import OpenLoad, Taken
from benchmarks.setting import Administrator, Stage
from tests.e2e.serving import Server, free_port, running_server

RATE_CONNECTIONS, RATE_SECONDS = 32, 3
OBSERVED = Path(__file__).resolve().parent / "observed"
COMPACTED = ("--history", "10s")  # looked at every 30 s: a run of 40 s sees it at least once
PINNED = ("taskset", "-c", str(SERVER_CORE))
TITLES = ("rate", "half", "p50", "p99", "p99.9", "most", "late", "waited", "stolen")


@dataclass(frozen=True)
class Wanted:
    """One line of the table."""

    name: str
    job: Callable[[Stage], Job]
    p99: float  # milliseconds that it must stay under


ROWS = (
    Wanted("get", load.get, 5.0),
    Wanted("SelfSubjectReview", load.self_subject_review, 5.0),
    Wanted("TokenReview", load.review_many_tokens, 5.0),
    Wanted("create, on disk", load.create_account, 15.0),
)
COMPACTING = Wanted("create, compacting", load.create_account, 15.0)


class Lost(NamedTuple):
    """Parts of the time in which server or generator could have run, and did not."""

    waited: float  # for a core that another process had
    stolen: float  # by the host


@dataclass(frozen=True)
class Observed:
    """A server that notes what its garbage collector does, and objects to ask for."""

    server: Server
    stage: Stage
    notes: Path

    def collections(self) -> list[str]:
        return self.notes.read_text().splitlines()


def main() -> int:
    options = parse_arguments()
    os.sched_setaffinity(0, {LOAD_CORE})
    print(f"{'':20}" + "".join(f"{title:>8}" for title in TITLES))
    with tempfile.TemporaryDirectory() as directory:
        with observed(Path(directory) / "plain") as place:
            measure_bare(ROWS[0], place, options.seconds)
            fine = [measure_row(row, place, options.seconds) for row in ROWS]
        with observed(Path(directory) / "compacted", *COMPACTED) as place:
            fine.append(measure_row(COMPACTING, place, max(40, options.seconds)))
    return 0 if all(fine) else 1


@contextmanager
def observed(data_dir: Path, *flags: str) -> Iterator[Observed]:
    notes = data_dir.with_suffix(".collections")
    notes.touch()
    env = {"PYTHONPATH": f"{OBSERVED}", "ORCHID_BENCH_COLLECTIONS": str(notes)}
    all_flags = (*FLAGS, *NO_CONTROLLERS, *flags)
    with (
        running_server(data_dir, *all_flags, launcher=PINNED, env=env) as server,
        closing(Administrator(server.url)) as administrator,
    ):
        yield Observed(server, Stage(administrator, accounts=ACCOUNTS), notes)


def measure_bare(row: Wanted, place: Observed, seconds: int) -> None:
    """Send the requests of a row, at its rate, to a server that does nothing with them."""
    job = row.job(place.stage)
    rate = sustained(job, place.server) / 2
    with echo(place.server.data_dir) as (port, pid):
        print_times("bare TLS", rate, *loaded(job, rate, seconds, port, pid))
    print()


def measure_row(row: Wanted, place: Observed, seconds: int) -> bool:
    job, server = row.job(place.stage), place.server
    rate = sustained(job, server) / 2
    before = len(place.collections())
    taken, lost = loaded(job, rate, seconds, server.port, server.pid)
    print_times(row.name, rate, taken, lost)
    fine = percentile(taken.answered, 0.99) <= row.p99 and not taken.refused
    verdict = f"REFUSED {taken.refused}" if taken.refused else f"ABOVE {row.p99:g}"
    print("  ok" if fine else f"  {verdict}")
    print(f"{'':20}  {collections(place.collections()[before:])}", flush=True)
    return fine


def sustained(job: Job, server: Server) -> float:
    """Requests a second, from connections that never pause."""
    return load.measure(
        job, server.url, core=LOAD_CORE, seconds=RATE_SECONDS, connections=RATE_CONNECTIONS
    ).per_second


def loaded(job: Job, rate: float, seconds: float, port: int, pid: int) -> tuple[Taken, Lost]:
    """Load at a rate; also tell for which part of the time either side had no core."""
    sent = requests(job, int(rate * seconds * 1.1))
    made = OpenLoad(sent, rate, seconds, port)
    start, before, stolen = time.monotonic(), waited(pid), Stolen((SERVER_CORE, LOAD_CORE))
    taken = made.run()
    return taken, Lost((waited(pid) - before) / (time.monotonic() - start), stolen.part())


def requests(job: Job, number: int) -> list[bytes]:
    """All that are sent, in turn: made before, because to make them takes time."""
    changing = any(UNIQUE in body for body in job.bodies)
    many = number if changing else max(len(job.paths), len(job.bodies))
    salt = time.monotonic_ns()
    bodies = job.bodies or [""]
    return [
        request(
            job.method,
            job.paths[each % len(job.paths)],
            bodies[each % len(bodies)].replace(UNIQUE, f"open-{salt}-{each}"),
        )
        for each in range(many)
    ]


def waited(pid: int) -> float:
    """Seconds for which a process and we ourselves could have run and had to wait."""
    files = [*Path(f"/proc/{pid}/task").glob("*/schedstat"), Path("/proc/self/schedstat")]
    return sum(int(each.read_text().split()[1]) for each in files) / 1e9


def print_times(name: str, rate: float, taken: Taken, lost: Lost) -> None:
    times = [percentile(taken.answered, part) for part in (0.5, 0.99, 0.999, 1)]
    times.append(percentile(taken.late, 0.99))
    cells = "".join(f"{each:>8.2f}" for each in times)
    print(
        f"{name:20}{rate * 2:>8,.0f}{rate:>8,.0f}{cells}{lost.waited:>8.1%}{lost.stolen:>8.1%}",
        end="",
    )


def percentile(times: list[float], part: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * part))]


@contextmanager
def echo(data_dir: Path) -> Iterator[tuple[int, int]]:
    """A bare TLS server for as long as the block lasts: its port and its process."""
    port = free_port()
    command = [*PINNED, sys.executable, "-m", "benchmarks.echo", str(port)]
    command += [str(data_dir / "serving.crt"), str(data_dir / "serving.key")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # it listens now
            yield port, process.pid
        finally:
            process.kill()


def collections(lines: list[str]) -> str:
    """How often each generation was collected, and how long that took at most."""
    took: dict[str, list[float]] = {}
    for line in lines:
        generation, milliseconds = line.split()
        took.setdefault(generation, []).append(float(milliseconds))
    told = (
        f"collections of generation {generation}: {len(each)}, the longest {max(each):.1f} ms"
        for generation, each in sorted(took.items())
    )
    return "; ".join(told) or "no collection"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make latency", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=20, help="how long each load lasts")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
