"""`make bench`: measure a server of our own and compare it with the figures to reach.

The server has one core, the load another, over TLS. Reference figures are scaled to this machine
by its speed at P-256 signatures. The last column is the part that was reached of what the machine
allows (limits.py). Prints a table and writes benchmarks/results/latest.json.

    python -m benchmarks.bench --only get,list500 --seconds 8
"""

import argparse
import compileall
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import calls, issuing, load, watchers
from benchmarks.figures import (
    FIGURES,
    MADE_BY_REFERENCE,
    REFERENCE_SIGNATURES,
    Figure,
    Kind,
)
from benchmarks.host import Stolen
from benchmarks.limits import CONSISTS_OF, Limits
from benchmarks.setting import Administrator, NotServed, Stage
from tests.conformance.exchanges import TOKENS
from tests.e2e.serving import Server, running_server

RESULTS = Path(__file__).resolve().parent / "results" / "latest.json"
SOURCE = Path(__file__).resolve().parents[1] / "src"
ISSUER = "https://orchid.test"
FLAGS = (
    *("--token-auth-file", str(TOKENS)),
    *("--service-account-issuer", ISSUER),
    *("--api-audiences", ISSUER),
)
NO_CONTROLLERS = ("--controllers", "")
ACCOUNTS = 500  # as the name of list500 says
SERVER_CORE = 0
LOAD_CORE = 1
COLD_STARTS = 3
HEADER = f"{'':18}{'measured':>16}{'reference':>14}{'ratio':>8}{'must':>8}{'aim':>8}{'limit':>8}"
GUESSED = (
    "?: what the reference would do here is guessed from another machine's figures; "
    "python -m benchmarks.beside asks it"
)
NEEDED = {"wrk": "wrk", "taskset": "util-linux", "openssl": "openssl"}


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    figure: Figure
    measured: float | None = None  # None: could not be measured, and the note says why
    note: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    sound: bool = True  # every request was answered as it should be


def main() -> int:
    options = parse_arguments()
    missing = [package for program, package in NEEDED.items() if shutil.which(program) is None]
    if missing:
        print(f"make bench needs {', '.join(missing)}: apt-get install {' '.join(missing)}")
        return 2
    if not {SERVER_CORE, LOAD_CORE} <= os.sched_getaffinity(0):
        print("make bench needs two cores: one for the server, one for the load")
        return 2
    allow_many_connections()
    # An installed package is compiled already; otherwise a cold start would measure the compiler.
    compileall.compile_dir(SOURCE, quiet=1)
    os.sched_setaffinity(0, {LOAD_CORE})
    rows, stolen = [], Stolen((SERVER_CORE, LOAD_CORE))
    with tempfile.TemporaryDirectory() as directory:
        limits = Limits.measure(SERVER_CORE, LOAD_CORE, Path(directory))
        scale = limits.signatures / REFERENCE_SIGNATURES
        print(f"this machine: {scale:.2f} of the reference's (P-256 signatures per second)")
        print(f"{limits}\n{calls.interpreter()}\n")
        print(HEADER)
        for row in measurements(Path(directory), options):
            print(f"{line(row, scale, limits)}  stolen {stolen.part():.1%}", flush=True)
            rows.append(row)
        if any(row.figure.is_guessed for row in rows):
            print(GUESSED)
        counted = count_calls(Path(directory)) if wanted("calls", options.only) else {}
    write_results(rows, scale, limits, counted)
    return 0


def measurements(directory: Path, options: argparse.Namespace) -> Iterator[Row]:
    chosen = {figure.name: figure for figure in FIGURES if wanted(figure.name, options.only)}
    if "cold-start" in chosen:
        yield cold_start(chosen["cold-start"], directory)
    if chosen.keys() & {*load.JOBS}:
        yield from under_load(chosen, directory / "load", options)
    if "memory" in chosen:
        yield memory(chosen["memory"], directory / "memory", options)
    if "csr-issue" in chosen:
        yield under_issuing(chosen["csr-issue"], directory / "issuing", options)
    if "csr-policy" in chosen:
        yield under_issuing(chosen["csr-policy"], directory / "policies", options, policies=20)
    if chosen.keys() & {"watch-memory", "watch-fanout"}:
        yield from under_watches(chosen, directory / "watches", options)


