"""`make bench-revocation`: what records, revocations and their lists cost, with 100,000 of each.

    python -m benchmarks.revocation --only in-force,list

    in-force   requests with 0 and with 100,000 revocations in force
    inventory  requests with 0 and with 100,000 certificates on record, and the memory for each
    issuing    certificates with and without inventory and ledger
    counting   tokens counted, and not
    list       a revocation list of 100,000: to sign it, and until a server serves it
    refusal    three servers over etcd: from the acknowledged revocation to the last refusal

The servers have one core, the load another. Costs are times of the processor (paired.py), so
that they hold also on a machine that is not quite idle. Exit code 1 if a figure is not reached.
"""

import argparse
import asyncio
import contextlib
import http.client
import os
import resource
import shutil
import ssl
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from benchmarks import filling, issuing, load
from benchmarks.bench import (
    FLAGS,
    LOAD_CORE,
    NO_CONTROLLERS,
    SERVER_CORE,
    allow_many_connections,
    wanted,
)
from benchmarks.paired import Ask, Comparison, by_wrk, measured, summed_up
from benchmarks.setting import Administrator, Stage
from orchid.credentials.authority import Authority
from orchid.credentials.revocation_list import Edition, RevokedCertificates
from orchid.store.interface import Change
from tests.e2e.demo_revocation import demonstration
from tests.e2e.serving import Server, running_server

MANY = 100_000
ACCOUNTS = 50
PINNED = ("taskset", "-c", str(SERVER_CORE))
WITHOUT_RECORDS = (*PINNED, sys.executable, "-m", "benchmarks.without_records")
RBAC = "rbac.authorization.orch.io"
REVOCATIONS = "/apis/identity.orch.io/v1alpha1/credentialrevocations"
CONTROLLERS = ("--controllers", "revocation-marker,revocation-list-publisher,csrsigning")

TURNS_OF_A_PAIR = 4
TURN_SECONDS = 5
WITHIN_PERCENT = 3.0
ISSUING_PERCENT = 15.0
LIST_SECONDS = 0.3
REFUSAL_SECONDS = 0.25


class Figures:
    """Says what was measured, and remembers what was not reached."""

    def __init__(self) -> None:
        self.missed: list[str] = []

    def tell(self, what: str, text: str, *, reached: bool = True) -> None:
        sys.stdout.write(f"{what:34} {text}{'' if reached else '   NOT REACHED'}\n")
        sys.stdout.flush()
        if not reached:
            self.missed.append(what)

    def compared(self, what: str, found: Comparison, percent: float) -> None:
        """A figure within whose interval the limit lies is not decided."""
        undecided = found.least <= percent < found.most
        text = f"{found}   undecided: take more turns" if undecided else str(found)
        self.tell(what, text, reached=found.percent <= percent)


