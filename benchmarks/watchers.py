"""1,000 watches over TLS: memory of each, and the time until an event has reached all.

Start with `measure`. The watches live in a few processes of their own, so that sending events and
receiving them do not wait for each other. Events carry a stamp in an annotation; a watcher notes
when it saw which.
"""

import asyncio
import multiprocessing
import os
import re
import ssl
import statistics
import time
import urllib.parse
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, cast

import uvloop

from benchmarks.setting import TOKEN, Administrator, Stage, account

STAMP = re.compile(rb'"stamp-(\d+)"')
PROCESSES = 2
OPENING_AT_ONCE = 32
DEADLINE_SECONDS = 90.0

Seen = dict[int, tuple[int, float]]  # stamp -> how many watchers saw it, and when the last one did


@dataclass(frozen=True)
class Watching:
    """Task of one process: what to watch, the number of watchers and of expected events."""

    url: str
    path: str
    watchers: int
    events: int


@dataclass(frozen=True)
class Watched:
    kibibytes_each: float
    median_ms: float
    worst_ms: float
    delivered: int
    expected: int


def measure(
    administrator: Administrator,
    url: str,
    *,
    core: int,
    watchers: int,
    events: int,
    memory: Callable[[], float],
) -> Watched:
    """Open the watches, write the events, and wait until everyone has seen everything."""
    stage = Stage(administrator, accounts=0)
    version = administrator.call("GET", stage.accounts)["metadata"]["resourceVersion"]
    path = f"{stage.accounts}?watch=true&resourceVersion={version}&timeoutSeconds=300"
    before = memory()
    context = multiprocessing.get_context("spawn")
    share = watchers // PROCESSES
    watching = Watching(url, path, share, events)
    pipes, processes = [], []
    for _ in range(PROCESSES):
        ours, theirs = context.Pipe()
        process = context.Process(target=watch_all, args=(theirs, core, watching))
        process.start()
        pipes.append(ours)
        processes.append(process)
    for pipe in pipes:
        received(pipe)  # all its watches are open
    each = (memory() - before) / (share * PROCESSES)
    sent = {number: write_stamped(administrator, stage, number) for number in range(events)}
    seen_by: list[Seen] = [received(pipe) for pipe in pipes]
    for process in processes:
        process.join()
    return evaluate(each, sent, seen_by, expected=events * share * PROCESSES)


def evaluate(each: float, sent: dict[int, float], seen_by: list[Seen], expected: int) -> Watched:
    delivered = sum(count for seen in seen_by for count, _ in seen.values())
    lags = [
        (max(seen[number][1] for seen in seen_by if number in seen) - start) * 1000
        for number, start in sent.items()
        if any(number in seen for seen in seen_by)
    ]
    if not lags:
        raise SystemExit("no event reached any watcher")
    return Watched(each / 1024, statistics.median(lags), max(lags), delivered, expected)


def write_stamped(administrator: Administrator, stage: Stage, number: int) -> float:
    """Write one event and give the time just before; then let it spread before the next one."""
    body = account(f"event-{number}")
    body["metadata"]["annotations"] = {"stamp": f"stamp-{number}"}
    start = time.monotonic()
    administrator.call("POST", stage.accounts, body)
    time.sleep(0.3)
    return start


def received(pipe: Connection) -> Any:
    if not pipe.poll(DEADLINE_SECONDS + 30):
        raise SystemExit("the watching processes gave no sign")
    return pipe.recv()


def watch_all(pipe: Connection, core: int, watching: Watching) -> None:
    """Run in a process of its own: open the watches, say so, and report what they saw."""
    os.sched_setaffinity(0, {core})
    uvloop.run(_watch_all(pipe, watching))


async def _watch_all(pipe: Connection, watching: Watching) -> None:
    address = urllib.parse.urlsplit(watching.url)
    host, port = address.hostname or "", address.port or 0
    # The server is ours and on loopback, and its certificate is as new as itself.
    tls = ssl._create_unverified_context()  # noqa: S323 -- a throw-away server on loopback
    everything = asyncio.Event()
    seen: Seen = {}
    missing = watching.watchers * watching.events

    def saw(number: int, when: float) -> None:
        nonlocal missing
        seen[number] = (seen.get(number, (0, 0.0))[0] + 1, when)
        missing -= 1
        if missing == 0:
            everything.set()

    gate = asyncio.Semaphore(OPENING_AT_ONCE)
    loop = asyncio.get_running_loop()

    async def open_one() -> asyncio.BaseTransport:
        async with gate:
            watcher = Watcher(watching.path, saw)
            transport, _ = await loop.create_connection(lambda: watcher, host, port, ssl=tls)
            await watcher.open
            return transport

    transports = await asyncio.gather(*(open_one() for _ in range(watching.watchers)))
    pipe.send("open")
    with suppress(TimeoutError):  # what is missing then shows in the number delivered
        await asyncio.wait_for(everything.wait(), DEADLINE_SECONDS)
    pipe.send(seen)
    for transport in transports:
        transport.close()


class Watcher(asyncio.Protocol):
    """One watch: asks once, then reports the stamps it sees."""

    def __init__(self, path: str, saw: Callable[[int, float], None]) -> None:
        self._path = path
        self._saw = saw
        self._rest = b""
        self.open: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        writer = cast(asyncio.WriteTransport, transport)
        head = f"GET {self._path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {TOKEN}\r\n"
        writer.write(f"{head}Accept: application/json\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        self._rest += data
        if not self.open.done():
            status, ended, self._rest = self._rest.partition(b"\r\n\r\n")
            if not ended:
                self._rest = status
                return
            if b" 200 " not in status.split(b"\r\n")[0]:
                self.open.set_exception(ConnectionError(status.decode("latin-1")))
                return
            self.open.set_result(None)
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            if found := STAMP.search(line):
                self._saw(int(found[1]), now)
