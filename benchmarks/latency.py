"""`make latency`: how long requests take at half of the rate that the server can sustain.

Open load, without coordinated omission: requests are due at random moments that are laid down
beforehand (a Poisson process), whatever became of those before, and the time of each runs from the
moment at which it was due. The sustainable rate is what wrk gets from 32 connections that never
pause. The last two rows show what happens beside: a store that is compacted while it is written to,
and the collections of Python's garbage collector, which the server itself is made to note.

    python -m benchmarks.latency --seconds 20
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import uvloop

from benchmarks import load
from benchmarks.bench import ACCOUNTS, FLAGS, LOAD_CORE, NO_CONTROLLERS, SERVER_CORE
from benchmarks.lines import Line, Pacer, request
from benchmarks.load import UNIQUE, Job
from benchmarks.setting import Administrator, Stage
from tests.e2e.serving import Server, running_server

CONNECTIONS = 64
RATE_CONNECTIONS, RATE_SECONDS = 32, 3
OBSERVED = Path(__file__).resolve().parent / "observed"
COMPACTED = ("--history", "10s")  # looked at every 30 s: a run of 40 s sees it at least once


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


class OpenLoad:
    """Requests at their moments, over connections that are taken when they are free."""

    def __init__(self, job: Job, rate: float, seconds: float, lines: list[Line]) -> None:
        self._job, self._rate = job, rate
        self._free = deque(lines)
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._numbers = count()
        self._chance = random.Random(1)  # noqa: S311 -- spread, not secrecy
        self._next = time.monotonic() + 0.1
        self._end = self._next + seconds
        self._open = 0
        self.answered = asyncio.Event()
        self.milliseconds: list[float] = []
        self.refused = 0

    async def run(self) -> None:
        pacer = Pacer(self._due)
        pacer.start(self._next)
        await pacer.over.wait()
        async with asyncio.timeout(60):
            while self._open or self._waiting:
                self.answered.clear()
                await self.answered.wait()

    def _due(self) -> float | None:
        now = time.monotonic()
        while self._next <= now:
            self._waiting.append((self._next, self._made()))
            self._next += self._chance.expovariate(self._rate)
        self._send()
        return self._next if self._next < self._end else None

    def _made(self) -> bytes:
        number, job = next(self._numbers), self._job
        body = job.bodies[number % len(job.bodies)] if job.bodies else ""
        path = job.paths[number % len(job.paths)]
        return request(job.method, path, body.replace(UNIQUE, f"open-{id(self)}-{number}"))

    def _send(self) -> None:
        while self._waiting and self._free:
            due, sent = self._waiting.popleft()
            line = self._free.popleft()
            self._open += 1
            line.ask(sent, lambda status, _body, due=due, line=line: self._done(due, line, status))

    def _done(self, due: float, line: Line, status: int) -> None:
        self.milliseconds.append((time.monotonic() - due) * 1000)
        self.refused += not 200 <= status < 300
        self._open -= 1
        self._free.append(line)
        self._send()
        self.answered.set()


async def loaded(job: Job, rate: float, seconds: float, port: int) -> OpenLoad:
    lines = [await Line.open(port) for _ in range(CONNECTIONS)]
    made = OpenLoad(job, rate, seconds, lines)
    await made.run()
    for line in lines:
        line.close()
    return made


def main() -> int:
    options = parse_arguments()
    os.sched_setaffinity(0, {LOAD_CORE})
    print(f"{'':22}{'rate':>9}{'half':>8}{'p50':>8}{'p99':>8}{'p99.9':>8}{'most':>8}  ms")
    with tempfile.TemporaryDirectory() as directory:
        fine = measured(Path(directory) / "plain", ROWS, options.seconds, "")
        row = Wanted("create, compacting", load.create_account, 15.0)
        fine &= measured(
            Path(directory) / "compacted", (row,), max(40, options.seconds), *COMPACTED
        )
    return 0 if fine else 1


def measured(data_dir: Path, rows: tuple[Wanted, ...], seconds: int, *flags: str) -> bool:
    """Measure some rows on a server of their own; say whether all are as wanted."""
    notes = data_dir.with_suffix(".collections")
    notes.touch()
    pinned = ("taskset", "-c", str(SERVER_CORE))
    env = {"PYTHONPATH": f"{OBSERVED}", "ORCHID_BENCH_COLLECTIONS": str(notes)}
    flags = tuple(filter(None, flags))
    with (
        running_server(
            data_dir, *FLAGS, *NO_CONTROLLERS, *flags, launcher=pinned, env=env
        ) as server,
        closing(Administrator(server.url)) as administrator,
    ):
        stage = Stage(administrator, accounts=ACCOUNTS)
        before = len(notes.read_text().splitlines())
        fine = [measure_row(row, stage, server, seconds) for row in rows]
        told = notes.read_text().splitlines()[before:]
    print(f"  collections meanwhile: {collections(told)}")
    return all(fine)


def measure_row(row: Wanted, stage: Stage, server: Server, seconds: int) -> bool:
    job = row.job(stage)
    most = load.measure(
        job, server.url, core=LOAD_CORE, seconds=RATE_SECONDS, connections=RATE_CONNECTIONS
    )
    rate = most.per_second / 2
    result = uvloop.run(loaded(job, rate, seconds, server.port))
    taken = sorted(result.milliseconds)
    p50, p99, p999 = (taken[int(len(taken) * part)] for part in (0.5, 0.99, 0.999))
    fine = p99 <= row.p99 and not result.refused
    verdict = "ok" if fine else f"ABOVE {row.p99:g}" if not result.refused else "WRONG"
    print(
        f"{row.name:22}{most.per_second:>9,.0f}{rate:>8,.0f}{p50:>8.2f}{p99:>8.2f}{p999:>8.2f}"
        f"{taken[-1]:>8.2f}  {verdict}",
        flush=True,
    )
    return fine


def collections(lines: list[str]) -> str:
    """How often each generation was collected, and how long that took at most."""
    took: dict[str, list[float]] = {}
    for line in lines:
        generation, milliseconds = line.split()
        took.setdefault(generation, []).append(float(milliseconds))
    told = (
        f"generation {generation}: {len(each)}, the longest {max(each):.1f} ms"
        for generation, each in sorted(took.items())
    )
    return "; ".join(told) or "none"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make latency", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=20, help="how long each load lasts")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
