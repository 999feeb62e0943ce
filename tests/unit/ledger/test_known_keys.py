"""Keys that come and go are told of once each, whichever server sees it."""

import asyncio
import json

from orchid.ledger import places
from orchid.ledger.known_keys import note_keys
from orchid.store.memory import MemoryStore
from tests.unit.ledger.logs import NOW


async def told(store: MemoryStore) -> list[tuple[str, str]]:
    records = (await store.read(places.PENDING)).records
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
