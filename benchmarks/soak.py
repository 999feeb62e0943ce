"""`make soak MINUTES=30`: mixed load at a modest rate; memory must stay flat.

Reads, reviews, tokens, creations, changes and deletions, watches that begin and end, and new
connections. Memory is printed every minute. After the first five minutes it must not grow: the last
three minutes may have 5 % more than minutes six to eight. Within five minutes the load writes more
than the history that the server keeps in memory (8,192 changes).

    python -m benchmarks.soak --minutes 30 --rate 200
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import uvloop

from benchmarks import harness
from benchmarks.connection import Connection, Refused
from benchmarks.growth import REVIEWS, access_question
from benchmarks.load import self_subject_review, token_reviews
from benchmarks.setting import Administrator, Stage, account, token_request
from tests.e2e.serving import Server

CONNECTIONS, WATCHES = 20, 30
KEPT = 300  # accounts beside those of the stage
SETTLED = 5  # minutes until the history has its full length
COMPARED = 3  # minutes at either end
MAY_GROW = 1.05
RANDOM = random.Random(7)  # noqa: S311 -- spread, not secrecy
MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}

Request = tuple[str, str, object]  # method, path, body


class MixedLoad:
    """All kinds of requests, by weight."""

    def __init__(self, stage: Stage, port: int) -> None:
        self._stage = stage
        self._port = port
        self._created: list[str] = []
        self._count = 0
        self._reviews = [
            ("POST", job.paths[0], json.loads(body))
            for job in (token_reviews(stage.tokens()), self_subject_review(stage))
            for body in job.bodies
        ]
        self.sent: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._kinds: list[tuple[str, int, Callable[[], Request]]] = [
            ("get", 25, lambda: ("GET", self._account(), None)),
            ("list", 2, lambda: ("GET", stage.accounts, None)),
            ("review", 35, lambda: RANDOM.choice(self._reviews)),
            ("SubjectAccessReview", 10, self._review_access),
            ("TokenRequest", 8, lambda: ("POST", f"{self._account()}/token", token_request())),
            ("create", 8, self._create),
            ("patch", 4, self._patch),
            ("delete", 8, self._delete),
        ]

    async def ask(self, rate: float) -> None:
        """One connection at a rate, until cancelled; it is opened again every few minutes."""
        names, weights, makers = zip(*self._kinds, strict=True)
        make = dict(zip(names, makers, strict=True))
        while True:
            connection = await Connection.open(self._port)
            with closing(connection):
                for _ in range(RANDOM.randrange(500, 1500)):
                    await asyncio.sleep(RANDOM.expovariate(rate))
                    [name] = RANDOM.choices(names, weights)
                    await self._send(connection, name, *make[name]())

    async def _send(self, connection: Connection, name: str, *request: object) -> None:
        method, path, body = request
        headers = MERGE_PATCH if method == "PATCH" else {}
        self.sent[name] += 1
        try:
            await connection.send(str(method), str(path), body, **headers)
        except Refused as refusal:
            self.refused[f"{name}: {refusal}"] += 1

    async def watch(self) -> None:
        """One watch after the other, each for some seconds."""
        while True:
            seconds = RANDOM.randrange(5, 60)
            connection = await Connection.open(self._port)
            with closing(connection), suppress(OSError, TimeoutError):
                async with asyncio.timeout(seconds + 10):
                    path = f"{self._stage.accounts}?watch=1&timeoutSeconds={seconds}"
                    await connection.read_stream(path)
            self.sent["watch"] += 1

    def _account(self) -> str:
        return f"{self._stage.accounts}/{RANDOM.choice(self._stage.names)}"

    def _review_access(self) -> Request:
        question = access_question(self._stage.namespace, f"user-{RANDOM.randrange(1000)}")
        return "POST", REVIEWS, question

    def _create(self) -> Request:
        self._count += 1
        name = f"soak-{self._count}"
        self._created.append(name)
        return "POST", self._stage.accounts, account(name)

    def _patch(self) -> Request:
        labels = {"turn": str(RANDOM.randrange(10**6))}
        return "PATCH", self._account(), {"metadata": {"labels": labels}}

    def _delete(self) -> Request:
        if len(self._created) < KEPT:
            return "GET", self._account(), None
        return "DELETE", f"{self._stage.accounts}/{self._created.pop(0)}", None


async def soak(load: MixedLoad, server: Server, minutes: int, rate: float) -> list[float]:
    """Run the load; return the memory at the end of each minute, in megabytes."""
    seen = []
    async with asyncio.TaskGroup() as tasks:
        working = [
            *(tasks.create_task(load.ask(rate / CONNECTIONS)) for _ in range(CONNECTIONS)),
            *(tasks.create_task(load.watch()) for _ in range(WATCHES)),
        ]
        start = time.monotonic()
        for minute in range(1, minutes + 1):
            await asyncio.sleep(max(0.0, start + 60 * minute - time.monotonic()))
            seen.append(harness.resident_bytes(harness.processes(server)) / 1e6)
            print(f"minute {minute:3}: {seen[-1]:7.1f} MB, {load.sent.total():,} requests")
        for task in working:
            task.cancel()
    return seen


def main() -> int:
    options = parse_arguments()
    harness.prepare()
    with (
        tempfile.TemporaryDirectory() as directory,
        harness.serving(Path(directory) / "data") as server,
        closing(Administrator(server.url)) as administrator,
    ):
        load = MixedLoad(Stage(administrator, accounts=500), server.port)
        seen = uvloop.run(soak(load, server, options.minutes, options.rate))
    print(f"sent: {dict(load.sent)}\nrefused: {dict(load.refused) or 'none'}")
    if load.refused:
        return 1
    settled = seen[SETTLED:]
    if len(settled) < 2 * COMPARED:
        print("too short to tell whether memory stays flat: at least 11 minutes are needed")
        return 0
    early, late = (statistics.mean(part) for part in (settled[:COMPARED], settled[-COMPARED:]))
    print(f"after {SETTLED} minutes {early:.1f} MB, at the end {late:.1f} MB")
    return 0 if late <= early * MAY_GROW else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second, in all")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
