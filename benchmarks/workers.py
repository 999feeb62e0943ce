"""What a request costs with several workers, and what more cores would make of that.

    python -m benchmarks.workers                           one process, two workers, four
    python -m benchmarks.workers --only create --rounds 9

Three servers are asked in turn, over 64 connections. Counted is the processor time per request, of
all processes of a server together and of the parent alone: the median of several rounds, since
others may be busy beside it. From it follows what there would be on N cores:

    rate on N cores = the lesser of N / (time of all processes) and 1 / (time of the parent)

A write costs the worker that received it and the parent, and each other worker for taking it in;
the last lines tell them apart, by the difference between two and four workers. All processes of a
server share one core meanwhile, so how they would get into each other's way on several is not in
the model.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.bench import (
    ACCOUNTS,
    FLAGS,
    LOAD_CORE,
    NO_CONTROLLERS,
    SERVER_CORE,
    allow_many_connections,
    wanted,
)
from benchmarks.issuing import processor_seconds
from benchmarks.load import JOBS, Job, measure
from benchmarks.setting import Administrator, Stage
from tests.e2e.serving import Server, running_server
from tests.e2e.worker_processes import children

MUST = {2: 1.7, 4: 3.0}  # by the number of workers: times the rate of one process
CONNECTIONS = 64  # the same for all servers: a handshake costs as much as many requests
ROWS = ("get", "selfsubjectreview", "tokenreview-many", "tokenrequest", "create", "csr-create")
WRITES = ("create", "csr-create")


@dataclass(frozen=True)
class Cost:
    """Microseconds of processor time for one request."""

    together: float
    parent: float

    def rate(self, cores: int) -> float:
        """Requests a second that so many cores would carry."""
        return 1e6 * min(cores / self.together, 1 / self.parent if self.parent else cores)


Costs = dict[str, dict[int, Cost]]  # by row and number of workers


class Asked:
    """One of the servers, and what it is asked."""

    def __init__(self, server: Server, workers: int, stage: Stage) -> None:
        self.workers = workers
        self._server = server
        self._stage = stage
        self._jobs: dict[str, Job] = {}

    def cost(self, row: str, seconds: int) -> Cost:
        job = self._jobs.setdefault(row, JOBS[row](self._stage))
        server, workers = self._server, self.workers
        parent, others = processor_seconds(server.pid), in_children(server)
        load = measure(
            job,
            server.url,
            core=LOAD_CORE,
            seconds=seconds,
            connections=CONNECTIONS,
        )
        if load.refused or load.broken:
            raise SystemExit(f"{row}: {load.refused} refused, {load.broken} broken")
        parent, others = processor_seconds(server.pid) - parent, in_children(server) - others
        each = 1e6 / load.requests
        return Cost((parent + others) * each, parent * each if workers > 1 else 0.0)


def in_children(server: Server) -> float:
    return sum(map(processor_seconds, children(server)))


def main() -> int:
    options = parse_arguments()
    allow_many_connections()
    os.sched_setaffinity(0, {LOAD_CORE})
    rows = [name for name in ROWS if wanted(name, options.only)]
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        servers = [started(Path(directory), workers, stack) for workers in (1, *MUST)]
        costs = {row: usual(servers, row, options.rounds, options.seconds) for row in rows}
    print(*table(costs), "", *shares(costs), sep="\n")
    return 0


def started(directory: Path, workers: int, stack: ExitStack) -> Asked:
    pinned = ("taskset", "-c", str(SERVER_CORE))
    flags = (*FLAGS, *NO_CONTROLLERS, "--workers", str(workers))
    server = stack.enter_context(
        running_server(directory / f"{workers}", *flags, launcher=pinned, ready_seconds=120)
    )
    administrator = stack.enter_context(closing(Administrator(server.url)))
    return Asked(server, workers, Stage(administrator, accounts=ACCOUNTS))


def usual(servers: list[Asked], row: str, rounds: int, seconds: int) -> dict[int, Cost]:
    """Of each server what a request usually costs; the first round only warms it up."""
    found: dict[int, list[Cost]] = {asked.workers: [] for asked in servers}
    for _ in range(rounds + 1):
        for asked in servers:
            found[asked.workers].append(asked.cost(row, seconds))
    return {
        workers: Cost(median(c.together for c in costs[1:]), median(c.parent for c in costs[1:]))
        for workers, costs in found.items()
    }


def table(costs: Costs) -> Iterator[str]:
    """Costs and what follows from them, as Markdown."""
    heads = [
        f"{n} workers, together | parent | times, must be {must:g}" for n, must in MUST.items()
    ]
    yield f"| Request, us | one process | {' | '.join(heads)} |"
    yield f"|---|---:|{'---:|' * 3 * len(MUST)}"
    for name, by_workers in costs.items():
        alone = by_workers[1]
        cells = [f"{alone.together:.0f}"]
        for workers in MUST:
            cost = by_workers[workers]
            times = cost.rate(workers) / alone.rate(1)
            cells += [f"{cost.together:.0f}", f"{cost.parent:.0f}", f"{times:.2f}"]
        yield f"| {name} | {' | '.join(cells)} |"


def shares(costs: Costs) -> Iterator[str]:
    """Who has which part of a write, and what the parent could carry."""
    for name in costs:
        if name in WRITES:
            two, four = costs[name][2], costs[name][4]
            other = ((four.together - four.parent) - (two.together - two.parent)) / 2
            received = two.together - two.parent - other
            yield (
                f"{name}: {received:.0f} us in the worker that received it, {four.parent:.0f} us in"
                f" the parent, {other:.0f} us in each other worker; the parent alone could carry"
                f" {1e6 / four.parent:,.0f} a second"
            )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="names or their beginnings, with commas between")
    parser.add_argument("--rounds", type=int, default=5, help="how often each server is asked")
    parser.add_argument("--seconds", type=int, default=3, help="how long each load lasts")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