class Bench:
    """A directory, and how long to measure."""

    def __init__(self, directory: Path, chosen: argparse.Namespace, figures: Figures) -> None:
        self.directory = directory
        self.turns: int = chosen.turns
        self.rounds: int = chosen.rounds
        self.connections: int = chosen.connections
        self.figures = figures
        self._tokens: list[str] = []

    # -- requests beside very much ----------------------------------------------------------

    def in_force(self) -> None:
        """Requests of callers whose credentials may be revoked, and reviews of such."""
        self._requests("in-force", self._filled("in-force", filling.revocations(MANY)))

    def inventory(self) -> None:
        place = self._filled("inventory", filling.records(MANY))
        with self._pair(place) as (before, after):
            each = (anonymous_bytes(after) - anonymous_bytes(before)) / MANY
        self.figures.tell("inventory: memory", f"{each:8.0f} bytes for each certificate")
        self._requests("inventory", place)

    def _requests(self, section: str, place: Path) -> None:
        asks = {
            name: by_wrk(job, core=LOAD_CORE, connections=self.connections)
            for name, job in jobs(self._stage, self._tokens).items()
        }
        found: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for _ in self._pairs():
            with self._pair(place) as (before, after), ExitStack() as opened:
                asks["get by certificate"] = by_certificate(opened, place / "client.pem")
                for name, ask in asks.items():
                    found[name] += measured(before, after, ask, TURNS_OF_A_PAIR)
        for name, turns in found.items():
            self.figures.compared(f"{section}: {name}", summed_up(turns), WITHIN_PERCENT)

    def _pairs(self) -> range:
        """Two servers that do the same differ by some percent: many pairs have a few turns each."""
        return range(-(-self.turns // TURNS_OF_A_PAIR))

    def _filled(self, section: str, changes: Iterator[Change]) -> Path:
        """Data for two servers, with the same keys and objects; the second has more of them."""
        place = self.directory / section
        with (
            running_server(place / "a", *FLAGS, *NO_CONTROLLERS, launcher=PINNED) as first,
            closing(Administrator(first.url)) as administrator,
        ):
            self._stage = Stage(administrator, accounts=ACCOUNTS)
            administrator.call("POST", f"/apis/{RBAC}/v1/clusterrolebindings", binding(self))
            self._tokens = self._stage.tokens()
        write_identity(place / "a", place / "client.pem")
        shutil.copytree(place / "a", place / "b")
        filling.fill(place / "b", changes)
        return place

    @contextlib.contextmanager
    def _pair(self, place: Path) -> Iterator[tuple[Server, Server]]:
        flags = (*FLAGS, *NO_CONTROLLERS)
        with (
            running_server(place / "a", *flags, launcher=PINNED) as before,
            running_server(place / "b", *flags, launcher=PINNED, ready_seconds=120) as after,
        ):
            yield before, after

    @property
    def account(self) -> tuple[str, str]:
        """The account whose token the callers have."""
        return self._stage.namespace, self._stage.names[0]

    # -- what issuing pays ------------------------------------------------------------------

    def issuing(self) -> None:
        found: list[tuple[float, float]] = []
        with ProcessPoolExecutor(2, get_context("spawn")) as pool:
            ask = by_issuing(pool, self.connections)
            for number in self._pairs():
                place = self.directory / f"issuing-{number}"
                flags = (*FLAGS, "--controllers", "csrsigning")
                with (
                    running_server(place / "a", *flags, launcher=WITHOUT_RECORDS) as before,
                    running_server(place / "b", *flags, launcher=PINNED) as after,
                ):
                    found += measured(before, after, ask, TURNS_OF_A_PAIR)
        self.figures.compared("issuing: inventory and ledger", summed_up(found), ISSUING_PERCENT)

    def counting(self) -> None:
        place = self.directory / "counting"
        flags = (*FLAGS, *NO_CONTROLLERS, "--ledger-tokens")
        with (
            running_server(place / "a", *FLAGS, *NO_CONTROLLERS, launcher=PINNED) as first,
            closing(Administrator(first.url)) as administrator,
        ):
            stage = Stage(administrator, accounts=ACCOUNTS)
        shutil.copytree(place / "a", place / "b")
        ask = by_wrk(load.request_token(stage), core=LOAD_CORE, connections=self.connections)
        found: list[tuple[float, float]] = []
        for _ in self._pairs():
            with (
                running_server(place / "a", *flags, "off", launcher=PINNED) as before,
                running_server(place / "b", *flags, "counted", launcher=PINNED) as after,
            ):
                found += measured(before, after, ask, TURNS_OF_A_PAIR)
        self.figures.compared("counting: TokenRequest", summed_up(found), WITHIN_PERCENT)

    # -- the list ---------------------------------------------------------------------------

    def list(self) -> None:
        self._sign_list()
        self._serve_list()

    def _sign_list(self) -> None:
        now = datetime.now(UTC)
        authority = Authority.create("bench", now=now)
        revoked = RevokedCertificates()
        for number in range(MANY):
            revoked.add((1 << 120) + number, now, "superseded")
        edition = Edition(time.time_ns(), now, now + timedelta(days=7))
        before = peak_memory()
        seconds, lag = asyncio.run(off_the_loop(lambda: sign(authority, revoked, edition)))
        text = f"{seconds * 1000:8.0f} ms, the loop waits {lag * 1000:.0f} ms at most, "
        text += f"{(peak_memory() - before) / 1e6:.0f} MB more at its peak"
        self.figures.tell("list: signing 100,000", text, reached=seconds < LIST_SECONDS)

    def _serve_list(self) -> None:
        """From one more revocation until anybody gets the list with it."""
        data = self.directory / "list" / "data"
        with running_server(data, *FLAGS, *NO_CONTROLLERS, launcher=PINNED):
            pass
        key = Authority.load_files(data / "ca.crt", data / "ca.key").key_id.hex()
        filling.fill(data, filling.records(MANY, key, revoked=True))
        flags = (*FLAGS, *CONTROLLERS)
        with (
            running_server(data, *flags, launcher=PINNED, ready_seconds=120) as server,
            closing(Administrator(server.url)) as administrator,
        ):
            size = until_longer(server, 0)
            memory = anonymous_bytes(server)
            issuing.measure(server.url, server.pid, seconds=1, connections=1)
            [request, *_] = administrator.call("GET", issuing.REQUESTS)["items"]
            named = {"requestName": request["metadata"]["name"]}
            spec = {"certificate": named, "reason": "keyCompromise"}
            administrator.call("POST", REVOCATIONS, {"metadata": {"name": "one"}, "spec": spec})
            begun = time.monotonic()
            longer = until_longer(server, size)
            seconds = time.monotonic() - begun
            more = (anonymous_bytes(server) - memory) / 1e6
        text = f"{seconds * 1000:8.0f} ms until served ({longer / 1e6:.1f} MB), {more:+.0f} MB"
        self.figures.tell("list: one more of 100,000", text)

    # -- refusals ---------------------------------------------------------------------------

    def refusal(self) -> None:
        place = self.directory / "refusal"
        place.mkdir()
        with demonstration(place) as shown:
            shown.prepare()
            times = shown.measure(self.rounds)
        last = times[min(len(times) - 1, int(len(times) * 0.99))]
        text = f"{last * 1000:8.1f} ms at the 99th percentile of {len(times)}, "
        text += f"median {statistics.median(times) * 1000:.1f} ms"
        self.figures.tell("refusal: on the last of 3 servers", text, reached=last < REFUSAL_SECONDS)


def jobs(stage: Stage, tokens: list[str]) -> dict[str, load.Job]:
    """What the holder of an account's token asks."""
    caller = tokens[0]
    made = {
        "get": load.get(stage),
        "SelfSubjectReview": load.self_subject_review(stage),
        "TokenReview": load.token_reviews(tokens),
    }
    return {
        name: load.Job(job.method, job.paths, job.bodies, token=caller)
        for name, job in made.items()
    }


def by_issuing(pool: Executor, connections: int) -> Ask:
    """Seconds of certificates; from another process, for they cost the client as much."""

    def ask(server: Server) -> int:
        issue = partial(issuing.measure, seconds=TURN_SECONDS, connections=connections)
        return pool.submit(issue, server.url, server.pid).result().certificates

    return ask


def binding(bench: Bench) -> dict[str, object]:
    namespace, name = bench.account
    return {
        "metadata": {"name": "bench"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }


def write_identity(data: Path, place: Path) -> None:
    """A client's certificate with its key, of the server's own authority."""
    authority = Authority.load_files(data / "ca.crt", data / "ca.key")
    made = authority.issue_client(
        "bench", lifetime=timedelta(hours=1), now=datetime.now(UTC), groups=("system:masters",)
    )
    place.touch(mode=0o600)
    place.write_bytes(made.chain + made.key.reveal().encode())


def by_certificate(opened: ExitStack, identity: Path) -> Callable[[Server], int]:
    """Requests one after the other on one connection, on which a certificate was shown."""
    tls = ssl._create_unverified_context()  # noqa: S323 -- a throw-away server on loopback
    tls.load_cert_chain(identity)
    known: dict[int, http.client.HTTPSConnection] = {}

    def ask(server: Server) -> int:
        if server.port not in known:
            made = http.client.HTTPSConnection("127.0.0.1", server.port, context=tls, timeout=60)
            known[server.port] = opened.enter_context(closing(made))
        connection, end, count = known[server.port], time.monotonic() + 1, 0
        while time.monotonic() < end:
            connection.request("GET", "/api/v1/namespaces/default")
            answer = connection.getresponse()
            answer.read()
            if answer.status != http.client.OK:
                raise SystemExit(f"by certificate: {answer.status}")
            count += 1
        return count

    return ask


def sign(authority: Authority, revoked: RevokedCertificates, edition: Edition) -> None:
    """As the controller does it: a copy, so that others may be added meanwhile, and the list."""
    authority.sign_revocation_list(revoked.copy(), edition)


async def off_the_loop(work: Callable[[], None]) -> tuple[float, float]:
    """How long something takes in a thread, and how long the loop was held up at most."""
    lag, stop = 0.0, asyncio.Event()

    async def tick() -> None:
        nonlocal lag
        while not stop.is_set():
            begun = time.perf_counter()
            await asyncio.sleep(0.001)
            lag = max(lag, time.perf_counter() - begun - 0.001)

    ticking = asyncio.create_task(tick())
    begun = time.perf_counter()
    await asyncio.to_thread(work)
    seconds = time.perf_counter() - begun
    stop.set()
    await ticking
    return seconds, lag


def until_longer(server: Server, size: int) -> int:
    """Wait until the served list is longer than that; give its length."""
    tls = ssl._create_unverified_context()  # noqa: S323 -- a throw-away server on loopback
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=tls, timeout=60)
    with closing(connection):
        while True:
            connection.request("GET", "/crl/cluster.crl")
            answer = connection.getresponse()
            length = len(answer.read())
            if answer.status == http.client.OK and length > max(size, 1000):
                return length
            time.sleep(0.01)


def anonymous_bytes(server: Server) -> int:
    """The memory of a server without the pages of its file, which the kernel can take back."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


def peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-revocation")
    parser.add_argument("--only", default="", help="sections, with commas between")
    parser.add_argument("--turns", type=int, default=12, help="how often each server is asked")
    parser.add_argument("--rounds", type=int, default=300, help="revocations for the refusals")
    parser.add_argument("--connections", type=int, default=16)
    chosen = parser.parse_args()
    allow_many_connections()
    os.sched_setaffinity(0, {LOAD_CORE})
    figures = Figures()
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory), chosen, figures)
        sections = {
            "in-force": bench.in_force,
            "inventory": bench.inventory,
            "issuing": bench.issuing,
            "counting": bench.counting,
            "list": bench.list,
            "refusal": bench.refusal,
        }
        for name, measure in sections.items():
            if wanted(name, chosen.only):
                measure()
    return 1 if figures.missed else 0


if __name__ == "__main__":
    sys.exit(main())
