"""Write values again that an older key sealed, a few at a time.

Start with `Resealing.run`. The work to do follows from an index of the stored values
(kernel/store/sealed_values.py), so it continues after a restart or on another server, and ends by
itself. Each value is one commit that expects the revision that was read: another write in between
is never lost.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from orchid.kernel.store.encryption import EncryptedStore
from orchid.kernel.store.interface import StoreError

log = logging.getLogger(__name__)

EVERY_SECONDS: Final = 1.0
PER_TURN: Final = 100  # values; their watchers get an event for each


class Resealing:
    """Writes stale values again while this server leads."""

    def __init__(self, store: EncryptedStore, leads: Callable[[], Awaitable[bool]]) -> None:
        """`leads`: whether this server should do it; of several, one at a time."""
        self._store = store
        self._leads = leads
        self._done = 0

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Write stale values until cancelled; a failing store is retried."""
        while True:
            await sleep(EVERY_SECONDS)
            try:
                await self.turn()
            except StoreError as failure:
                log.debug("store.not_resealed: %s", failure)

    async def turn(self) -> None:
        """Write some stale values, if there are any."""
        stale = self._store.stale_keys(PER_TURN)
        if not stale:
            if self._done:
                log.info("store.resealed", extra={"values": self._done})
            self._done = 0
            return
        if not await self._leads():
            return
        for key in stale:
            self._done += await self._store.reseal(key)
