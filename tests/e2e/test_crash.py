"""A server that is killed in the midst of its work keeps what it promised.

Writers and watchers are at work when the process gets SIGKILL; it is started again on the same data
and they go on. After each restart every acknowledged write is there, and what each watcher has
seen, across all restarts, is the commit log: every change once, in order, nothing besides.

    ORCHID_CRASH_ROUNDS=500 make torture      as long as one likes
    ORCHID_CRASH_SEED=7 ...                   the moments of an earlier run again
"""

import asyncio
import json
import os
import random
import ssl
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.conformance.exchanges import TOKENS
from tests.e2e.serving import Server, free_port, start, wait_until_ready

PARTS = 5  # which can run beside each other, and none of which runs for long
ROUNDS = max(1, int(os.environ.get("ORCHID_CRASH_ROUNDS", "50")) // PARTS)
SEED = int(os.environ.get("ORCHID_CRASH_SEED", random.SystemRandom().randrange(10**6)))
WRITERS, WATCHERS, NAMES_EACH = 4, 3, 5
LONGEST_ROUND = 0.5  # seconds between the start of the work and the kill, at most
PATIENCE = 30.0

ACCOUNTS = "/api/v1/namespaces/crash/serviceaccounts"  # whose deletion answers its revision
LOST = (httpx.TransportError, ssl.SSLError, OSError)


class Change(NamedTuple):
    """One change, as a watch event; a deletion contains the deleted value."""

    revision: int
    type: str
    name: str
    value: str


@dataclass
class Doubt:
    """A write that was not answered: it happened, or it did not."""

    name: str
    before: str | None
    after: str | None


@dataclass
class Run:
    """The knowledge of the clients, across all restarts of the server."""

    client: httpx.AsyncClient
    acknowledged: list[Change] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    doubts: list[Doubt] = field(default_factory=list)
    count: int = 0

    async def write(self, name: str, rng: random.Random) -> None:
        """Create, replace or delete one object; what is not answered stays in doubt."""
        before = self.values.get(name)
        self.count += 1
        after = None if before is not None and rng.random() < 0.3 else f"v{self.count}"
        doubt = Doubt(name, before, after)
        self.doubts.append(doubt)
        answer = await self._send(name, before, after)  # raises when the server dies
        self.doubts.remove(doubt)
        self.note(name, before, after, answer)

    async def _send(self, name: str, before: str | None, after: str | None) -> Any:
        meta: dict[str, Any] = {"name": name, "annotations": {"value": after}}
        if before is None:
            answer = await self.client.post(ACCOUNTS, json={"metadata": meta})
        elif after is None:
            answer = await self.client.delete(f"{ACCOUNTS}/{name}")
        else:
            meta["resourceVersion"] = self.versions[name]
            answer = await self.client.put(f"{ACCOUNTS}/{name}", json={"metadata": meta})
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    def note(self, name: str, before: str | None, after: str | None, answer: Any) -> None:
        version = answer["metadata"]["resourceVersion"]
        if after is None:
            kind, shown = "DELETED", before
            del self.values[name], self.versions[name]
        else:
            kind, shown = ("ADDED" if before is None else "MODIFIED"), after
            self.values[name], self.versions[name] = after, version
        self.acknowledged.append(Change(int(version), kind, name, str(shown)))

    async def settle(self) -> None:
        """Find every acknowledged write, and what became of those in doubt."""
        listed = (await self.client.get(ACCOUNTS)).json()["items"]
        items = [item["metadata"] for item in listed]
        there = {meta["name"]: meta["annotations"]["value"] for meta in items}
        for doubt in self.doubts:
            found = there.get(doubt.name)
            assert found in (doubt.before, doubt.after), f"{doubt} became {found}"
            self.values.pop(doubt.name, None)
            if found is not None:
                self.values[doubt.name] = found
        self.doubts.clear()
        assert there == self.values
        self.versions = {meta["name"]: meta["resourceVersion"] for meta in items}


class Watcher:
    """Watches through all the lives of a server, each time from the last version it saw."""

    def __init__(self, client: httpx.AsyncClient, after: int) -> None:
        self._client = client
        self._after = after
        self.history: list[Change] = []
        self.arrived = asyncio.Event()

    async def run(self) -> None:
        while True:
            with suppress(*LOST):
                await self._follow()
            await asyncio.sleep(0.01)  # the server is down; it will be back

    async def _follow(self) -> None:
        query = {"watch": "1", "resourceVersion": str(self._after), "allowWatchBookmarks": "true"}
        async with self._client.stream("GET", ACCOUNTS, params=query, timeout=None) as answer:
            assert answer.status_code == 200
            async for line in answer.aiter_lines():
                self._take(json.loads(line))

    def _take(self, event: Any) -> None:
        assert event["type"] != "ERROR", event
        self._after = int(event["object"]["metadata"]["resourceVersion"])
        if event["type"] != "BOOKMARK":
            self.history.append(change_of(event))
            self.arrived.set()

    async def reach(self, revision: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while not self.history or self.history[-1].revision < revision:
                self.arrived.clear()
                await self.arrived.wait()


def change_of(event: Any) -> Change:
    meta = event["object"]["metadata"]
    value = meta["annotations"]["value"]
    return Change(int(meta["resourceVersion"]), event["type"], meta["name"], value)


async def commit_log(client: httpx.AsyncClient, after: int, up_to: int) -> list[Change]:
    """The changes between two versions, as the server has them now."""
    query = {"watch": "1", "resourceVersion": str(after)}
    log: list[Change] = []
    async with client.stream("GET", ACCOUNTS, params=query, timeout=PATIENCE) as answer:
        async for line in answer.aiter_lines():
            event = json.loads(line)
            assert event["type"] != "ERROR", event
            log.append(change_of(event))
            if log[-1].revision >= up_to:
                break
    return log


async def marked(run: Run) -> int:
    """Write one more change, and give its revision: by then everything before has happened."""
    before = run.values.get("marker")
    run.count += 1
    answer = await run._send("marker", before, f"v{run.count}")
    run.note("marker", before, f"v{run.count}", answer)
    return run.acknowledged[-1].revision


async def work(run: Run, number: int, seed: int) -> None:
    """Write without pause, to names that nobody else writes to, until the server dies."""
    rng = random.Random(seed)
    with suppress(*LOST):
        while True:
            await run.write(f"w{number}-{rng.randrange(NAMES_EACH)}", rng)


def check_history(run: Run, log: list[Change], doubtful: int, watchers: list[Watcher]) -> None:
    revisions = [change.revision for change in log]
    assert revisions == sorted(set(revisions)), "a revision is there twice, or out of order"
    missing = set(run.acknowledged) - set(log)
    assert not missing, f"acknowledged, but not in the log: {missing}"
    besides = set(log) - set(run.acknowledged)
    assert len(besides) <= doubtful, f"nobody asked for {besides}"
    for watcher in watchers:
        assert watcher.history == log


async def one_round(run: Run, server: Server, seed: int, workers: int) -> Server:
    """Work, a kill at any moment, and a new start."""
    rng = random.Random(seed)
    writers = [asyncio.create_task(work(run, n, rng.random())) for n in range(WRITERS)]
    await asyncio.sleep(rng.random() * LONGEST_ROUND)
    server.kill()
    await asyncio.gather(*writers)
    return await asyncio.to_thread(launch, server.data_dir, server.port, workers)


def launch(data: Path, port: int, workers: int) -> Server:
    flags = ("--token-auth-file", str(TOKENS), "--controllers", "", "--workers", str(workers))
    server = start(data, *flags, port=port)
    try:
        return wait_until_ready(server)
    except BaseException:
        server.kill()
        raise


async def survive(data: Path, rounds: int, seed: int, workers: int) -> int:
    """The whole story; gives the number of acknowledged writes."""
    server = await asyncio.to_thread(launch, data, free_port(), workers)
    async with AsyncExitStack() as closing:
        try:
            client = httpx.AsyncClient(
                base_url=server.url,
                headers={"Authorization": "Bearer admin-token-0001"},
                verify=ssl.create_default_context(cafile=str(data / "ca.crt")),
                timeout=PATIENCE,
            )
            await closing.enter_async_context(client)
            run, total = Run(client), 0
            checkpoint = await marked(run)
            watchers = [Watcher(client, checkpoint) for _ in range(WATCHERS)]
            following = [asyncio.create_task(watcher.run()) for watcher in watchers]
            closing.callback(lambda: [task.cancel() for task in following])
            run.acknowledged.clear()
            for number in range(rounds):
                server = await one_round(run, server, seed + number, workers)
                doubtful = len(run.doubts)
                await run.settle()
                newest = await marked(run)
                await asyncio.gather(*(watcher.reach(newest) for watcher in watchers))
                log = await commit_log(client, checkpoint, newest)
                check_history(run, log, doubtful, watchers)
                total += len(run.acknowledged)
                checkpoint = newest
                run.acknowledged.clear()
                for watcher in watchers:
                    watcher.history.clear()
        finally:
            server.kill()
    return total


@pytest.mark.parametrize("part", range(PARTS))
def test_a_killed_server_keeps_every_promise(tmp_path: Path, part: int) -> None:
    """SIGKILL at random moments loses no acknowledged write and breaks no watcher's history."""
    seed = SEED + part * 10**6
    print(f"ORCHID_CRASH_SEED={SEED}, part {part}: {ROUNDS} rounds")  # noqa: T201 -- the program under test speaks by printing

    workers = 2 if part == 0 else 1  # the whole family of processes is killed at once
    total = asyncio.run(survive(tmp_path / "data", ROUNDS, seed, workers))

    assert total > ROUNDS  # they did work
