"""`make overload`: far more callers than the server can serve, and the result of each class.

One server on loopback has a core to itself; every class of callers is a process on the other core.
First the sustainable rate of reviews is found; then one greedy identity asks for three times
that and many others for as much again, beside 2,000 watchers of whom 200 read slowly, 10,000 idle
connections, floods of handshakes and of half-sent bodies. Health probes and a few modest callers
measure throughout. Wanted: their p99 under 250 ms, memory under 600 MB, recovery within 5 s.

    python -m benchmarks.overload --seconds 20
"""

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks import harness
from benchmarks.harness import LOAD_CORE, NO_CONTROLLERS, Unsuitable
from benchmarks.overload_callers import Part, Seen, run
from benchmarks.setting import Administrator, Stage
from tests.e2e.serving import Server

WATCHERS, IDLE, IDENTITIES, MODEST = 2_000, 10_000, 50, 20
SETTLED_MS = 250.0
WANTED = {"p99": 250.0, "memory": 600.0, "recovery": 5.0}
EVENTS_PER_SECOND = 2.0


class Crowd:
    """One class of callers in a process of its own."""

    def __init__(self, name: str, part: Part, patience: float = 180.0) -> None:
        context = multiprocessing.get_context("spawn")
        self.name = name
        self.pipe: Connection
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=run, args=(theirs, name, part), daemon=True)
        self.process.start()
        if not self.pipe.poll(patience):
            raise SystemExit(f"{name}: not ready within {patience:g} s")
        self.pipe.recv()

    def stop(self) -> Seen:
        """Stop the callers and return their results."""
        self.pipe.send(True)
        seen: Seen = self.pipe.recv() if self.pipe.poll(60.0) else Seen()
        self.process.join(5.0)
        if self.process.is_alive():
            self.process.kill()
        return seen


def main() -> int:
    options = parse_arguments()
    try:
        harness.prepare()
    except Unsuitable as reason:
        print(f"make overload: {reason}")
        return 2
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    needed = options.idle + WATCHERS + 3_000
    if hard != resource.RLIM_INFINITY and hard < needed:
        print(f"make overload needs {needed} file descriptors in each process, and may have {hard}")
        return 2
    with (
        tempfile.TemporaryDirectory() as directory,
        harness.serving(Path(directory), *NO_CONTROLLERS) as server,
        closing(Administrator(server.url)) as administrator,
    ):
        return 0 if overload(server, administrator, options) else 1


def overload(server: Server, administrator: Administrator, options: argparse.Namespace) -> bool:
    stage = prepared(administrator)
    tokens = tuple(stage.tokens())
    modest, tokens = tokens[:MODEST], tokens[MODEST : MODEST + IDENTITIES + 1]
    sustainable = sustainable_rate(server.port, tokens)
    print(f"sustainable: {sustainable:,.0f} reviews a second from {len(tokens)} identities")
    memory = [harness.resident_bytes((server.pid,)) / 1e6]
    with ExitStack() as stack:
        measuring = [
            crowd("health", Part(server.port, LOAD_CORE, rate=20.0)),
            crowd("others", Part(server.port, LOAD_CORE, tokens=modest, rate=50.0)),
        ]
        measured = [stack.enter_context(one) for one in measuring]
        path = f"{stage.accounts}?watch=true&resourceVersion=0&timeoutSeconds=600"
        part = Part(server.port, LOAD_CORE, WATCHERS, tokens, path, nice=5)
        holding = [stack.enter_context(crowd("watchers", part))]
        part = Part(server.port, LOAD_CORE, options.idle, nice=5)
        holding.append(stack.enter_context(crowd("idle", part)))
        memory.append(harness.resident_bytes((server.pid,)) / 1e6)
        began, used = time.monotonic(), harness.cpu_nanoseconds((server.pid,))
        pushing = [Crowd(name, part) for name, part in floods(server.port, sustainable, tokens)]
        keep_busy(stage, options.seconds, server, memory)
        ended, used = time.monotonic(), harness.cpu_nanoseconds((server.pid,)) - used
        pushed = {one.name: one.stop() for one in pushing}
        keep_busy(stage, 10.0, server, memory)
        seen = {one.name: one.stop() for one in measured}
        held = {one.name: one.stop() for one in holding}
    print(f"the server had {used / 1e9 / (ended - began):.0%} of a core during the overload")
    with closing(Administrator(server.url)) as asking:
        print(lag(asking))
    print(*held_by(server), sep="\n")
    return report(seen, pushed | held, began, ended, memory)


@contextmanager
def crowd(name: str, part: Part) -> Iterator[Crowd]:
    one = Crowd(name, part)
    try:
        yield one
    finally:
        if one.process.is_alive():
            one.process.kill()


