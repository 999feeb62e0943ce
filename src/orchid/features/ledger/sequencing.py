"""Assign indexes to pending entries: the only writer of the log itself.

`Sequencer.step` takes some pending entries and, in one commit, appends them, moves the signed head
and removes them from the pending ones. The signature and the rewritten tiles cost the same for one
entry as for many, so entries gather for a second between two steps.

Many entries are removed as one range of keys, and only if no key was added to it since it was read:
an entry is never removed without an index. Keys begin with the time, so entries that are a little
older than the newest, or a second old, are quiet: no further key is expected before them. `run`
leaves the others for the next step. If a range is not quiet after all, or there are few entries,
they are removed one by one; clocks only affect the speed.

The head moves by compare-and-swap: of several servers at the same time, one succeeds and the others
read again. So every entry is logged once, and the log never branches. Only the right edge of the
log is read, and cached while no other server moves the head.
"""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from typing import Final

import msgspec

from orchid.features.ledger.signing_keys import LedgerKeys
from orchid.kernel.engine.ledger import store_keys
from orchid.kernel.store.interface import (
    ABSENT,
    Change,
    DeleteRange,
    Page,
    Record,
    Revision,
    RevisionConflict,
    Span,
    Store,
)
from orchid.kernel.tlog import tiles
from orchid.kernel.tlog.checkpoints import Checkpoint
from orchid.kernel.tlog.merkle import EMPTY_ROOT, HASH_SIZE, leaf_hashes
from orchid.kernel.tlog.notes import NoteRefused
from orchid.kernel.tlog.tiles import FULL, BadTile, Edge, Tile

log = logging.getLogger(__name__)

_key, _order = attrgetter("key"), attrgetter("revision", "key")

INTERVAL_SECONDS: Final = 1.0
QUIET_SECONDS: Final = 0.25  # from the time of an entry until its commit has ended, usually
FIRST_HURRY = 10  # times as often, until the log has begun
PAGE: Final = 2048  # pending entries per read
MOST_AT_ONCE: Final = 512  # entries in one commit; the event loop waits for their hashes
MOST_BYTES: Final = 5 << 18  # in one commit; etcd takes 1.5 MB
# entries in a commit that removes each by itself, with one more change each
MOST_SINGLE: Final = 96
MOST_SEGMENTS: Final = 22  # of one bundle; more are joined into one, with a change for each


class LedgerBroken(Exception):
    """The log in the store cannot be continued by this server."""


class _End(msgspec.Struct):
    """The end of the log in the store."""

    origin: str
    revision: Revision  # of the head
    edge: Edge
    tiles: dict[str, Revision]  # the partial tiles
    segments: list[Record]  # of the last bundle, if it is not full

    def unjoined_bytes(self) -> int:
        """The bytes that are written again when the last bundle becomes full."""
        return sum(len(segment.value) for segment in self.segments)


