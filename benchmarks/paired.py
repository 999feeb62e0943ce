"""What a request costs on one server and on another, both loaded at once, so that noise hits both.

Two servers have the same core, and the loads another. Both are asked for a second or more, again
and again (`measured`). The speed of a machine changes within such a turn: asked one after the
other, two servers that do the same differ by several percent, asked at once by less than one. What
counts is the processor's time that a server took for a request, by the kernel's clock in
nanoseconds, from the beginning of a turn to that of the next: what it leaves for later is not
forgotten. Of all turns the median of the ratios counts (`summed_up`); how sure it is says the
interval beside it.
"""

import math
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks import load
from tests.e2e.serving import Server

Ask = Callable[[Server], int]
"""Asks a server for a while, and gives the number of requests."""

NORMAL_95 = 1.96  # of the normal distribution


@dataclass(frozen=True)
class Comparison:
    """The time of a request on both servers, in microseconds of a processor."""

    before: float
    percent: float  # how much more a request costs on the second one
    least: float  # so much more, at least and at most, with a probability of 95 percent
    most: float

    def __str__(self) -> str:
        after = self.before * (1 + self.percent / 100)
        return (
            f"{self.before:8.1f} us {after:8.1f} us {self.percent:+6.1f} %"
            f"   (95 %: {self.least:+.1f} to {self.most:+.1f} %)"
        )


def measured(before: Server, after: Server, ask: Ask, turns: int) -> list[tuple[float, float]]:
    """What a request cost on both, turn by turn.

    The first turn only warms them, and the last only ends the one before.
    """
    servers = (before, after)
    found: list[tuple[float, float]] = []
    begun, asked = [0, 0], [1, 1]
    with ThreadPoolExecutor(len(servers)) as pool:
        for turn in range(turns + 2):
            used = [processor_nanoseconds(server.pid) for server in servers]
            one, two = (
                (now - then) / count / 1000
                for now, then, count in zip(used, begun, asked, strict=True)
            )
            if turn > 1:
                found.append((one, two))
            begun, asked = used, list(pool.map(requests_asked, servers, (ask, ask)))
    return found


def summed_up(found: list[tuple[float, float]]) -> Comparison:
    more = [(two / one - 1) * 100 for one, two in found]
    before = statistics.median([one for one, _ in found])
    return Comparison(before, statistics.median(more), *bounds(more))


def bounds(found: list[float]) -> tuple[float, float]:
    """Between which two values the median lies, whatever the distribution (the sign test)."""
    ranked, count = sorted(found), len(found)
    below = max(math.floor((count - NORMAL_95 * math.sqrt(count)) / 2), 0)
    return ranked[below], ranked[count - 1 - below]


def by_wrk(job: load.Job, *, core: int, connections: int) -> Ask:
    """A second of requests, as fast as they are answered."""

    def ask(server: Server) -> int:
        found = load.measure(job, server.url, core=core, seconds=1, connections=connections)
        if found.refused or found.broken:
            raise SystemExit(f"{found.refused} refused, {found.broken} broken: {job.first()[1]}")
        return found.requests

    return ask


def requests_asked(server: Server, ask: Ask) -> int:
    count = 0
    while not count:  # a busy machine may leave no time for a single answer
        count = ask(server)
    return count


def processor_nanoseconds(pid: int) -> int:
    """The time that all threads of a process have used of a processor."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in threads)
