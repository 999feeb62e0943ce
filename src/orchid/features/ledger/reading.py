"""The log in the store, in the format in which it is published and checked."""

from orchid.kernel.engine.ledger import store_keys
from orchid.kernel.store.interface import Span, Store
from orchid.kernel.tlog import tiles
from orchid.kernel.tlog.merkle import HASH_SIZE
from orchid.kernel.tlog.tiles import ENTRIES, Tile


class StoredLog:
    """A log in a store, as a `LogSource` (kernel/tlog/audit.py)."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def checkpoint(self) -> bytes | None:
        """The newest signed checkpoint; None before the first entry."""
        return await self._value(store_keys.HEAD)

    async def tile(self, tile: Tile) -> bytes | None:
        """A tile or bundle in the requested width; None if the log is not that long."""
        if tile.level == ENTRIES:
            return await self._bundle(tile)
        data = await self._value(store_keys.tile_key(tile)) or b""
        size = tile.width * HASH_SIZE
        return data[:size] if len(data) >= size else None

    async def pending(self) -> int:
        """The number of entries that wait for their index."""
        return len((await self._store.read(store_keys.PENDING)).records)

    async def _bundle(self, tile: Tile) -> bytes | None:
        page = await self._store.read(store_keys.bundle_span(tile.index))
        data = b"".join(record.value for record in page.records)
        return tiles.first_entries(data, tile.width)

    async def _value(self, key: str) -> bytes | None:
        records = (await self._store.read(Span.key(key), limit=1)).records
        return records[0].value if records else None
