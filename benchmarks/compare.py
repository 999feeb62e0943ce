"""`make bench`: what each kind of request costs, on one server or on two servers in turn.

    python -m benchmarks.compare                                    this checkout by itself
    python -m benchmarks.compare --url URL --pids 4711,4712         beside the reference, which runs
    python -m benchmarks.compare --checkout ../before               beside another checkout
    python -m benchmarks.compare --other-flags='--workers 2'        beside itself with other flags
    python -m benchmarks.compare --revocations 100000               beside itself with revocations

The second server is always the one to compare with. It is stopped while the first one is loaded,
and the other way round. The reference must run on core 0 with tests/conformance/tokens.csv and the
names of Kubernetes. Prints a table and writes benchmarks/results/compare.json. Exit code 1: a
figure of figures.py was not reached.
"""

import argparse
import compileall
import shlex
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks import filling, harness, issuing, load, watchers
from benchmarks.figures import AT_LEAST, AT_MOST, RATIOS, RATIOS_ON_ETCD
from benchmarks.harness import LOAD_CORE, NO_CONTROLLERS, Cost, Ratio, Target, Unsuitable
from benchmarks.setting import Administrator, Stage
from tests.e2e.serving import Server

ACCOUNTS = 500  # as the name of list500 says
COLD_STARTS = 3
WATCHERS, EVENTS = 1000, 20
POLICIES = 20
MADE = 11_000  # objects for the row "memory", as many as the reference had
SOURCE = Path(__file__).resolve().parents[1] / "src"
ALONE = f"{'':20}{'measured':>16}{'CPU':>12}{'must':>10}"
BESIDE = f"{'':20}{'first':>12}{'second':>12}{'rate, times':>24}{'CPU, times':>24}{'must':>8}"


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
    """One of the servers."""

    url: str
    pids: tuple[int, ...]
    stage: Stage
    kubernetes: bool = False

    def target(self, row: str, options: argparse.Namespace) -> Target:
        """The server with the load of one row."""
        settings = {"seconds": options.seconds, "connections": options.connections}
        if row in ISSUING:
            by_policy = row == "csr-policy"
            if by_policy:
                self.stage.create(issuing.POLICIES, issuing.policies(POLICIES))
            issue = partial(issuing.issue, self.url, by_policy=by_policy, **settings)
            return Target(self.pids, issue)
        job = load.JOBS[row](self.stage)
        if self.kubernetes:
            job = replace(
                job,
                paths=[in_kubernetes_names(path) for path in job.paths],
                bodies=[in_kubernetes_names(body) for body in job.bodies],
            )
        return Target(self.pids, partial(load.send, row, job, self.url, **settings))


ISSUING = ("csr-issue", "csr-policy")  # the second one changes who approves, so it is last
ROWS = (*load.JOBS, *ISSUING)
OURS_ALONE = ("cluster-review", *ISSUING)  # Kubernetes has no such request, or limits its rate


# --- two servers ------------------------------------------------------------------------------


def beside(first: Side, second: Side, options: argparse.Namespace) -> bool:
    """Compare all rows; whether every figure was reached."""
    print(BESIDE)
    ratios = RATIOS_ON_ETCD if "--etcd-servers" in options.flags else RATIOS
    found, reached = {}, True
    for row in ROWS:
        if not harness.selected(row, options.only) or (second.kubernetes and row in OURS_ALONE):
            continue
        targets = (first.target(row, options), second.target(row, options))
        turns = list(harness.compare(*targets, options.turns))
        rate = Ratio.of([one.per_second / two.per_second for one, two in turns])
        cpu = Ratio.of([one.cpu_us / two.cpu_us for one, two in turns])
        must = ratios.get(row) if second.kubernetes else None
        reached &= must is None or rate.median >= must
        print(beside_line(row, turns, rate, cpu, must), flush=True)
        found[row] = {"rate": asdict(rate), "cpu": asdict(cpu)}
    harness.write_results("compare", {"rows": found})
    return reached


def beside_line(
    row: str, turns: list[tuple[Cost, Cost]], rate: Ratio, cpu: Ratio, must: float | None
) -> str:
    one, two = (
        statistics.median(cost.per_second for cost in side) for side in zip(*turns, strict=True)
    )
    wanted = "" if must is None else f"{must:>7.1f}x{'' if rate.median >= must else '  BELOW'}"
    return f"{row:20}{one:>10,.0f}/s{two:>10,.0f}/s{rate!s:>24}{cpu!s:>24}{wanted}"


# --- one server -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One measurement of a server by itself."""

    name: str
    value: float
    unit: str
    cpu_us: float | None = None

    @property
    def reached(self) -> bool:
        low = self.value >= AT_LEAST.get(self.name, self.value)
        return low and self.value <= AT_MOST.get(self.name, self.value)

    def __str__(self) -> str:
        cpu = "" if self.cpu_us is None else f"{self.cpu_us:,.0f} us"
        must = AT_LEAST.get(self.name, AT_MOST.get(self.name))
        wanted = "" if must is None else f"{must:g}"
        verdict = "" if self.reached else "  MISSED"
        return f"{self.name:20}{self.value:>12,.1f} {self.unit:3}{cpu:>12}{wanted:>10}{verdict}"


