"""Status of the ledger: its length, the age of pending entries, and whether it only ever grew.

Start with `LedgerStatus.check`, which `run` repeats. A server stores the newest checkpoint in a
file that a restore does not replace. So it detects a log that was rolled back or rewritten. It
reports that in metrics and log, and `refuse_rolled_back` keeps the sequencer from signing, until an
operator removes the file with `orchid ledger accept`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Final

from orchid.features.ledger.reading import StoredLog
from orchid.features.ledger.sequencing import LedgerBroken
from orchid.kernel.base.metrics import Gauge
from orchid.kernel.credentials.files import set_aside, write_private
from orchid.kernel.engine.ledger import store_keys
from orchid.kernel.store.interface import Store, StoreError
from orchid.kernel.tlog.audit import LogRefused, require_growth
from orchid.kernel.tlog.checkpoints import Checkpoint
from orchid.kernel.tlog.merkle import EMPTY_ROOT
from orchid.kernel.tlog.notes import NoteRefused

log = logging.getLogger(__name__)

FILE: Final = "ledger.checkpoint"
INTERVAL_SECONDS: Final = 10.0
LARGEST: Final = 1 << 16


class LedgerStatus:
    """The status of the log in the store."""

    def __init__(self, store: Store, kept: Path, now: Callable[[], datetime]) -> None:
        self._store = store
        self._log = StoredLog(store)
        self._kept = kept
        self._now = now
        self._known: Checkpoint | None = None
        self._had_file = False
        self._logged = ""
        self.entries = Gauge("orchid_ledger_entries", "Entries in the signed log.")
        self.waiting = Gauge(
            "orchid_ledger_oldest_pending_seconds",
            "Age of the oldest pending entry; 0 if there is none.",
        )
        self.rolled_back = Gauge(
            "orchid_ledger_rolled_back",
            "1 if the log was rolled back or rewritten since this server's last checkpoint.",
        )
        self.metrics = (self.entries, self.waiting, self.rolled_back)

    async def run(
        self,
        *,
        keeps: bool,
        interval: float = INTERVAL_SECONDS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Check regularly, until cancelled; of several processes one writes the file."""
        while True:
            try:
                await self.check(keeps=keeps)
            except (StoreError, OSError, NoteRefused) as problem:
                log.debug("ledger.not_looked_at: %s", problem)
            await sleep(interval)

    async def check(self, *, keeps: bool) -> None:
        """Check the log once."""
        self.waiting.set(await self._longest_wait())
        note = await self._log.checkpoint()
        head = Checkpoint.claimed(note) if note else Checkpoint("", 0, EMPTY_ROOT)
        self.entries.set(head.size)
        checkpoint = await self._last_known()
        if checkpoint is not None and not await self._has_grown(checkpoint, head):
            return
        self.rolled_back.set(0)
        if note:
            if keeps and head != checkpoint:
                await asyncio.to_thread(keep, self._kept, note)
            self._known = head

    async def _last_known(self) -> Checkpoint | None:
        """The newest checkpoint: that of the file, if there is one.

        An operator who accepts the log as it is removes the file (`orchid ledger accept`).
        """
        kept = await asyncio.to_thread(read_kept, self._kept)
        if kept is None and self._had_file:
            self._known = None
        self._had_file = kept is not None
        return kept or self._known

    async def _longest_wait(self) -> float:
        oldest = (await self._store.read(store_keys.PENDING, limit=1)).records
        if not oldest:
            return 0.0
        return max(self._now().timestamp() - store_keys.pending_since(oldest[0].key), 0.0)

    async def _has_grown(self, checkpoint: Checkpoint, head: Checkpoint) -> bool:
        """Whether the log begins with the checkpoint's."""
        try:
            await require_growth(self._log, checkpoint, head)
        except LogRefused as refusal:
            self.rolled_back.set(1)
            if str(refusal) != self._logged:  # logged once, not every few seconds
                log.error("ledger.rolled_back: %s", refusal)
            self._logged = str(refusal)
            return False
        return True


def report_damaged(kept: Path, now: datetime) -> None:
    """Log a checkpoint that cannot be read, and set it aside: the next one replaces it."""
    if kept.exists() and read_kept(kept) is None:
        log.error("ledger.checkpoint_unreadable", extra={"file": str(kept)})
        with contextlib.suppress(OSError):
            set_aside(kept, now)


async def refuse_rolled_back(store: Store, kept: Path, head: Checkpoint) -> None:
    """Raise LedgerBroken if the log does not begin with that of the stored checkpoint."""
    checkpoint = await asyncio.to_thread(read_kept, kept)
    if checkpoint is None:
        return
    try:
        await require_growth(StoredLog(store), checkpoint, head)
    except LogRefused as refusal:
        raise LedgerBroken(
            f"{refusal}. Entries wait and nothing is signed until an operator decides: restore the "
            f"log, or accept it as it is with: orchid ledger accept --data-dir {kept.parent}"
        ) from None


async def keep_newest(store: Store, kept: Path) -> None:
    """Store the newest checkpoint in the file at a stop, unless the log was rolled back."""
    note = await StoredLog(store).checkpoint()
    if note is not None:
        await refuse_rolled_back(store, kept, Checkpoint.claimed(note))
        await asyncio.to_thread(keep, kept, note)


def accept(kept: Path, now: datetime) -> Path:
    """Rename the stored checkpoint: an operator accepts the log as it is. Return its new name."""
    aside = kept.with_name(f"{kept.name}.before-{now:%Y%m%dT%H%M%SZ}")
    return kept.rename(aside)


def read_kept(path: Path) -> Checkpoint | None:
    """The checkpoint in a file; None if it is missing or malformed."""
    try:
        with path.open("rb") as file:
            return Checkpoint.claimed(file.read(LARGEST))
    except (OSError, NoteRefused):
        return None


def keep(path: Path, note: bytes) -> None:
    """Replace the stored checkpoint."""
    write_private(path, note)
