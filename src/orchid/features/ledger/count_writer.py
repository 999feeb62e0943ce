"""Writes counts of frequent events into the ledger, a few entries at a time.

Entries are formatted in a thread. A commit that fails is retried, unchanged, at the next write: its
keys are new, so it never takes effect twice.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final, Generic, TypeVar

from orchid.kernel.engine.ledger import store_keys
from orchid.kernel.engine.ledger.entries import Fact
from orchid.kernel.store.interface import Change, RevisionConflict, Store, StoreError

log = logging.getLogger(__name__)

C = TypeVar("C")

ENTRIES_PER_COMMIT: Final = 64


class CountWriter(Generic[C]):
    """Counts that are still to be written; `facts` formats them."""

    def __init__(self, store: Store, facts: Callable[[C], Iterable[Fact]]) -> None:
        self._store = store
        self._facts = facts
        self._unformatted: list[C] = []
        self._unwritten: list[list[Change]] = []  # commits

    async def write(self, counts: C, now: datetime) -> None:
        """Add counts, if there are any, to the pending entries, and retry failed commits."""
        if counts:
            self._unformatted.append(counts)
        while self._unformatted:
            changes = await asyncio.to_thread(self._pending, self._unformatted[0], now)
            del self._unformatted[0]
            size = ENTRIES_PER_COMMIT
            self._unwritten += [changes[at : at + size] for at in range(0, len(changes), size)]
        try:
            while self._unwritten:
                await self._commit(self._unwritten[0])
                del self._unwritten[0]
        except StoreError as failure:
            log.warning("ledger.not_counted: %s", failure)

    def _pending(self, counts: C, now: datetime) -> list[Change]:
        return store_keys.pending(self._facts(counts), "", now)

    async def _commit(self, changes: list[Change]) -> None:
        try:
            await self._store.commit(changes)
        except RevisionConflict:
            log.debug("ledger.already_pending")  # an earlier attempt succeeded after all