def cold_start(figure: Figure, directory: Path) -> Row:
    """Start on an empty data directory, keys and all, and ask until it is ready."""
    seconds = []
    for number in range(COLD_STARTS):
        with serving(directory / f"cold-{number}") as server:
            seconds.append(round(server.ready_after, 3))
    return Row(figure, statistics.median(seconds), details={"all": seconds})


def under_load(
    chosen: dict[str, Figure], data_dir: Path, options: argparse.Namespace
) -> Iterator[Row]:
    with serving(data_dir) as server, closing(Administrator(server.url)) as administrator:
        stage = Stage(administrator, accounts=ACCOUNTS)
        for name, make_job in load.JOBS.items():
            if name not in chosen:
                continue
            try:
                job = make_job(stage)
                administrator.send(*job.first())
            except NotServed as answer:
                yield Row(chosen[name], note=str(answer))
                continue
            result = load.measure(
                job,
                server.url,
                core=LOAD_CORE,
                seconds=options.seconds,
                connections=options.connections,
            )
            sound = not (result.refused or result.broken)
            yield Row(chosen[name], result.per_second, load_note(result), asdict(result), sound)


def memory(figure: Figure, data_dir: Path, options: argparse.Namespace) -> Row:
    """After a second of each load, with as many objects as the reference had made in its run.

    A faster server makes more of them in the same time, and would be blamed for it.
    """
    with serving(data_dir) as server, closing(Administrator(server.url)) as administrator:
        stage = Stage(administrator, accounts=ACCOUNTS)
        for name, make_job in load.JOBS.items():
            job = make_job(stage)
            if name in MADE_BY_REFERENCE:
                fill(server.url, job, MADE_BY_REFERENCE[name], options.connections)
            else:
                load.measure(
                    job, server.url, core=LOAD_CORE, seconds=1, connections=options.connections
                )
        note = f"{sum(MADE_BY_REFERENCE.values()):,} objects, as many as the reference made"
        return Row(figure, round(resident_bytes(server) / 1e6, 1), note)


def fill(url: str, job: load.Job, count: int, connections: int) -> None:
    """Send so many requests of a job, each with another name."""

    def send(first: int) -> None:
        with closing(Administrator(url)) as administrator:
            for number in range(first, count, connections):
                body = job.bodies[number % len(job.bodies)].replace(load.UNIQUE, str(number))
                administrator.send(job.method, job.paths[0], body)

    with ThreadPoolExecutor(connections) as threads:
        for _ in threads.map(send, range(connections)):
            pass


def load_note(result: load.Load) -> str:
    note = f"p50 {result.p50:.2f} ms, p99 {result.p99:.2f} ms"
    if result.refused or result.broken:
        note += f"; {result.refused} refused, {result.broken} broken"
    return note


def under_issuing(
    figure: Figure, data_dir: Path, options: argparse.Namespace, policies: int = 0
) -> Row:
    with (
        serving(data_dir, controllers=True) as server,
        closing(Administrator(server.url)) as administrator,
    ):
        for policy in issuing.policies(policies):
            administrator.call("POST", issuing.POLICIES, policy)
        result = issuing.measure(
            server.url,
            server.pid,
            seconds=options.seconds,
            connections=options.connections,
            by_policy=policies > 0,
        )
    note = f"p50 {result.p50:.0f} ms, p99 {result.p99:.0f} ms, {result.cpu_ms:.2f} ms of CPU each"
    return Row(figure, result.per_second, note, asdict(result))