class Sequencer:
    """Appends pending entries to the log in a store, signed with the ledger's keys.

    `origin` names a new log; an existing one keeps its name.
    """

    def __init__(
        self,
        store: Store,
        keys: LedgerKeys,
        origin: str,
        check: Callable[[Checkpoint], Awaitable[None]] | None = None,
    ) -> None:
        """`check`: raises LedgerBroken if the log with this head must not be continued."""
        self._store = store
        self._check = check
        self._keys = keys
        self._origin = origin
        self._end: _End | None = None
        self._seen = ""  # the last pending key of the previous step

    async def run(
        self,
        *,
        interval: float = INTERVAL_SECONDS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Log pending entries regularly, until cancelled."""
        problem = ""
        while True:
            try:
                await self.log_pending()
                problem = ""
            except Exception as failure:  # the entries stay pending, and the server continues
                if str(failure) != problem:  # logged once, not every second
                    log.error("ledger.not_written: %s", failure)
                problem = str(failure)
            # The first entries come with the start, and are expected soon.
            await sleep(interval if self._end is not None else interval / FIRST_HURRY)

    async def drain(self) -> None:
        """Log every entry that is pending now; later ones may wait."""
        while await self.step():
            pass

    async def log_pending(self) -> None:
        """Log entries; of many, the newest ones wait for the next call."""
        quiet = self._seen
        while await self.step(quiet):
            pass

    async def step(self, quiet: str = store_keys.PENDING.end) -> bool:
        """Log pending entries; return whether to continue immediately.

        Entries of one commit are in the order in which they became pending. No further keys are
        expected up to `quiet`, nor in the first page of several.
        """
        page = await self._store.read(store_keys.PENDING, limit=PAGE)
        if not page.records:
            return False
        if self._end is None:
            # First the end, then the entries: logging one of them after that moves the head.
            self._end = await self._current_end()
            page = await self._store.read(store_keys.PENDING, limit=PAGE)
        try:
            return await self._log_page(page, quiet) or page.more
        except RevisionConflict:
            log.debug("ledger.head_moved")  # another server was faster; read again
            return True

    async def _log_page(self, page: Page, quiet: str) -> bool:
        """Log a page that was read after the end; return whether to read again."""
        self._seen = page.records[-1].key if page.records else ""
        if len(page.records) <= MOST_SINGLE:
            await self._log_singly(page.records)
            return False
        settled = store_keys.pending_before(self._seen, QUIET_SECONDS)
        quiet = self._seen if page.more else max(quiet, settled)
        ranges = page.records[: bisect_right(page.records, quiet, key=_key)]
        while ranges and self._end is not None:
            some = _some(ranges, MOST_AT_ONCE, MOST_BYTES - self._end.unjoined_bytes())
            span = Span(some[0].key, some[-1].key + "\0")
            try:
                await self._append(self._end, some, DeleteRange(span, page.revision))
            except RevisionConflict as conflict:
                if conflict.key not in store_keys.PENDING:
                    raise
                await self._log_singly(some)  # another entry came between them
                return True
            ranges = ranges[len(some) :]
        return False

    async def _log_singly(self, waiting: Sequence[Record]) -> None:
        """Log entries one by one, whatever comes between them."""
        while waiting:
            end = await self._current_end()
            # Within one bundle, so that all changes fit into a commit.
            some = _some(waiting, min(MOST_SINGLE, FULL - end.edge.size % FULL), MOST_BYTES)
            await self._append(end, some)
            waiting = waiting[len(some) :]

    async def _append(
        self, end: _End, waiting: Sequence[Record], delete: DeleteRange | None = None
    ) -> None:
        self._end = None  # whether the commit happened is unknown
        first = end.edge.size
        waiting = sorted(waiting, key=_order)
        entries = [record.value for record in waiting]
        grown = end.edge.append(leaf_hashes(entries))
        head = Checkpoint(end.origin, end.edge.size, end.edge.root())
        segments, bundled = _bundled(end.segments, first, entries)
        changes = [
            Change(store_keys.HEAD, head.signed(self._keys.signer(end.origin)), end.revision),
            *bundled,
            *[_grown(tile, data, end.tiles) for tile, data in grown.items()],
        ]
        if delete is None:
            changes += [Change(record.key, None, record.revision) for record in waiting]
        revision = await self._store.commit(changes, delete)
        end.revision = revision
        end.tiles.update({store_keys.tile_key(tile): revision for tile in grown if not tile.full})
        end.segments = [
            each if each.revision else each._replace(revision=revision) for each in segments
        ]
        self._end = end

    async def _current_end(self) -> _End:
        if self._end:
            return self._end  # if another server has moved the head since, the commit conflicts
        head = await _one(self._store, store_keys.HEAD)
        if self._check is not None:
            await self._check(_claimed(head))
        if head is None:
            return _End(self._origin, ABSENT, Edge(0), {}, [])
        try:
            return await self._read_end(head)
        except (NoteRefused, BadTile) as problem:
            raise LedgerBroken(str(problem)) from None

    async def _read_end(self, head: Record) -> _End:
        origin = Checkpoint.claimed(head.value).origin
        size = Checkpoint.opened(head.value, self._keys.all(origin)).size
        partial = Edge.partial_tiles(size)
        records = [await _one(self._store, store_keys.tile_key(tile)) for tile in partial]
        tile_records = [record for record in records if record is not None]
        if len(tile_records) < len(partial):
            raise LedgerBroken(f"a tile of the log of {size} entries is missing")
        # If the log has grown since the head was read, the commit will conflict.
        pairs = zip(partial, tile_records, strict=True)
        edge = Edge(size, [record.value[: tile.width * HASH_SIZE] for tile, record in pairs])
        if edge.root() != Checkpoint.claimed(head.value).root:
            raise LedgerBroken(f"the tiles do not fit the signed head of {size} entries")
        segments = (await self._store.read(store_keys.bundle_span(size // FULL))).records
        revisions = {record.key: record.revision for record in tile_records}
        return _End(origin, head.revision, edge, revisions, segments)


def _grown(tile: Tile, data: bytes, known: dict[str, Revision]) -> Change:
    """Write a tile that is new or has grown; a full one is not written again."""
    key = store_keys.tile_key(tile)
    expected = known.pop(key, ABSENT)
    return Change(key, data, expected)


def _some(waiting: Sequence[Record], most: int, room: int) -> Sequence[Record]:
    """The first entries, as many as fit into a commit; at least one."""
    some, size = waiting[:most], 0
    for count, record in enumerate(some):
        size += len(record.value)
        if size > room and count:
            return some[:count]
    return some


def _bundled(
    segments: Sequence[Record], first: int, entries: Sequence[bytes]
) -> tuple[Sequence[Record], list[Change]]:
    """The segments of the last bundle with entries from an index on, and the changes for that."""
    changes: list[Change] = []
    while entries:
        room = FULL - first % FULL
        new = Record(store_keys.segment_key(first), tiles.bundle(entries[:room]), ABSENT)
        segments, more = _with(segments, new, full=len(entries) >= room)
        changes += more
        first, entries = first + room, entries[room:]
    return segments, changes


def _with(
    segments: Sequence[Record], new: Record, *, full: bool
) -> tuple[list[Record], list[Change]]:
    """The segments of a bundle with another one, and the changes for that.

    They are joined into one when the bundle is full, or there are too many of them.
    """
    if not segments or (not full and len(segments) < MOST_SEGMENTS):
        kept = [] if full else [*segments, new]
        return kept, [Change(new.key, new.value, ABSENT)]
    first, *others = segments
    whole = b"".join(record.value for record in [*segments, new])
    changes = [Change(first.key, whole, first.revision)]
    changes += [Change(record.key, None, record.revision) for record in others]
    return [] if full else [Record(first.key, whole, ABSENT)], changes


def _claimed(head: Record | None) -> Checkpoint:
    """The checkpoint in a record; that of an empty log if there is none."""
    try:
        return Checkpoint.claimed(head.value) if head else Checkpoint("", 0, EMPTY_ROOT)
    except NoteRefused as refusal:
        raise LedgerBroken(str(refusal)) from None


async def _one(store: Store, key: str) -> Record | None:
    records = (await store.read(Span.key(key), limit=1)).records
    return records[0] if records else None
