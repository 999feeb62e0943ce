"""Two servers in one sitting: one of our own and another that speaks the same API, asked in turn.

The other one runs already, with tests/conformance/tokens.csv, in the names of Kubernetes, pinned to
core 0; so does ours. Each row is asked for a while on one and then on the other, again and again,
while the processes of the one that is not asked are stopped. Of all turns the median of the ratios
counts, so that a machine that is slower for a minute is slower for both. Before each turn comes a
second that does not count.

    python -m benchmarks.beside --url https://127.0.0.1:16443 --pids 4711,4712 --turns 7
"""

import argparse
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import load
from benchmarks.bench import ACCOUNTS, LOAD_CORE, serving, wanted
from benchmarks.figures import FIGURES
from benchmarks.paired import bounds
from benchmarks.setting import Administrator, Stage

HEADER = f"{'':18}{'ours':>12}{'other':>12}{'ratio':>8}{'95 %':>16}{'must':>8}"


def in_kubernetes_names(text: str) -> str:
    return text.replace(".orch.io", ".k8s.io")


class KubernetesAdministrator(Administrator):
    """The same calls in the names of Kubernetes."""

    def send(self, method: str, path: str, content: str | None) -> bytes:
        return super().send(
            method, in_kubernetes_names(path), content and in_kubernetes_names(content)
        )


@dataclass(frozen=True)
class Side:
    """One of the two servers."""

    url: str
    pids: tuple[int, ...]
    stage: Stage
    kubernetes: bool

    def job(self, name: str) -> load.Job:
        job = load.JOBS[name](self.stage)
        if not self.kubernetes:
            return job
        return replace(
            job,
            paths=[in_kubernetes_names(path) for path in job.paths],
            bodies=[in_kubernetes_names(body) for body in job.bodies],
        )


@contextmanager
def stopped(side: Side) -> Iterator[None]:
    """Have a server do nothing at all for a while."""
    for pid in side.pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in side.pids:
            os.kill(pid, signal.SIGCONT)


def rates(name: str, asked: Side, other: Side, options: argparse.Namespace) -> float:
    job, connections = asked.job(name), options.connections
    with stopped(other):
        # It was stopped until now: of this second it may need some to find its way back.
        load.measure(job, asked.url, core=LOAD_CORE, seconds=1, connections=connections)
        found = load.measure(
            job, asked.url, core=LOAD_CORE, seconds=options.seconds, connections=connections
        )
    if found.refused or found.broken:
        raise SystemExit(f"{name} at {asked.url}: {found.refused} refused, {found.broken} broken")
    return found.per_second


def compared(ours: Side, other: Side, options: argparse.Namespace) -> Iterator[str]:
    for figure in FIGURES:
        name = figure.name
        if name not in load.JOBS or not wanted(name, options.only):
            continue
        pairs = [
            (rates(name, ours, other, options), rates(name, other, ours, options))
            for _ in range(options.turns)
        ]
        found = [one / two for one, two in pairs]
        middle, (least, most) = statistics.median(found), bounds(found)
        one, two = (statistics.median(side) for side in zip(*pairs, strict=True))
        verdict = "ok" if middle >= figure.must else "BELOW"
        yield (
            f"{name:18}{one:>10,.0f}/s{two:>10,.0f}/s{middle:>7.1f}x"
            f"{f'{least:.1f} to {most:.1f}':>16}{figure.must:>7.1f}x  {verdict}"
        )


def main() -> int:
    options = parse_arguments()
    os.sched_setaffinity(0, {LOAD_CORE})
    with (
        tempfile.TemporaryDirectory() as directory,
        serving(Path(directory)) as server,
        closing(Administrator(server.url)) as ours,
        closing(KubernetesAdministrator(options.url)) as other,
    ):
        pids = tuple(int(pid) for pid in options.pids.split(","))
        sides = (
            Side(server.url, (server.pid,), Stage(ours, ACCOUNTS), kubernetes=False),
            Side(options.url, pids, Stage(other, ACCOUNTS), kubernetes=True),
        )
        for side in sides:
            side.stage.tokens()  # while its connection is still open
        print(HEADER)
        for line in compared(*sides, options):
            print(line, flush=True)
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.beside", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--url", required=True, help="of the other server")
    parser.add_argument("--pids", required=True, help="its processes, with commas between")
    parser.add_argument("--only", default="", help="names or their beginnings, with commas between")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2, help="how long each turn lasts")
    parser.add_argument("--connections", type=int, default=32)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
