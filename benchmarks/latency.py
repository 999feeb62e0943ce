"""`make latency`: how long requests take at half of the rate that the server can sustain.

Open load, without coordinated omission: see open_load.py. The sustainable rate is what wrk gets
from 32 connections that never pause. A row consists of parts: the rate is measured, then for some
seconds half of the lowest so far is sent. The first row is a bare TLS server that answers every
request with the same bytes (echo.py) at the rates of the second: what the machine, the interpreter
and the load generator need by themselves. The last row is a store that is compacted while it is
written to.

Beside each row: how late the generator was (p99), the part of its core that the server's main
thread had, and what the machine lost meanwhile (disturbances.py). Below it: how many requests took
longer than they may, how many of these while the machine was in the way or its backlog was not
worked off, and the percentiles of all requests without such a moment; and the collections of the
server's garbage collector. The verdict is about all requests.

The machine's own processes are kept back and its cores awake (quiet.py), unless `--as-it-is`.

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
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import NamedTuple

from benchmarks import load
from benchmarks.bench import ACCOUNTS, FLAGS, LOAD_CORE, NO_CONTROLLERS, SERVER_CORE
from benchmarks.disturbances import Moment, backlogs, overlaps, watched
from benchmarks.lines import request
from benchmarks.load import UNIQUE, Job
from benchmarks.open_load import OpenLoad, Taken
from benchmarks.quiet import awake, go_first
from benchmarks.setting import Administrator, Stage
from tests.e2e.serving import Server, free_port, running_server

RATE_CONNECTIONS, RATE_SECONDS = 32, 2
ALL_CORES = (SERVER_CORE, LOAD_CORE)
PARTS = 4
OBSERVED = Path(__file__).resolve().parent / "observed"
COMPACTED = ("--history", "10s")  # looked at every 30 s: a run of 40 s sees it at least once
PINNED = ("taskset", "-c", str(SERVER_CORE))
TITLES = ("lowest", "highest", "sent", "p50", "p99", "p99.9", "most", "late")
LOSSES = ("busy", "clock", "waited", "stolen", "disk")


@dataclass(frozen=True)
class Wanted:
    """One line of the table."""

    name: str
    job: Callable[[Stage], Job]
    p99: float  # milliseconds that it must stay under
    writes: bool = False
    parts: int = PARTS


ROWS = (
    Wanted("get", load.get, 5.0),
    Wanted("SelfSubjectReview", load.self_subject_review, 5.0),
    Wanted("TokenReview", load.review_many_tokens, 5.0),
    Wanted("create, on disk", load.create_account, 15.0, writes=True),
)
COMPACTING = Wanted("create, compacting", load.create_account, 15.0, writes=True, parts=1)


class Part(NamedTuple):
    """What came of some seconds of load."""

    sustained: float  # requests a second, just before
    sent: float
    taken: Taken
    busy: float  # part of its core that the server's main thread had
    moments: list[Moment]
    collections: list[str]


@dataclass(frozen=True)
class Observed:
    """A server that notes what its garbage collector does, and objects to ask for."""

    server: Server
    stage: Stage
    notes: Path

    def collections(self) -> list[str]:
        return self.notes.read_text().splitlines()


@dataclass(frozen=True)
class Loading:
    """How a server is loaded."""

    place: Observed
    seconds: int
    awake: tuple[int, ...]  # cores that do not rest meanwhile


def main() -> int:
    options = parse_arguments()
    os.sched_setaffinity(0, {LOAD_CORE})
    if not options.as_it_is and not go_first():
        print("no right to real-time priority: other processes get in the way")
    print(f"{'':20}" + "".join(f"{title:>8}" for title in (*TITLES, *LOSSES)))
    with tempfile.TemporaryDirectory() as directory:
        with observed(Path(directory) / "plain") as place:
            loading = Loading(place, options.seconds, () if options.as_it_is else ALL_CORES)
            measure_bare(ROWS[0], loading)
            fine = [measure_row(row, loading) for row in ROWS]
        with observed(Path(directory) / "compacted", *COMPACTED) as place:
            loading = replace(loading, place=place, seconds=max(40, options.seconds))
            fine.append(measure_row(COMPACTING, loading))
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


def measure_bare(wanted: Wanted, loading: Loading) -> None:
    """Send the requests of a row, at its rates, to a server that does nothing with them."""
    with echo(loading.place.server.data_dir) as (port, pid):
        parts = list(loaded(wanted, loading, port, pid))
    print_row("bare TLS", parts, wanted.p99)
    print()


def measure_row(wanted: Wanted, loading: Loading) -> bool:
    server = loading.place.server
    parts = list(loaded(wanted, loading, server.port, server.pid))
    print_row(wanted.name, parts, wanted.p99)
    refused = sum(part.taken.refused for part in parts)
    if refused:
        print(f"{'':20}  REFUSED {refused}")
    return percentile(all_times(parts), 0.99) <= wanted.p99 and not refused


def loaded(wanted: Wanted, loading: Loading, port: int, pid: int) -> Iterator[Part]:
    """Load a server with half of the lowest rate so far, and watch the machine meanwhile."""
    place, seconds = loading.place, loading.seconds
    job, lowest = wanted.job(place.stage), inf
    written = place.server.data_dir if wanted.writes else None
    for _ in range(wanted.parts):
        rate = min(sustained(job, place.server) for _ in range(PARTS // wanted.parts))
        lowest = min(lowest, rate)
        sent = requests(job, int(lowest / 2 * seconds / wanted.parts * 1.1))
        before = len(place.collections())
        made = OpenLoad(sent, lowest / 2, seconds / wanted.parts, port)
        with awake(loading.awake), watched(pid, SERVER_CORE, written) as watch:
            taken = made.run()
        seen = place.collections()[before:]
        yield Part(rate, lowest / 2, taken, watch.busy, watch.moments(), seen)


def sustained(job: Job, server: Server) -> float:
    """Requests a second, from connections that never pause."""
    return load.measure(
        job, server.url, core=LOAD_CORE, seconds=RATE_SECONDS, connections=RATE_CONNECTIONS
    ).per_second


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


def print_row(name: str, parts: list[Part], limit: float) -> None:
    rates = [each.sustained for each in parts]
    sent = sum(each.sent for each in parts) / len(parts)
    print(
        name.ljust(20) + "".join(f"{each:>8,.0f}" for each in (min(rates), max(rates), sent)),
        end="",
    )
    times = [percentile(all_times(parts), part) for part in (0.5, 0.99, 0.999, 1)]
    times.append(percentile([late for each in parts for late in each.taken.late], 0.99))
    print("".join(f"{each:>8.2f}" for each in times), end="")
    moments = [moment for each in parts for moment in each.moments]
    lost = [sum(column) / len(moments) for column in list(zip(*moments, strict=True))[1:]]
    busy = sum(each.busy for each in parts) / len(parts)
    print("".join(f"{each:>8.1%}" for each in (busy, *lost)), end="")
    print("  ok" if times[1] <= limit else f"  ABOVE {limit:g}")
    print(f"{'':20}  {undisturbed(parts, limit)}")
    print(
        f"{'':20}  {collections([line for each in parts for line in each.collections])}", flush=True
    )


def undisturbed(parts: list[Part], limit: float) -> str:
    """How much of what took too long is the machine's, and the rest by itself."""
    hit = [each for part in parts for each in disturbed(part)]
    times = all_times(parts)
    over = [which for which, took in zip(hit, times, strict=True) if took > limit]
    told = f"above {limit:g} ms: {len(over) / len(times):.2%}"
    told += f", {sum(over) / len(over):.1%} of these disturbed" if over else ""
    rest = [took for which, took in zip(hit, times, strict=True) if not which]
    if not rest:
        return f"{told}; all were disturbed"
    p99, p999, most = (percentile(rest, part) for part in (0.99, 0.999, 1))
    told += f"; undisturbed {len(rest) / len(times):.0%} of all: "
    return f"{told}p99 {p99:.2f}, p99.9 {p999:.2f}, most {most:.2f}"


def disturbed(part: Part) -> list[bool]:
    """Of each request, whether the machine was in its way."""
    spans, taken = backlogs(part.moments), part.taken
    return [
        overlaps((due, due + took / 1000), spans)
        for due, took in zip(taken.due, taken.answered, strict=True)
    ]


def all_times(parts: list[Part]) -> list[float]:
    return [took for part in parts for took in part.taken.answered]


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
    parser.add_argument("--as-it-is", action="store_true", help="do nothing to quiet the machine")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
