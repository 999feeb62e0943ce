"""Give pending entries their places: the only writer of the log itself.

`Sequencer.step` takes some pending entries and, in one commit, appends them, moves the signed head
and removes them from among the pending. The signature and the tiles that are written anew cost a
commit the same for one entry as for many. So a second's worth of them gathers between two looks,
and what comes during one waits for the next.

The head moves by compare-and-swap: of several servers that try at once, one succeeds and the others
look again. So every entry is logged once, and the log never branches. Only the right edge of the
log is read, and remembered while nobody else moves the head.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from orchid.ledger import places
from orchid.store.interface import (
    ABSENT,
    Change,
    Record,
    Revision,
    RevisionConflict,
    Span,
    Store,
)
from orchid.tlog import tiles
from orchid.tlog.checkpoints import Checkpoint
from orchid.tlog.merkle import HASH_SIZE, leaf_hashes
from orchid.tlog.notes import NoteRefused, NoteSigner
from orchid.tlog.tiles import FULL, BadTile, Edge, Tile

log = logging.getLogger(__name__)

INTERVAL_SECONDS: Final = 1.0
FIRST_HURRY = 10  # times as often, until the log has begun
PAGE: Final = 1024  # pending entries that are read, and put in order, at once
MOST_AT_ONCE: Final = 96  # entries in one commit, each of which costs a change more
MOST_SEGMENTS: Final = 22  # of one bundle; more are joined into one, a change for each


class LedgerBroken(Exception):
    """The log in the store cannot be continued by this server."""


class _End(msgspec.Struct):
    """The end of the log as it stands in the store."""

    signer: NoteSigner
    revision: Revision  # of the head
    edge: Edge
    tiles: dict[str, Revision]  # the partial tiles
    segments: list[Record]  # of the last bundle, if it is not full


class Sequencer:
    """Appends pending entries to the log in a store, signed with the ledger's key.

    `origin` names a log that is yet to begin; one that has begun keeps its name.
    """

    def __init__(self, store: Store, key: Ed25519PrivateKey, origin: str) -> None:
        self._store = store
        self._key = key
        self._origin = origin
        self._end: _End | None = None

    async def run(
        self,
        *,
        interval: float = INTERVAL_SECONDS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Look for entries again and again, until cancelled."""
        problem = ""
        while True:
            try:
                await self.drain()
                problem = ""
            except Exception as failure:  # the entries stay pending, and the server goes on
                if str(failure) != problem:  # logged once, not every second
                    log.error("ledger.not_written: %s", failure)
                problem = str(failure)
            # The first entries come with the start, and people look for them at once.
            await sleep(interval if self._end is not None else interval / FIRST_HURRY)

    async def drain(self) -> None:
        """Give every entry that is pending now its place; one that comes meanwhile may wait."""
        while await self.step():
            pass

    async def step(self) -> bool:
        """Log pending entries, in the order of their commits; say whether others waited as well."""
        page = await self._store.read(places.PENDING, limit=PAGE)
        waiting = sorted(page.records, key=attrgetter("revision", "key"))
        done = 0
        try:
            while done < len(waiting):
                end = await self._current_end()
                room = min(MOST_AT_ONCE, FULL - end.edge.size % FULL)
                await self._append(end, waiting[done : done + room])
                done += room
        except RevisionConflict:
            log.debug("ledger.head_moved")  # another server was faster; look again
            return True
        return page.more

    async def _append(self, end: _End, waiting: Sequence[Record]) -> None:
        self._end = None  # whether the commit happened is not known
        first = end.edge.size
        entries = [record.value for record in waiting]
        grown = end.edge.append(leaf_hashes(entries))
        head = Checkpoint(end.signer.verifier.name, end.edge.size, end.edge.root())
        segment = Record(places.segment_key(first), tiles.bundle(entries), ABSENT)
        segments, joined = _with(end.segments, segment, full=end.edge.size % FULL == 0)
        changes = [
            Change(places.HEAD, head.signed(end.signer), end.revision),
            *joined,
            *[_grown(tile, data, end.tiles) for tile, data in grown.items()],
            *[Change(record.key, None, record.revision) for record in waiting],
        ]
        revision = await self._store.commit(changes)
        end.revision = revision
        end.tiles.update({places.tile_key(tile): revision for tile in grown if not tile.full})
        end.segments = [
            each if each.revision else each._replace(revision=revision) for each in segments
        ]
        self._end = end

    async def _current_end(self) -> _End:
        if self._end:
            return self._end  # if another server has moved the head since, the commit conflicts
        head = await _one(self._store, places.HEAD)
        if head is None:
            return _End(NoteSigner(self._origin, self._key), ABSENT, Edge(0), {}, [])
        try:
            return await self._read_end(head)
        except (NoteRefused, BadTile) as problem:
            raise LedgerBroken(str(problem)) from None

    async def _read_end(self, head: Record) -> _End:
        signer = NoteSigner(Checkpoint.claimed(head.value).origin, self._key)
        size = Checkpoint.opened(head.value, signer.verifier).size
        partial = Edge.partial_tiles(size)
        records = [await _one(self._store, places.tile_key(tile)) for tile in partial]
        found = [record for record in records if record is not None]
        if len(found) < len(partial):
            raise LedgerBroken(f"a tile of the log of {size} entries is missing")
        # Should the log have grown since the head was read, the commit will conflict.
        pairs = zip(partial, found, strict=True)
        edge = Edge(size, [record.value[: tile.width * HASH_SIZE] for tile, record in pairs])
        if edge.root() != Checkpoint.claimed(head.value).root:
            raise LedgerBroken(f"the tiles do not fit the signed head of {size} entries")
        segments = (await self._store.read(places.bundle_span(size // FULL))).records
        revisions = {record.key: record.revision for record in found}
        return _End(signer, head.revision, edge, revisions, segments)


def _grown(tile: Tile, data: bytes, known: dict[str, Revision]) -> Change:
    """Write a tile that is new or has grown; a full one is not written again."""
    key = places.tile_key(tile)
    expected = known.pop(key, ABSENT)
    return Change(key, data, expected)


def _with(
    segments: Sequence[Record], new: Record, *, full: bool
) -> tuple[list[Record], list[Change]]:
    """The segments of a bundle with one more, and the changes that make it so.

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


async def _one(store: Store, key: str) -> Record | None:
    records = (await store.read(Span.key(key), limit=1)).records
    return records[0] if records else None