def alone(directory: Path, options: argparse.Namespace) -> bool:
    """Measure a server of this checkout by itself; whether every figure was reached."""
    print(ALONE)
    rows = []
    for row in measurements(directory, options):
        print(row, flush=True)
        rows.append(row)
    harness.write_results("compare", {"rows": {row.name: asdict(row) for row in rows}})
    return all(row.reached for row in rows)


def measurements(directory: Path, options: argparse.Namespace) -> Iterator[Row]:
    sections: dict[str, Callable[[Path, argparse.Namespace], Iterator[Row]]] = {
        "cold-start": cold_start,
        "watch": watches,
        "memory": memory,
    }
    for name, measure in sections.items():
        if harness.selected(name, options.only):
            yield from measure(directory / name, options)
    with ExitStack() as opened:
        side = started(opened, directory / "load", options.flags)
        for row in ROWS:
            if harness.selected(row, options.only):
                cost = harness.cost(side.target(row, options))
                yield Row(row, cost.per_second, "/s", cost.cpu_us)


def cold_start(directory: Path, options: argparse.Namespace) -> Iterator[Row]:
    """From an empty data directory to the first 200 of /readyz; the median of several."""
    seconds = []
    for number in range(COLD_STARTS):
        with harness.serving(directory / str(number), *NO_CONTROLLERS) as server:
            seconds.append(server.ready_after)
    yield Row("cold-start", statistics.median(seconds), "s")


def watches(directory: Path, options: argparse.Namespace) -> Iterator[Row]:
    with (
        harness.serving(directory, *NO_CONTROLLERS) as server,
        closing(Administrator(server.url)) as administrator,
    ):
        result = watchers.measure(
            administrator,
            server.url,
            core=LOAD_CORE,
            watchers=WATCHERS,
            events=EVENTS,
            memory=lambda: harness.resident_bytes(harness.processes(server)),
        )
    if result.delivered != result.expected:
        raise SystemExit(f"{result.delivered} of {result.expected} events were delivered")
    yield Row("watch-memory", result.kibibytes_each, "KiB")
    yield Row("watch-fanout", result.median_ms, "ms")


def memory(directory: Path, options: argparse.Namespace) -> Iterator[Row]:
    """Memory of a server with as many accounts as the reference had objects."""
    with (
        harness.serving(directory, *NO_CONTROLLERS) as server,
        closing(Administrator(server.url)) as administrator,
    ):
        Stage(administrator, accounts=MADE)
        size = harness.resident_bytes(harness.processes(server))
    yield Row("memory", size / 1e6, "MB")


# --- starting ---------------------------------------------------------------------------------


def started(
    opened: ExitStack,
    data_dir: Path,
    flags: str,
    *,
    checkout: Path | None = None,
) -> Side:
    """A server with its stage; with controllers, since certificates are issued too."""
    server: Server = opened.enter_context(
        harness.serving(data_dir, *shlex.split(flags), checkout=checkout)
    )
    administrator = opened.enter_context(closing(Administrator(server.url)))
    stage = Stage(administrator, ACCOUNTS)
    stage.tokens()  # while the connection is fresh
    return Side(server.url, harness.processes(server), stage)


def other_side(opened: ExitStack, directory: Path, options: argparse.Namespace) -> Side | None:
    """The server to compare with, or None."""
    data_dir = directory / "other"
    if options.url:
        administrator = opened.enter_context(closing(KubernetesAdministrator(options.url)))
        stage = Stage(administrator, ACCOUNTS)
        stage.tokens()
        pids = tuple(int(pid) for pid in options.pids.split(","))
        return Side(options.url, pids, stage, kubernetes=True)
    if options.revocations:
        with harness.serving(data_dir, *NO_CONTROLLERS):
            pass  # makes the directory
        filling.fill(data_dir, filling.revocations(options.revocations))
        return started(opened, data_dir, options.flags)
    if options.checkout:
        checkout = Path(options.checkout).resolve()
        compileall.compile_dir(checkout / "src", quiet=1)
        return started(opened, data_dir, options.flags, checkout=checkout)
    if options.other_flags is not None:
        return started(opened, data_dir, options.other_flags)
    return None


def main() -> int:
    options = parse_arguments()
    try:
        harness.prepare()
    except Unsuitable as reason:
        print(f"make bench: {reason}")
        return 2
    # An installed package is compiled already: a cold start must not measure the compiler.
    compileall.compile_dir(SOURCE, quiet=1)
    with tempfile.TemporaryDirectory() as directory, ExitStack() as opened:
        second = other_side(opened, Path(directory), options)
        if second is None:
            return 0 if alone(Path(directory), options) else 1
        first = started(opened, Path(directory) / "ours", options.flags)
        return 0 if beside(first, second, options) else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="rows or their beginnings, with commas between")
    parser.add_argument("--turns", type=int, default=5, help="how often both servers are loaded")
    parser.add_argument("--seconds", type=int, default=2, help="how long each turn lasts")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--flags", default="", help="more flags for the first server")
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--url", default="", help="a running server with the names of Kubernetes")
    other.add_argument("--checkout", default="", help="another checkout of this project")
    other.add_argument("--other-flags", help="flags for a second server of this checkout")
    other.add_argument("--revocations", type=int, default=0, help="of the second server")
    parser.add_argument("--pids", default="", help="processes of the server at --url, with commas")
    options = parser.parse_args()
    if bool(options.url) != bool(options.pids):
        parser.error("--url and --pids belong together")
    return options


if __name__ == "__main__":
    sys.exit(main())
