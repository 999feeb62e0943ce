"""Short ways to ask a store, for the tests of every backend."""

import asyncio
from contextlib import aclosing

from orchid.kernel.store.interface import ABSENT, Change, Revision, Span, Store, StoreEvent

ALL = Span.all()


async def put(store: Store, key: str, value: bytes, expected: Revision = ABSENT) -> Revision:
    return await store.commit([Change(key, value, expected)])


async def delete(store: Store, key: str, expected: Revision) -> Revision:
    return await store.commit([Change(key, None, expected)])


async def events_until(
    store: Store, revision: Revision, *, after: Revision, span: Span = ALL
) -> list[StoreEvent]:
    """The events of a watch up to a revision."""
    events: list[StoreEvent] = []
    if after >= revision:
        return events
    async with asyncio.timeout(30), aclosing(store.watch(span, after=after)) as watch:
        async for batch in watch:
            events.extend(batch.events)
            if batch.revision >= revision:
                break
    return events


async def read_pairs(store: Store, span: Span = ALL, **options: int) -> list[tuple[str, bytes]]:
    return [(key, value) for key, value, _ in (await store.read(span, **options)).records]
