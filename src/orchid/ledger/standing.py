"""How the ledger stands: how long it is, whether entries wait for it, whether it only ever grew.

Start with `LedgerStanding.look`, which `run` repeats. A server keeps the newest checkpoint that it
has seen in a file of its own, beside what a backup brings back. So it notices when the log in the
store is no longer the one that it knew: rolled back, or written anew. It tells, by metrics and in
the log file, and changes nothing; removing the file makes it forget.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Final

from orchid.credentials.files import write_private
from orchid.ledger import places
from orchid.ledger.reading import StoredLog
from orchid.metrics import Gauge
from orchid.store.interface import Store, StoreError
from orchid.tlog.audit import LogRefused, require_growth
from orchid.tlog.checkpoints import Checkpoint
from orchid.tlog.merkle import EMPTY_ROOT
from orchid.tlog.notes import NoteRefused

log = logging.getLogger(__name__)

FILE: Final = "ledger.checkpoint"
INTERVAL_SECONDS: Final = 10.0
LARGEST: Final = 1 << 16


class LedgerStanding:
    """What one server knows of the log in its store."""

    def __init__(self, store: Store, kept: Path, now: Callable[[], datetime]) -> None:
        self._store = store
        self._log = StoredLog(store)
        self._kept = kept
        self._now = now
        self._known: Checkpoint | None = None
        self._told = ""
        self.entries = Gauge("orchid_ledger_entries", "Entries in the signed log.")
        self.waiting = Gauge(
            "orchid_ledger_oldest_pending_seconds",
            "How long the oldest entry has waited for its place in the log; 0 if none waits.",
        )
        self.rolled_back = Gauge(
            "orchid_ledger_rolled_back",
            "1 if the log is not the one that this server knew: shorter, or rewritten.",
        )
        self.metrics = (self.entries, self.waiting, self.rolled_back)

    async def run(
        self,
        *,
        keeps: bool,
        interval: float = INTERVAL_SECONDS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Look again and again, until cancelled; of several processes one keeps the file."""
        while True:
            try:
                await self.look(keeps=keeps)
            except (StoreError, OSError, NoteRefused) as problem:
                log.debug("ledger.not_looked_at: %s", problem)
            await sleep(interval)

    async def look(self, *, keeps: bool) -> None:
        """See how the log stands now."""
        self.waiting.set(await self._longest_wait())
        note = await self._log.checkpoint()
        head = Checkpoint.claimed(note) if note else Checkpoint("", 0, EMPTY_ROOT)
        self.entries.set(head.size)
        known = self._known or await asyncio.to_thread(read_kept, self._kept)
        if known is not None and not await self._has_grown(known, head):
            return
        self.rolled_back.set(0)
        if note:
            if keeps and head != known:
                await asyncio.to_thread(keep, self._kept, note)
            self._known = head

    async def _longest_wait(self) -> float:
        oldest = (await self._store.read(places.PENDING, limit=1)).records
        if not oldest:
            return 0.0
        return max(self._now().timestamp() - places.pending_since(oldest[0].key), 0.0)

    async def _has_grown(self, known: Checkpoint, head: Checkpoint) -> bool:
        """Whether the log is the one that we knew, and perhaps longer."""
        try:
            await require_growth(self._log, known, head)
        except LogRefused as refusal:
            self.rolled_back.set(1)
            if str(refusal) != self._told:  # said once, not every few seconds
                log.error("ledger.rolled_back: %s", refusal)
            self._told = str(refusal)
            return False
        return True


def read_kept(place: Path) -> Checkpoint | None:
    """The checkpoint in a file; None if there is none that can be read."""
    try:
        with place.open("rb") as file:
            return Checkpoint.claimed(file.read(LARGEST))
    except (OSError, NoteRefused):
        return None


def keep(place: Path, note: bytes) -> None:
    """Replace the stored checkpoint."""
    write_private(place, note)
