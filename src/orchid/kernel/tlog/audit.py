"""Verify a whole log: every entry against its hash, every hash up to the signed root.

`audit` reads everything once and computes the tree again. `LogRefused` names the first mismatch: an
entry by its index, a tile by its path. `require_growth` compares a log with an earlier checkpoint,
and so detects one that was rolled back or rewritten, even by the holder of its key.
"""

import base64
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from orchid.kernel.tlog import tiles
from orchid.kernel.tlog.checkpoints import Checkpoint
from orchid.kernel.tlog.merkle import HASH_SIZE, leaf_hash
from orchid.kernel.tlog.notes import NoteRefused, NoteVerifier
from orchid.kernel.tlog.proofs import ProofRefused, check_consistency, consistency, inclusion
from orchid.kernel.tlog.tiles import ENTRIES, FULL, BadTile, Edge, Tile


class LogRefused(Exception):
    """The log does not match the signed checkpoint; the message says where."""


class LogSource(Protocol):
    """A source of a log: a store, a server, a directory."""

    async def checkpoint(self) -> bytes | None:
        """The signed checkpoint; None if there is no log yet."""

    async def tile(self, tile: Tile) -> bytes | None:
        """A tile or bundle in the requested width; None if it does not exist."""


class LogAtOneMoment:
    """A log as of its checkpoint at first access, though it may grow meanwhile."""

    def __init__(self, source: LogSource) -> None:
        self._source = source
        self._note: bytes | None = None

    async def checkpoint(self) -> bytes | None:
        if self._note is None:
            self._note = await self._source.checkpoint()
        return self._note

    async def tile(self, tile: Tile) -> bytes | None:
        return await self._source.tile(tile)


async def opened(source: LogSource, verifier: NoteVerifier) -> Checkpoint:
    """The checkpoint of a log, with a verified signature."""
    note = await source.checkpoint()
    if note is None:
        raise LogRefused("the log has no checkpoint")
    try:
        return Checkpoint.opened(note, verifier)
    except NoteRefused as refusal:
        raise LogRefused(f"the checkpoint is invalid: {refusal}") from None


async def audit(
    source: LogSource,
    verifier: NoteVerifier,
    visit: Callable[[bytes], None] = lambda _: None,
) -> Checkpoint:
    """Read and verify everything; return the checkpoint. Each entry is passed to `visit`."""
    head = await opened(source, verifier)
    edge = Edge(0)
    for tile in bundles_of(head.size):
        await _take(source, edge, tile, visit)
    for tile in Edge.partial_tiles(head.size):
        await _check_tile(source, tile, edge.tile(tile))
    if edge.root() != head.root:
        raise LogRefused(
            f"the {head.size} entries have the root {_shown(edge.root())}, "
            f"and the checkpoint says {_shown(head.root)}"
        )
    return head


async def entries(source: LogSource, size: int) -> AsyncIterator[bytes]:
    """Every entry of a log, not verified."""
    for tile in bundles_of(size):
        for entry in await bundle_entries(source, tile):
            yield entry


async def inclusion_proof(source: LogSource, index: int, size: int) -> list[bytes]:
    """The inclusion proof of an entry in the log of `size` entries."""
    subtrees = inclusion(index, size)
    needed = tiles.tiles_for(subtrees, size)
    hashes = {tile: await _tile(source, tile) for tile in needed}
    return [tiles.subtree_hash(each, size, hashes.__getitem__) for each in subtrees]


async def require_growth(source: LogSource, old: Checkpoint, new: Checkpoint) -> None:
    """Raise LogRefused unless the log begins with an earlier one; reads a few tiles."""
    if old.size > new.size:
        raise LogRefused(f"the log was rolled back: it had {old.size} entries and has {new.size}")
    subtrees = consistency(old.size, new.size)
    needed = tiles.tiles_for(subtrees, new.size)
    hashes = {tile: await _tile(source, tile) for tile in needed}
    proof = [tiles.subtree_hash(each, new.size, hashes.__getitem__) for each in subtrees]
    try:
        check_consistency(old.size, old.root, new.size, new.root, proof)
    except ProofRefused:
        raise LogRefused(
            f"the log was rewritten: its first {old.size} entries are not those of the checkpoint"
        ) from None


