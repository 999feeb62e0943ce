"""Keys that come and go are told of once each, whichever server sees it."""

import asyncio
import json
from typing import Any

from orchid.ledger import store_keys
from orchid.ledger.known_keys import note_keys
from orchid.store.interface import Page
from orchid.store.memory import MemoryStore
from tests.unit.ledger.logs import NOW


class ReadTogether(MemoryStore):
    """A store that answers the first two reads only when both have been made."""

    def __init__(self) -> None:
        super().__init__()
        self._both = asyncio.Barrier(2)
        self._reads = 0

    async def read(self, *args: Any, **options: Any) -> Page:
        page = await super().read(*args, **options)
        self._reads += 1
        if self._reads <= self._both.parties:
            await self._both.wait()
        return page


async def told(store: MemoryStore) -> list[tuple[str, str]]:
    records = (await store.read(store_keys.PENDING)).records
    return sorted((e["type"], e["key"]) for e in (json.loads(record.value) for record in records))


async def test_new_and_old_keys_are_told_of() -> None:
    """A first start makes keys; a rotation makes one and retires one; a restart does nothing."""
    store = MemoryStore()

    await note_keys(store, "token-key", {"one": {"algorithm": "ES256"}}, NOW)
    await note_keys(store, "token-key", {"one": {"algorithm": "ES256"}}, NOW)
    await note_keys(store, "token-key", {"two": {"algorithm": "RS256"}}, NOW)

    assert await told(store) == [
        ("token-key.made", "one"),
        ("token-key.made", "two"),
        ("token-key.retired", "one"),
    ]


async def test_servers_that_start_at_once_tell_once() -> None:
    """Of several that see the same new key, one writes the entry."""
    store = MemoryStore()
    keys = {"one": {"algorithm": "ES256"}}

    await asyncio.gather(*(note_keys(store, "token-key", keys, NOW) for _ in range(5)))

    assert await told(store) == [("token-key.made", "one")]


async def test_servers_that_start_at_once_with_different_keys_tell_of_each() -> None:
    """A server whose commit lost the race looks again: its key is announced too."""
    store = ReadTogether()

    await asyncio.gather(
        note_keys(store, "token-key", {"one": {}}, NOW),
        note_keys(store, "token-key", {"two": {}}, NOW),
    )

    made = [key for type_, key in await told(store) if type_ == "token-key.made"]
    assert made == ["one", "two"]