def under_watches(
    chosen: dict[str, Figure], data_dir: Path, options: argparse.Namespace
) -> Iterator[Row]:
    with serving(data_dir) as server, closing(Administrator(server.url)) as administrator:
        result = watchers.measure(
            administrator,
            server.url,
            core=LOAD_CORE,
            watchers=options.watchers,
            events=options.events,
            memory=lambda: resident_bytes(server),
        )
    if "watch-memory" in chosen:
        yield Row(chosen["watch-memory"], round(result.kibibytes_each, 1))
    if "watch-fanout" in chosen:
        note = f"worst {result.worst_ms:.0f} ms, delivered {result.delivered}/{result.expected}"
        sound = result.delivered == result.expected
        yield Row(chosen["watch-fanout"], round(result.median_ms, 1), note, asdict(result), sound)


def count_calls(directory: Path) -> dict[str, float]:
    """Functions written in Python that one request of each sort calls."""
    print(f"\n{calls.HEADER}")
    found = {}
    for row in calls.measured(directory):
        print(row, flush=True)
        found[row.name] = round(row.python, 1)
    return found


def serving(data_dir: Path, *, controllers: bool = False) -> AbstractContextManager[Server]:
    pinned = ("taskset", "-c", str(SERVER_CORE))
    flags = FLAGS if controllers else (*FLAGS, *NO_CONTROLLERS)
    return running_server(data_dir, *flags, launcher=pinned)


def resident_bytes(server: Server) -> float:
    """Add up the memory of the server's processes; they share a process group of their own."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended while we looked
        if int(fields[2]) == server.pid:
            total += int(fields[21]) * resource.getpagesize()
    return total


def line(row: Row, scale: float, limits: Limits) -> str:
    figure = row.figure
    if row.measured is None:
        return f"{figure.name:18}{'-':>16}  not served: {row.note}"
    measured = f"{row.measured:,.1f} {figure.kind.value}"
    if figure.kind is Kind.SECONDS:
        measured = f"{row.measured:.2f} s"
    ratio = figure.ratio(row.measured, scale)
    must, aim = figure.wanted(scale)
    verdict = "aim" if ratio >= aim else "ok" if ratio >= must else "BELOW"
    verdict += "?" if figure.is_guessed else ""
    verdict = verdict if row.sound else "WRONG"
    reached = part_of_limit(row, limits)
    of_limit = "" if reached is None else f"{reached:.0%}"
    return (
        f"{figure.name:18}{measured:>16}{figure.reference_here(scale):>14,.1f}{ratio:>7.1f}x"
        f"{must:>7.1f}x{aim:>7.1f}x{of_limit:>8}  {verdict:6} {row.note}"
    )


def part_of_limit(row: Row, limits: Limits) -> float | None:
    if row.measured is None or row.figure.name not in CONSISTS_OF:
        return None
    return row.measured / limits.most(row.figure.name)


def write_results(rows: list[Row], scale: float, limits: Limits, counted: dict[str, float]) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    content = {
        "commit": commit(),
        "python": platform.python_version(),
        "interpreter": calls.interpreter(),
        "machine": platform.machine(),
        "scale": round(scale, 4),
        "limits": asdict(limits),
        "calls": counted,
        "results": {
            row.figure.name: {
                "measured": row.measured,
                "unit": row.figure.kind.value,
                "reference_here": round(row.figure.reference_here(scale), 1),
                "ratio": row.measured and round(row.figure.ratio(row.measured, scale), 2),
                "must": round(row.figure.wanted(scale)[0], 2),
                "aim": round(row.figure.wanted(scale)[1], 2),
                "part_of_limit": part_of_limit(row, limits),
                "note": row.note,
                "details": row.details,
            }
            for row in rows
        },
    }
    RESULTS.write_text(json.dumps(content, indent=2) + "\n")


def commit() -> str:
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return told.stdout.strip()


def allow_many_connections() -> None:
    """Lift the soft limit on open files, for us and the server that inherits it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def wanted(name: str, only: str) -> bool:
    return not only or any(name.startswith(prefix) for prefix in only.split(","))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="names or their beginnings, with commas between")
    parser.add_argument("--seconds", type=int, default=5, help="how long each load lasts")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--watchers", type=int, default=1000)
    parser.add_argument("--events", type=int, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