async def entry_at(source: LogSource, index: int, size: int) -> bytes:
    position = index // FULL
    tile = Tile(ENTRIES, position, tiles.width_of(0, position, size))
    return (await bundle_entries(source, tile))[index % FULL]


def bundles_of(size: int) -> list[Tile]:
    """Every bundle of a log of `size` entries."""
    indexes = range(-(-size // FULL))
    return [Tile(ENTRIES, position, tiles.width_of(0, position, size)) for position in indexes]


async def _take(source: LogSource, edge: Edge, tile: Tile, visit: Callable[[bytes], None]) -> None:
    """Verify one bundle against its tile, and add it to the computed tree."""
    first = tile.index * FULL
    hashes = tiles.split(await _tile(source, Tile(0, tile.index, tile.width)))
    found_entries = await _available_entries(source, tile)
    leaves = [leaf_hash(entry) for entry in found_entries]
    for position, expected in enumerate(hashes):
        leaf = leaves[position] if position < len(leaves) else None
        if leaf == expected:
            continue
        if len(leaves) < tile.width and (leaf is None or leaf in hashes[position + 1 :]):
            count = f"{tile.path} has {len(leaves)} of {tile.width} entries"
            raise LogRefused(f"entry {first + position} is missing: {count}")
        raise LogRefused(f"entry {first + position} does not match its hash in the log")
    if len(leaves) > tile.width:
        raise LogRefused(f"{tile.path} has {len(leaves)} entries instead of {tile.width}")
    for entry in found_entries:
        visit(entry)
    for done, data in edge.append(leaves).items():
        if done.level and done.full:
            await _check_tile(source, done, data)


async def _check_tile(source: LogSource, tile: Tile, expected: bytes) -> None:
    stored = tiles.split(await _tile(source, tile))
    for position, (stored_hash, computed) in enumerate(
        zip(stored, tiles.split(expected), strict=True)
    ):
        if stored_hash != computed:
            span = FULL**tile.level
            first = (tile.index * FULL + position) * span
            raise LogRefused(
                f"{tile.path} does not match the entries {first} to {first + span - 1} below it"
            )


async def bundle_entries(source: LogSource, tile: Tile) -> list[bytes]:
    """The entries in a bundle; raises LogRefused unless it has the expected number."""
    entries = _unbundled(tile, await source.tile(tile) or b"")
    if len(entries) != tile.width:
        first = tile.index * FULL + len(entries)
        raise LogRefused(f"entry {first} is missing: {tile.path} has {len(entries)} entries")
    return entries


async def _available_entries(source: LogSource, tile: Tile) -> list[bytes]:
    """The available entries of a bundle: a shorter one is read by smaller widths."""
    if (data := await source.tile(tile)) is not None:
        return _unbundled(tile, data)
    least, most, data = (
        0,
        tile.width,
        b"",
    )  # the log has a bundle of the first width, not the second
    while most - least > 1:
        width = (least + most) // 2
        bundle = await source.tile(Tile(ENTRIES, tile.index, width))
        if bundle is None:
            most = width
        else:
            least, data = width, bundle
    return _unbundled(tile, data)


def _unbundled(tile: Tile, data: bytes) -> list[bytes]:
    try:
        return tiles.unbundle(data)
    except BadTile as problem:
        raise LogRefused(f"{tile.path}: {problem}") from None


async def _tile(source: LogSource, tile: Tile) -> bytes:
    data = await source.tile(tile)
    if data is None or len(data) != tile.width * HASH_SIZE:
        raise LogRefused(f"{tile.path} is missing or has not {tile.width} hashes")
    return data


def _shown(root: bytes) -> str:
    return base64.b64encode(root).decode()
