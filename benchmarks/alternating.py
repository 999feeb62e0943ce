"""What a request costs on one server and on another, asked in turn, so that noise hits both.

Two servers have the same core, and the load another. Each is asked for a second or so, again and
again in turn (`compare`); what counts is the processor's time that the server took for a request,
by the kernel's clock in nanoseconds, and of all turns the median. Whatever else the machine does
meanwhile makes requests wait, but hardly makes them dearer.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import load
from tests.e2e.serving import Server

Ask = Callable[[Server], int]
"""Asks a server for a while, and gives the number of requests."""


@dataclass(frozen=True)
class Comparison:
    """The time of a request on both servers, in microseconds of a processor."""

    before: float
    after: float
    spread: float  # of the ratio from turn to turn, in percent: half of the turns lie within

    @property
    def percent(self) -> float:
        """How much more a request costs on the second one."""
        return (self.after / self.before - 1) * 100

    def __str__(self) -> str:
        return (
            f"{self.before:8.1f} us {self.after:8.1f} us {self.percent:+6.1f} %"
            f"   (turns differ by {self.spread:.1f} %)"
        )


def compare(before: Server, after: Server, ask: Ask, turns: int) -> Comparison:
    """Ask both in turn; the first turn only warms them."""
    costs: list[tuple[float, float]] = []
    for turn in range(turns + 1):
        pair = [before, after]
        if turn % 2:
            pair.reverse()
        found = {server.pid: _cost(server, ask) for server in pair}
        if turn:
            costs.append((found[before.pid], found[after.pid]))
    ratio = statistics.median(second / first for first, second in costs)
    ratios = sorted((second / first / ratio - 1) * 100 for first, second in costs)
    quarter = len(ratios) // 4
    base = statistics.median(first for first, _ in costs)
    return Comparison(base, base * ratio, (ratios[-1 - quarter] - ratios[quarter]) / 2)


def by_wrk(job: load.Job, *, core: int, connections: int) -> Ask:
    """A second of requests, as fast as they are answered."""

    def ask(server: Server) -> int:
        found = load.measure(job, server.url, core=core, seconds=1, connections=connections)
        if found.refused or found.broken:
            raise SystemExit(f"{found.refused} refused, {found.broken} broken: {job.first()[1]}")
        return found.requests

    return ask


def _cost(server: Server, ask: Ask) -> float:
    """Microseconds of a processor for each request."""
    begun = processor_nanoseconds(server.pid)
    count = 0
    while not count:  # a busy machine may leave no time for a single answer
        count = ask(server)
    return (processor_nanoseconds(server.pid) - begun) / count / 1000


def processor_nanoseconds(pid: int) -> int:
    """The time that all threads of a process have used of a processor."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in threads)
