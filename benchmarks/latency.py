"""`make latency`: how long requests take at half of the rate that the server can sustain.

Open load, without coordinated omission: see open_load.py. The sustainable rate is what wrk gets
from 32 connections that never pause. A row consists of parts: the rate is measured, then for some
seconds half of the median so far is sent. The first row is a bare TLS server that answers every
request with the same bytes (echo.py) at the rates of the second: what the machine, the interpreter
and the load generator need by themselves. The last row is a store that is compacted while it is
written to.

A part counts if nothing stood still in it for longer than a request may take: the server's core,
the generator's, or the disk that is written to. While the host has one of them nobody can answer.
Other parts are asked again, for a while. The verdict is about all requests of those that count.

Beside each row: how late the generator was (p99), the part of its core that the server's main
thread had, and what the machine lost meanwhile (disturbances.py). Below it: how many requests took
longer than they may, how many of these while the machine was in the way or its backlog was not
worked off, and the percentiles of all requests without such a moment; then the parts that do not
count, with the percentiles of all; and the collections of the server's garbage collector.

The machine's own processes are kept back and its cores awake (quiet.py), unless `--as-it-is`.

    python -m benchmarks.latency --seconds 20
"""

import argparse
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median_low
from typing import NamedTuple

from benchmarks import bench, echo, load
from benchmarks.bench import ACCOUNTS, FLAGS, LOAD_CORE, NO_CONTROLLERS, SERVER_CORE
from benchmarks.disturbances import Moment, backlogs, overlaps, watched
from benchmarks.lines import request
from benchmarks.load import UNIQUE, Job
from benchmarks.open_load import OpenLoad, Taken
from benchmarks.quiet import awake, go_first
from benchmarks.setting import Administrator, Stage
from tests.e2e.serving import Server, running_server

RATE_CONNECTIONS, RATE_SECONDS = 32, 2
ALL_CORES = (SERVER_CORE, LOAD_CORE)
PARTS = 4
MOST_PARTS = 24  # of a row, with those that do not count
OBSERVED = Path(__file__).resolve().parent / "observed"
COMPACTED = ("--history", "10s")  # looked at every 30 s
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
    compacts: bool = False  # only parts count in which history was compacted
    parts: int = PARTS


ROWS = (
    Wanted("get", load.get, 5.0),
    Wanted("SelfSubjectReview", load.self_subject_review, 5.0),
    Wanted("TokenReview", load.review_many_tokens, 5.0),
    Wanted("create, on disk", load.create_account, 15.0, writes=True),
)
COMPACTING = Wanted(
    "create, compacting", load.create_account, 15.0, writes=True, compacts=True, parts=2
)


class Part(NamedTuple):
    """What came of some seconds of load."""

    sustained: float  # requests a second, just before
    sent: float
    taken: Taken
    busy: float  # part of its core that the server's main thread had
    moments: list[Moment]
    collections: list[str]
    stood_still: float  # milliseconds: the longest time without a core or the disk
    compacted: bool

    def counts(self, wanted: Wanted) -> bool:
        return self.stood_still <= wanted.p99 and (self.compacted or not wanted.compacts)


@dataclass(frozen=True)
class Observed:
    """A server that notes what its garbage collector does, and objects to ask for."""

    server: Server
    stage: Stage
    notes: Path

    def collections(self) -> list[str]:
        return self.notes.read_text().splitlines()

    def compacted(self) -> int:
        """How far the store's history was compacted."""
        database = f"file:{self.server.data_dir}/orchid.db?mode=ro"
        with closing(sqlite3.connect(database, uri=True)) as connection:
            found = connection.execute("SELECT swept FROM state").fetchone()
        return int(found[0])


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
            fine = [
                measure_row(row, loading) for row in ROWS if bench.wanted(row.name, options.only)
            ]
        if bench.wanted(COMPACTING.name, options.only):
            with observed(Path(directory) / "compacted", *COMPACTED) as place:
                fine.append(measure_row(COMPACTING, replace(loading, place=place)))
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
    with echo.running(loading.place.server.data_dir.parent, SERVER_CORE) as (port, pid):
        parts = enough(wanted, loaded(wanted, loading, port, pid))
    print_row("bare TLS", parts, wanted)
    print()


