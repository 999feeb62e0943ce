"""A store whose process is killed at any moment keeps everything it has acknowledged."""

import asyncio
import os
import random
import sys
from pathlib import Path

from orchid.kernel.store.interface import StoreEvent
from orchid.kernel.store.sqlite.store import SQLiteStore
from tests.unit.kernel.store.asking import ALL, events_until

COMMITTER = Path(__file__).with_name("committer.py")
ROUNDS = 10

Acknowledged = dict[int, tuple[str, str]]  # by revision: the key, and the number written or "-"


async def commit_until_killed(path: Path, seed: int, lines: int) -> Acknowledged:
    """Run the committer, kill it while it writes, and return what it had acknowledged."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(COMMITTER), str(path), str(seed)),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout
    printed = [await process.stdout.readline() for _ in range(lines)]
    process.kill()
    printed += (await process.stdout.read()).splitlines(keepends=True)
    await process.wait()
    acknowledged: Acknowledged = {}
    for line in printed:
        if line.endswith(b"\n"):  # the last one may be cut short
            revision, key, number = line.decode().split()
            acknowledged[int(revision)] = (key, number)
    return acknowledged


def summary(event: StoreEvent) -> tuple[str, str]:
    """An event in the words of the committer."""
    return event.key, "-" if event.value is None else event.value.split()[0].decode()


async def test_acknowledged_commits_survive_sigkill(tmp_path: Path) -> None:
    """After each kill no acknowledged commit is missing or changed, and no revision skipped."""
    path, rng = tmp_path / "orchid.db", random.Random(7)
    acknowledged: Acknowledged = {}

    for seed in range(ROUNDS):
        acknowledged |= await commit_until_killed(path, seed, rng.randrange(1, 400))

        store = await SQLiteStore.open(path)
        page = await store.read(ALL)
        events = await events_until(store, page.revision, after=page.oldest)
        past = (await store.read(ALL, at=page.oldest)).records
        await store.close()

        assert page.revision >= max(acknowledged)
        assert [event.revision for event in events] == list(
            range(page.oldest + 1, page.revision + 1)
        )
        history = {event.revision: summary(event) for event in events}
        kept = {at: what for at, what in acknowledged.items() if at > page.oldest}
        assert kept.items() <= history.items()
        # Old records and the events since then together are what is there now.
        state = {record.key: record.value for record in past}
        for event in events:
            assert state.get(event.key) == event.previous
            if event.value is None:
                del state[event.key]
            else:
                state[event.key] = event.value
        assert state == {record.key: record.value for record in page.records}
