"""New and retired keys are recorded once each, whichever server sees them."""

import asyncio
import json
from typing import Any

from orchid.features.ledger.known_keys import note_keys
from orchid.kernel.engine.ledger import store_keys
from orchid.kernel.store.interface import Page
from orchid.kernel.store.memory import MemoryStore
from tests.unit.features.ledger.logs import NOW


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


async def recorded(store: MemoryStore) -> list[tuple[str, str]]:
    records = (await store.read(store_keys.PENDING)).records
    return sorted((e["type"], e["key"]) for e in (json.loads(record.value) for record in records))


async def test_new_and_retired_keys_are_recorded() -> None:
    """A first start makes keys; a rotation makes one and retires one; a restart does nothing."""
    store = MemoryStore()

    await note_keys(store, "token-key", {"one": {"algorithm": "ES256"}}, NOW)
    await note_keys(store, "token-key", {"one": {"algorithm": "ES256"}}, NOW)
    await note_keys(store, "token-key", {"two": {"algorithm": "RS256"}}, NOW)

    assert await recorded(store) == [
        ("token-key.made", "one"),
        ("token-key.made", "two"),
        ("token-key.retired", "one"),
    ]


async def test_servers_that_start_together_record_a_key_once() -> None:
    """Of several that see the same new key, one writes the entry."""
    store = MemoryStore()
    keys = {"one": {"algorithm": "ES256"}}

    await asyncio.gather(*(note_keys(store, "token-key", keys, NOW) for _ in range(5)))

    assert await recorded(store) == [("token-key.made", "one")]


async def test_servers_that_start_together_with_different_keys_record_each() -> None:
    """A server whose commit lost the race looks again: its key is announced too."""
    store = ReadTogether()

    await asyncio.gather(
        note_keys(store, "token-key", {"one": {}}, NOW),
        note_keys(store, "token-key", {"two": {}}, NOW),
    )

    made = [key for type_, key in await recorded(store) if type_ == "token-key.made"]
    assert made == ["one", "two"]