def measure_row(wanted: Wanted, loading: Loading) -> bool:
    server = loading.place.server
    parts = enough(wanted, loaded(wanted, loading, server.port, server.pid))
    return print_row(wanted.name, parts, wanted)


def enough(wanted: Wanted, parts: Iterator[Part]) -> list[Part]:
    """Parts until as many count as are wanted, or too many do not."""
    taken: list[Part] = []
    while len(taken) < MOST_PARTS and sum(part.counts(wanted) for part in taken) < wanted.parts:
        taken.append(next(parts))
    return taken


def loaded(wanted: Wanted, loading: Loading, port: int, pid: int) -> Iterator[Part]:
    """Load a server with half of its rate, and watch the machine meanwhile."""
    place, seconds = loading.place, loading.seconds / wanted.parts
    job, rates = wanted.job(place.stage), list[float]()
    written = place.server.data_dir if wanted.writes else None
    while True:
        rates.append(sustained(job, place.server))
        half = median_low(rates) / 2
        sent = requests(job, int(half * seconds * 1.1))
        collected, compacted = len(place.collections()), place.compacted()
        made = OpenLoad(sent, half, seconds, port)
        with awake(loading.awake), watched(pid, SERVER_CORE, written) as watch:
            taken = made.run()
        yield Part(
            rates[-1],
            half,
            taken,
            watch.busy,
            watch.moments(),
            place.collections()[collected:],
            stood_still=max(watch.stood_still * 1000, *taken.late),
            compacted=place.compacted() > compacted,
        )


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


def print_row(name: str, taken: list[Part], wanted: Wanted) -> bool:
    """Print what came of a row; tell if enough parts count and keep the limit."""
    counting = [part for part in taken if part.counts(wanted)]
    parts = counting or taken
    rates = [each.sustained for each in parts]
    sent = sum(each.sent for each in parts) / len(parts)
    print(
        name.ljust(20) + "".join(f"{each:>8,.0f}" for each in (min(rates), max(rates), sent)),
        end="",
    )
    times = percentiles(all_times(parts))
    late = percentile([late for each in parts for late in each.taken.late], 0.99)
    print("".join(f"{each:>8.2f}" for each in (*times, late)), end="")
    moments = [moment for each in parts for moment in each.moments]
    lost = [sum(column) / len(moments) for column in list(zip(*moments, strict=True))[1:]]
    busy = sum(each.busy for each in parts) / len(parts)
    print("".join(f"{each:>8.1%}" for each in (busy, *lost)), end="")
    wrong = ""
    if len(counting) < wanted.parts:
        wrong = "TOO FEW PARTS COUNT"
    elif any(part.taken.refused for part in counting):
        wrong = f"REFUSED {sum(part.taken.refused for part in counting)}"
    elif times[1] > wanted.p99:
        wrong = f"ABOVE {wanted.p99:g}"
    print(f"  {wrong or 'ok'}")
    print(f"{'':20}  {undisturbed(parts, wanted.p99)}")
    print(f"{'':20}  {left_out(taken, wanted)}")
    lines = [line for each in parts for line in each.collections]
    print(f"{'':20}  {collections(lines)}", flush=True)
    return not wrong


def left_out(taken: list[Part], wanted: Wanted) -> str:
    """How many parts do not count and why, and all that was taken, with them."""
    still = [part.stood_still for part in taken if part.stood_still > wanted.p99]
    told = f"{len(taken)} parts"
    if still:
        told += f", {len(still)} left out: "
        told += f"the machine stood still for {min(still):.1f} to {max(still):.1f} ms"
    if wanted.compacts:
        told += f", {sum(not part.compacted for part in taken)} without compaction"
    p50, p99, p999, most = percentiles(all_times(taken))
    return f"{told}; all of them: p50 {p50:.2f}, p99 {p99:.2f}, p99.9 {p999:.2f}, most {most:.2f}"


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
    _, p99, p999, most = percentiles(rest)
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


def percentiles(times: list[float]) -> list[float]:
    """The middle, p99, p99.9 and the most."""
    return [percentile(times, part) for part in (0.5, 0.99, 0.999, 1)]


def percentile(times: list[float], part: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * part))]


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
    parser.add_argument("--only", default="", help="names or their beginnings, with commas between")
    parser.add_argument("--as-it-is", action="store_true", help="do nothing to quiet the machine")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
