"""The store's own log of the objects that the clients work on, read straight from the store."""

from contextlib import aclosing

import msgspec

from orchid.kernel.store.interface import Span, Store
from tests.faults.history import ABSENT, Commit
from tests.faults.workload import NAMESPACE

OURS = f"core/serviceaccounts/{NAMESPACE}/"


class Metadata(msgspec.Struct):
    annotations: dict[str, str] = {}


class Stored(msgspec.Struct):
    metadata: Metadata


async def commits_of(store: Store) -> list[Commit]:
    """Every change, to the newest; none may have been compacted away."""
    return (await commits_after(store, ABSENT))[0]


async def commits_after(store: Store, after: int) -> tuple[list[Commit], int]:
    """Every change behind a revision, and how far that goes: there may be none in the last part."""
    page = await store.read(Span.key(OURS))
    commits: list[Commit] = []
    reached = after or page.oldest
    async with aclosing(store.watch(Span.prefix(OURS), after=reached)) as batches:
        while reached < page.revision:
            batch = await anext(batches)
            reached = batch.revision
            for event in batch.events:
                value = None if event.value is None else _value(event.value)
                commits.append(Commit(event.revision, event.key.removeprefix(OURS), value))
    return commits, reached


def _value(data: bytes) -> str:
    return msgspec.json.decode(data, type=Stored).metadata.annotations.get("value", "")
