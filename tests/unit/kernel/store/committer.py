"""A process that commits without end and prints what was acknowledged; made to be killed.

    python committer.py FILE SEED

Each line is `revision key value-number`, written only after the commit has returned.
"""

import asyncio
import os
import random
import sys
from pathlib import Path

from orchid.kernel.store.interface import ABSENT, Change, Span
from orchid.kernel.store.sqlite.store import SQLiteStore

WRITERS = 8
PADDING = b"." * 600


async def write(store: SQLiteStore, name: str, rng: random.Random) -> None:
    page = await store.read(Span.key(name))
    revision = page.records[0].revision if page.records else ABSENT
    while True:
        number = rng.randrange(1 << 40)
        delete = revision != ABSENT and rng.random() < 0.1
        value = None if delete else b"%d " % number + PADDING
        committed = await store.commit([Change(name, value, revision)])
        revision = ABSENT if delete else committed
        line = f"{committed} {name} {'-' if delete else number}\n"
        os.write(sys.stdout.fileno(), line.encode())


async def compact(store: SQLiteStore) -> None:
    while True:
        await store.compact(max(1, await store.revision() - 400))
        await asyncio.sleep(0.02)


async def main() -> None:
    store = await SQLiteStore.open(Path(sys.argv[1]))
    rng = random.Random(sys.argv[2])
    async with asyncio.TaskGroup() as group:
        for n in range(WRITERS):
            group.create_task(write(store, f"writer/{n}", rng))
        group.create_task(compact(store))


if __name__ == "__main__":
    asyncio.run(main())
