"""What a request costs with several workers, and what more cores would make of that.

    python -m benchmarks.workers                           one process, two workers, four
    python -m benchmarks.workers --only create --rounds 9

Three servers are asked in turn, over 64 connections. Counted is the processor time per request, of
all processes of a server together and of the parent alone: the median of several rounds, since
others may be busy beside it. From it follows what there would be on N cores:

    rate on N cores = the lesser of N / (time of all processes) and 1 / (time of the parent)

A write costs the worker that receives it and the parent, and each other worker for taking it in.
With N cores no two workers share one, and a worker that shares its core with another runs a fifth
slower, since they push each other out of its caches. So one worker gets all requests, and has a
core with the parent alone, as the one process has it alone; the others take in what it writes on
the core of the load. To send all connections to one worker, the others are stopped for a moment.
"""

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Timer

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
CONNECTING_SECONDS = 0.5
CONNECTIONS = 64  # the same for all servers: a handshake costs as much as many requests
ROWS = ("get", "selfsubjectreview", "tokenreview-many", "tokenrequest", "create", "csr-create")
WRITES = ("create", "csr-create")


@dataclass(frozen=True)
class Cost:
    """Microseconds of processor time for one request."""

    receiver: float  # in the worker that was asked, or in the one process
    parent: float = 0.0
    others: float = 0.0  # in all other workers together

    @property
    def together(self) -> float:
        return self.receiver + self.parent + self.others

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
        started = sorted(children(server)) if workers > 1 else []
        self._receiver = started[0] if started else server.pid
        self._others = started[1:]
        for pid in (server.pid, self._receiver):
            pin(pid, SERVER_CORE)
        for pid in self._others:
            pin(pid, LOAD_CORE)

    def cost(self, row: str, seconds: int) -> Cost:
        job = self._jobs.setdefault(row, JOBS[row](self._stage))
        before = self._spent()
        with stopped_for_a_moment(self._others):
            load = measure(
                job,
                self._server.url,
                core=LOAD_CORE,
                seconds=seconds,
                connections=CONNECTIONS,
            )
        if load.refused or load.broken:
            raise SystemExit(f"{row}: {load.refused} refused, {load.broken} broken")
        receiver, parent, others = (
            (now - then) * 1e6 / load.requests
            for now, then in zip(self._spent(), before, strict=True)
        )
        return Cost(receiver, parent, others)

    def _spent(self) -> tuple[float, float, float]:
        parent = processor_seconds(self._server.pid) if self._others else 0.0
        return processor_seconds(self._receiver), parent, sum(map(processor_seconds, self._others))


def pin(pid: int, core: int) -> None:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


@contextmanager
def stopped_for_a_moment(pids: list[int]) -> Iterator[None]:
    """Stop processes while the connections are made, so that none of these accepts one."""

    def go_on() -> None:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    timer = Timer(CONNECTING_SECONDS, go_on)
    timer.start()
    try:
        yield
    finally:
        timer.join()


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
    flags = (*FLAGS, *NO_CONTROLLERS, "--workers", str(workers))
    anywhere = ("taskset", "-c", f"{SERVER_CORE},{LOAD_CORE}")
    server = stack.enter_context(
        running_server(directory / f"{workers}", *flags, launcher=anywhere, ready_seconds=120)
    )
    administrator = stack.enter_context(closing(Administrator(server.url)))
    return Asked(server, workers, Stage(administrator, accounts=ACCOUNTS))


def usual(servers: list[Asked], row: str, rounds: int, seconds: int) -> dict[int, Cost]:
    """Of each server what a request usually costs; the first round only warms it up."""
    found: dict[int, list[Cost]] = {asked.workers: [] for asked in servers}
    for _ in range(rounds + 1):
        for asked in servers:
            found[asked.workers].append(asked.cost(row, seconds))
    return {workers: usual_cost(costs[1:]) for workers, costs in found.items()}


def usual_cost(costs: list[Cost]) -> Cost:
    return Cost(
        median(each.receiver for each in costs),
        median(each.parent for each in costs),
        median(each.others for each in costs),
    )


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
        for workers, cost in costs[name].items():
            if name in WRITES and workers > 1:
                other = cost.others / (workers - 1)
                yield (
                    f"{name}, {workers} workers: {cost.receiver:.0f} us in the worker that received"
                    f" it, {cost.parent:.0f} us in the parent, {other:.1f} us in each other worker;"
                    f" the parent alone could carry {1e6 / cost.parent:,.0f} a second"
                )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="names or their beginnings, with commas between")
    parser.add_argument("--rounds", type=int, default=5, help="how often each server is asked")
    parser.add_argument("--seconds", type=int, default=3, help="how long each load lasts")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
