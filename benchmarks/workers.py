"""What a request costs with several workers, and what more cores would make of that.

    python -m benchmarks.workers                           one process, two workers, four
    python -m benchmarks.workers --only create --rounds 9

Three servers are asked in turn, over 64 connections each, for half a second at a time: how fast the
machine is changes from second to second, and so it does for all of them alike. Counted is the
processor time per request, by the kernel's clock in nanoseconds, of all processes of a server
together and of the parent alone. From it follows what there would be on N cores:

    rate on N cores = the lesser of N / (time of all processes) and 1 / (time of the parent)

How many times the rate of one process that is follows from each round for itself, and the median
of the rounds counts.

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
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import product
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
from benchmarks.load import JOBS, Job, LoadInTurns
from benchmarks.paired import processor_nanoseconds
from benchmarks.setting import Administrator, Stage
from tests.e2e.serving import Server, running_server
from tests.e2e.worker_processes import children

MUST = {2: 1.7, 4: 3.0}  # by the number of workers: times the rate of one process
CONNECTING_SECONDS = 0.3
TURN_SECONDS = 0.5
SETTLING_SECONDS = 0.03
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


Rounds = list[dict[int, Cost]]  # of each round, by the number of workers
Costs = dict[str, Rounds]  # by row


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

    def begin(self, row: str) -> None:
        """Connect, with one worker."""
        job = self._jobs.setdefault(row, JOBS[row](self._stage))
        self._used = [0, 0, 0]  # nanoseconds of the receiver, of the parent, of all others
        with self._counting(), stopped(self._others):
            self._load = LoadInTurns(job, self._server.url, core=LOAD_CORE, connections=CONNECTIONS)
            time.sleep(CONNECTING_SECONDS)
            self._load.halt()

    def turn(self) -> None:
        with self._counting():
            self._load.go_on()
            time.sleep(TURN_SECONDS)
            self._load.halt()

    def end(self) -> Cost:
        """What a request has cost since the beginning."""
        with self._counting():
            load = self._load.end()
        if load.refused or load.broken:
            raise SystemExit(f"{load.refused} refused, {load.broken} broken")
        return Cost(*(used / 1000 / load.requests for used in self._used))

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Add the time that is used meanwhile, and for what is under way at the end."""
        before = self._spent()
        yield
        time.sleep(SETTLING_SECONDS)
        for who, (now, then) in enumerate(zip(self._spent(), before, strict=True)):
            self._used[who] += now - then

    def _spent(self) -> tuple[int, int, int]:
        parent = processor_nanoseconds(self._server.pid) if self._others else 0
        others = sum(map(processor_nanoseconds, self._others))
        return processor_nanoseconds(self._receiver), parent, others


def pin(pid: int, core: int) -> None:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """Stop processes while the connections are made, so that none of these accepts one."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def main() -> int:
    options = parse_arguments()
    allow_many_connections()
    os.sched_setaffinity(0, {LOAD_CORE})
    rows = [name for name in ROWS if wanted(name, options.only)]
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        servers = [started(Path(directory), workers, stack) for workers in (1, *MUST)]
        costs = {row: rounds_of(servers, row, options.rounds, options.seconds) for row in rows}
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


def rounds_of(servers: list[Asked], row: str, rounds: int, seconds: int) -> Rounds:
    """What a request costs on each server, round by round; the first one only warms them."""
    found = []
    for _ in range(rounds + 1):
        for asked in servers:
            asked.begin(row)
        for _ in range(round(seconds / TURN_SECONDS)):
            for asked in servers:
                asked.turn()
        found.append({asked.workers: asked.end() for asked in servers})
    return found[1:]


def usual(rounds: Rounds, workers: int) -> Cost:
    costs = [found[workers] for found in rounds]
    return Cost(
        median(each.receiver for each in costs),
        median(each.parent for each in costs),
        median(each.others for each in costs),
    )


def times(rounds: Rounds, workers: int) -> str:
    """How many times the rate of one process so many workers have: the median, least and most."""
    found = sorted(each[workers].rate(workers) / each[1].rate(1) for each in rounds)
    return f"**{median(found):.2f}** ({found[0]:.2f} to {found[-1]:.2f})"


def table(costs: Costs) -> Iterator[str]:
    """Costs and what follows from them, as Markdown."""
    heads = [
        f"{n} workers, together | parent | times, must be {must:g}" for n, must in MUST.items()
    ]
    yield f"| Request, us | one process | {' | '.join(heads)} |"
    yield f"|---|---:|{'---:|' * 3 * len(MUST)}"
    for name, rounds in costs.items():
        cells = [f"{usual(rounds, 1).together:.0f}"]
        for workers in MUST:
            cost = usual(rounds, workers)
            cells += [f"{cost.together:.0f}", f"{cost.parent:.0f}", times(rounds, workers)]
        yield f"| {name} | {' | '.join(cells)} |"


def shares(costs: Costs) -> Iterator[str]:
    """Who has which part of a write, and what the parent could carry."""
    for name, workers in product(WRITES, MUST):
        if name in costs:
            cost = usual(costs[name], workers)
            other = cost.others / (workers - 1)
            yield (
                f"{name}, {workers} workers: {cost.receiver:.0f} us in the worker that received"
                f" it, {cost.parent:.0f} us in the parent, {other:.1f} us in each other worker;"
                f" the parent alone could carry {1e6 / cost.parent:,.0f} a second"
            )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="names or their beginnings, with commas between")
    parser.add_argument("--rounds", type=int, default=5, help="how often all is repeated")
    parser.add_argument("--seconds", type=int, default=3, help="for each server in a round")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
