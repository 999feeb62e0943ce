"""`make soak MINUTES=30`: mixed load at a modest rate, and whether the server's memory stays flat.

Reads, reviews, tokens, creations, changes and deletions, watches that come and go, and connections
that are opened anew. Memory is printed every minute. After the first five minutes it must not grow:
the last minutes may have 5 % more than minutes six to eight. The rate is such that within five
minutes more is written than the server keeps of its history in memory (8,192 changes); where the
machine is too slow for that, memory grows for as long as it takes.

    python -m benchmarks.soak --minutes 30 --rate 200
"""

import argparse
import asyncio
import json
import os
import random
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import uvloop

from benchmarks.bench import FLAGS, LOAD_CORE, SERVER_CORE, resident_bytes
from benchmarks.growth import REVIEWS, access_question
from benchmarks.lines import Line, request
from benchmarks.setting import AUTHENTICATION, Administrator, Stage, account, token_request
from tests.e2e.serving import Server, running_server

CONNECTIONS, WATCHES = 20, 30
KEPT = 300  # accounts that stand beside those of the stage
SETTLED = 5  # minutes, until the history is as long as it gets
COMPARED = 3  # minutes at either end
MAY_GROW = 1.05
SELF_REVIEW = {"apiVersion": "authentication.orch.io/v1", "kind": "SelfSubjectReview"}
CHANCE = random.Random(7)  # noqa: S311 -- spread, not secrecy


class MixedLoad:
    """Everything that clients do, by turns."""

    def __init__(self, stage: Stage, port: int) -> None:
        self._stage = stage
        self._port = port
        self._made: list[str] = []
        self._count = 0
        self.asked: dict[str, int] = {}
        self.failed: dict[str, int] = {}
        tokens = stage.tokens()
        review = {"apiVersion": "authentication.orch.io/v1", "kind": "TokenReview"}
        self._reviews = [json.dumps({**review, "spec": {"token": token}}) for token in tokens]
        self._turns: list[tuple[str, int, Callable[[], bytes]]] = [
            ("get", 25, self._get),
            ("list", 2, lambda: request("GET", stage.accounts)),
            ("TokenReview", 20, self._review_token),
            ("SelfSubjectReview", 15, self._review_self),
            ("SubjectAccessReview", 10, self._review_access),
            ("TokenRequest", 8, self._request_token),
            ("create", 8, self._create),
            ("patch", 4, self._patch),
            ("delete", 8, self._delete),
        ]

    async def ask(self, rate: float) -> None:
        """One connection's part, at a rate, until cancelled; the connection lasts some minutes."""
        names, weights, _ = zip(*self._turns, strict=True)
        make = {name: made for name, _, made in self._turns}
        while True:
            line = await Line.open(self._port)
            with closing(line):
                for _ in range(CHANCE.randrange(500, 1500)):
                    await asyncio.sleep(CHANCE.expovariate(rate))
                    [name] = CHANCE.choices(names, weights)
                    status, _body = await line.answer(make[name]())
                    self.asked[name] = self.asked.get(name, 0) + 1
                    if not 200 <= status < 300:
                        self.failed[f"{name} {status}"] = self.failed.get(f"{name} {status}", 0) + 1

    async def watch(self) -> None:
        """One watch after the other, each for some seconds."""
        tls = ssl._create_unverified_context()  # noqa: S323 -- a throw-away server on loopback
        while True:
            seconds = CHANCE.randrange(5, 60)
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=tls)
            path = f"{self._stage.accounts}?watch=1&timeoutSeconds={seconds}"
            writer.write(request("GET", path))
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(seconds + 10):
                    # Read on until the stream has ended: its last chunk is empty.
                    while not (await reader.read(65536)).endswith(b"0\r\n\r\n"):
                        if reader.at_eof():
                            break
            writer.close()
            self.asked["watch"] = self.asked.get("watch", 0) + 1

    def _place(self) -> str:
        return f"{self._stage.accounts}/{CHANCE.choice(self._stage.names)}"

    def _get(self) -> bytes:
        return request("GET", self._place())

    def _review_token(self) -> bytes:
        return request("POST", f"{AUTHENTICATION}/tokenreviews", CHANCE.choice(self._reviews))

    def _review_self(self) -> bytes:
        return request("POST", f"{AUTHENTICATION}/selfsubjectreviews", json.dumps(SELF_REVIEW))

    def _review_access(self) -> bytes:
        question = access_question(self._stage.namespace, f"anybody-{CHANCE.randrange(1000)}")
        return request("POST", REVIEWS, json.dumps(question))

    def _request_token(self) -> bytes:
        return request("POST", f"{self._place()}/token", json.dumps(token_request()))

    def _create(self) -> bytes:
        self._count += 1
        name = f"soak-{self._count}"
        self._made.append(name)
        return request("POST", self._stage.accounts, json.dumps(account(name)))

    def _patch(self) -> bytes:
        patch = json.dumps({"metadata": {"labels": {"turn": str(CHANCE.randrange(10**6))}}})
        sent = request("PATCH", self._place(), patch)
        return sent.replace(b": application/json", b": application/merge-patch+json", 1)

    def _delete(self) -> bytes:
        if len(self._made) < KEPT:
            return self._get()
        return request("DELETE", f"{self._stage.accounts}/{self._made.pop(0)}")


async def soak(load: MixedLoad, server: Server, minutes: int, rate: float) -> list[float]:
    """Load for so many minutes, and give the memory at the end of each, in megabytes."""
    seen = []
    async with asyncio.TaskGroup() as tasks:
        working = [
            *(tasks.create_task(load.ask(rate / CONNECTIONS)) for _ in range(CONNECTIONS)),
            *(tasks.create_task(load.watch()) for _ in range(WATCHES)),
        ]
        start = time.monotonic()
        for minute in range(1, minutes + 1):
            await asyncio.sleep(max(0.0, start + 60 * minute - time.monotonic()))
            seen.append(resident_bytes(server) / 1e6)
            total = sum(load.asked.values())
            print(f"minute {minute:3}: {seen[-1]:7.1f} MB, {total:,} requests", flush=True)
        for task in working:
            task.cancel()
    return seen


def main() -> int:
    options = parse_arguments()
    os.sched_setaffinity(0, {LOAD_CORE})
    pinned = ("taskset", "-c", str(SERVER_CORE))
    with (
        tempfile.TemporaryDirectory() as directory,
        running_server(Path(directory) / "data", *FLAGS, launcher=pinned) as server,
        closing(Administrator(server.url)) as administrator,
    ):
        load = MixedLoad(Stage(administrator, accounts=500), server.port)
        seen = uvloop.run(soak(load, server, options.minutes, options.rate))
    print(f"asked: {load.asked}\nfailed: {load.failed or 'none'}")
    if load.failed:
        return 1
    settled = seen[SETTLED:]
    if len(settled) < 2 * COMPARED:
        print("too short to say whether memory stays flat: 11 minutes are needed at least")
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
