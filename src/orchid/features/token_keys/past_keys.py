"""Keys that were retired or revoked, by public key: none of them is ever used again.

The store remembers them for good (kernel/engine/tombstones.py), whatever object is deleted.
"""

from orchid.kernel.engine.cache.objects import unavailable
from orchid.kernel.engine.tombstones import read_tombstone
from orchid.kernel.store.interface import Store, StoreError
from orchid.kernel.wire.signing_key_status import key_tombstone


class PastKeys:
    """The past keys of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def name(self, sha256: str) -> str | None:
        """The name that a past key had, by the SHA-256 of its public key (SPKI); else None."""
        try:
            return await read_tombstone(self._store, key_tombstone(sha256))
        except StoreError as failure:
            raise unavailable(failure) from failure