def floods(port: int, sustainable: float, tokens: tuple[str, ...]) -> Iterator[tuple[str, Part]]:
    """Four times the sustainable rate, three of them by one identity, and those without any."""
    yield "greedy", Part(port, LOAD_CORE, 60, tokens[:1], rate=3 * sustainable, nice=10)
    yield "crowd", Part(port, LOAD_CORE, 50, tokens[1:], rate=sustainable, nice=10)
    yield "handshakes", Part(port, LOAD_CORE, 400, nice=10)
    yield "half bodies", Part(port, LOAD_CORE, 60, nice=10)


def prepared(administrator: Administrator) -> Stage:
    """Accounts that may watch accounts."""
    stage = Stage(administrator, MODEST + IDENTITIES + 1)
    group = "rbac.authorization.orch.io"
    subject = {"kind": "Group", "name": "system:serviceaccounts", "apiGroup": group}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": stage.namespace},
        "subjects": [subject],
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "view"},
    }
    administrator.call("POST", f"/apis/{group}/v1/clusterrolebindings", binding)
    return stage


def sustainable_rate(port: int, tokens: tuple[str, ...], seconds: float = 4.0) -> float:
    saturating = Crowd("saturate", Part(port, LOAD_CORE, 32, tokens))
    time.sleep(seconds)
    seen = saturating.stop()
    last = max(when for when, _ in seen.milliseconds)
    return sum(when > last - seconds / 2 for when, _ in seen.milliseconds) / (seconds / 2)


def keep_busy(stage: Stage, seconds: float, server: Server, memory: list[float]) -> None:
    """Write what watchers see, and look at the server's memory, for so long."""
    until, number = time.monotonic() + seconds, 0
    with closing(Administrator(server.url)) as administrator:
        while time.monotonic() < until:
            started = time.monotonic()
            path = f"{stage.accounts}/{stage.names[number % len(stage.names)]}"
            changed = administrator.call("GET", path)
            changed["metadata"]["labels"]["changed"] = str(time.monotonic_ns())
            administrator.call("PUT", path, changed)
            memory.append(harness.resident_bytes((server.pid,)) / 1e6)
            number += 1
            time.sleep(max(0.0, 1 / EVENTS_PER_SECOND - (time.monotonic() - started)))


def lag(administrator: Administrator) -> str:
    """Lag of the server's event loop, from its metrics."""
    page = administrator.send("GET", "/metrics", None).decode()
    name = "orchid_event_loop_lag_seconds_bucket{le="
    buckets = [line[len(name) :] for line in page.splitlines() if line.startswith(name)]
    return "late beats of the event loop, by seconds: " + " ".join(buckets)


def held_by(server: Server, most: int = 5) -> list[str]:
    """Functions that blocked the event loop, from the server's log, the longest first."""
    lines = [line for line in server.log_text().splitlines() if "loop.held" in line]
    return sorted(lines, key=lambda line: float(line.partition("seconds=")[2].split()[0]))[-most:]


# --- results --------------------------------------------------------------------------------------


def report(
    seen: dict[str, Seen], rest: dict[str, Seen], began: float, ended: float, memory: list[float]
) -> bool:
    print(f"\n{'during the overload':22}{'asked':>8}{'p50 ms':>9}{'p99 ms':>9}{'refused':>9}")
    worst = 0.0
    for name, one in seen.items():
        during = [took for when, took in one.milliseconds if began <= when <= ended]
        refused = sum(n for status, n in one.statuses.items() if status not in (200, 201))
        p50, p99 = quantile(during, 0.5), quantile(during, 0.99)
        worst = max(worst, p99)
        print(f"{name:22}{len(during):8}{p50:9.1f}{p99:9.1f}{refused:9}")
    meaning = {0: "no answer", 1: "opened", 2: "events", 3: "ended", 4: "sent"}
    for name, one in rest.items():
        counts = ", ".join(f"{meaning.get(k, k)}: {n:,}" for k, n in sorted(one.statuses.items()))
        print(f"{name:22}{counts}")
    recovery = max(recovered_after(one, ended) for one in seen.values())
    found = {"p99": worst, "memory": max(memory), "recovery": recovery}
    print(f"\nmemory: {memory[0]:.0f} MB at rest, {memory[1]:.0f} with all connections open")
    for name, unit in (("p99", "ms"), ("memory", "MB"), ("recovery", "s")):
        verdict = "as wanted" if found[name] <= WANTED[name] else "NOT as wanted"
        print(f"{name:10}{found[name]:8.1f} {unit:3} (wanted: {WANTED[name]:g}), {verdict}")
    return all(found[name] <= wanted for name, wanted in WANTED.items())


def quantile(values: list[float], part: float) -> float:
    if not values:
        return float("inf")
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def recovered_after(seen: Seen, ended: float) -> float:
    """Seconds until the last answer that took too long, after the overload was over."""
    late = [when for when, took in seen.milliseconds if when > ended and took > SETTLED_MS]
    return max(late, default=ended) - ended


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make overload", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="how long the overload lasts")
    parser.add_argument("--idle", type=int, default=IDLE, help="idle connections")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
