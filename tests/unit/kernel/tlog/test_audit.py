"""An audit reads a whole log, and names the first thing in it that does not fit."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from orchid.kernel.tlog import audit, tiles
from orchid.kernel.tlog.audit import LogRefused
from orchid.kernel.tlog.checkpoints import Checkpoint
from orchid.kernel.tlog.merkle import leaf_hash
from orchid.kernel.tlog.notes import NoteSigner
from orchid.kernel.tlog.proofs import check_inclusion
from orchid.kernel.tlog.tiles import ENTRIES, Edge, Tile
from tests.unit.kernel.tlog import naive

SIGNER = NoteSigner("example.com/log", Ed25519PrivateKey.from_private_bytes(b"k" * 32))


class DictLog:
    """A log in a dictionary, which a test may change."""

    def __init__(self, size: int, word: str = "entry") -> None:
        self.contents = [f"{word} {number}".encode() for number in range(size)]
        edge = Edge(0)
        self.tiles = edge.append([leaf_hash(entry) for entry in self.contents])
        for tile in audit.bundles_of(size):
            first = tile.index * 256
            self.tiles[tile] = tiles.bundle(self.contents[first : first + 256])
        self.head = Checkpoint("example.com/log", size, edge.root())
        self.note: bytes | None = self.head.signed(SIGNER)

    async def checkpoint(self) -> bytes | None:
        return self.note

    async def tile(self, tile: Tile) -> bytes | None:
        return self.tiles.get(tile)

    def flip(self, tile: Tile, place: int) -> None:
        data = bytearray(self.tiles[tile])
        data[place] ^= 1
        self.tiles[tile] = bytes(data)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 1000])
async def test_a_whole_log_passes(size: int) -> None:
    """Logs of every shape fit what was signed, and give their entries."""
    log = DictLog(size)

    assert await audit.audit(log, SIGNER.verifier) == log.head
    assert [entry async for entry in audit.entries(log, size)] == log.contents


@settings(deadline=None, max_examples=30)
@given(st.data())
async def test_any_changed_byte_is_found(data: st.DataObject) -> None:
    """Whichever byte of whichever tile or bundle is changed, the log is refused."""
    log = DictLog(300)
    tile = data.draw(st.sampled_from(list(log.tiles)))
    log.flip(tile, data.draw(st.integers(0, len(log.tiles[tile]) - 1)))

    with pytest.raises(LogRefused):
        await audit.audit(log, SIGNER.verifier)


async def test_a_changed_entry_is_named() -> None:
    """The first entry that does not match is reported by its index."""
    log = DictLog(300)
    place = log.tiles[Tile(ENTRIES, 1, 44)].index(b"entry 270")
    log.flip(Tile(ENTRIES, 1, 44), place)

    with pytest.raises(LogRefused, match="entry 270 does not match"):
        await audit.audit(log, SIGNER.verifier)


async def test_a_changed_hash_above_the_entries_is_named() -> None:
    """A wrong inner hash is reported by its tile and the entries below."""
    log = DictLog(600)
    log.flip(Tile(1, 0, 2), 32)

    with pytest.raises(LogRefused, match=r"tile/1/000\.p/2 does not match the entries 256 to 511"):
        await audit.audit(log, SIGNER.verifier)


async def test_a_log_rewritten_without_the_key_is_refused() -> None:
    """Rewritten entries and tiles have no signature for their root."""
    log, forged = DictLog(10), DictLog(10, "forged")
    forged.note = log.note

    with pytest.raises(LogRefused, match="and the checkpoint says"):
        await audit.audit(forged, SIGNER.verifier)


@pytest.mark.parametrize("removed", [0, 3, 255, 256, 299])
async def test_an_entry_that_was_removed_is_named(removed: int) -> None:
    """A removed entry makes the bundle shorter; the error names the removed one."""
    log = DictLog(300)
    index = removed // 256
    tile = next(one for one in log.tiles if (one.level, one.index) == (ENTRIES, index))
    left = log.contents[index * 256 : index * 256 + tile.width]
    del left[removed % 256]
    log.tiles[tile] = tiles.bundle(left)

    with pytest.raises(LogRefused, match=f"entry {removed} is missing"):
        await audit.audit(log, SIGNER.verifier)


async def test_an_entry_too_many_is_refused() -> None:
    """A bundle has as many entries as the log says."""
    log = DictLog(10)
    log.tiles[Tile(ENTRIES, 0, 10)] += tiles.bundle([b"one more"])

    with pytest.raises(LogRefused, match="has 11 entries instead of 10"):
        await audit.audit(log, SIGNER.verifier)


async def test_a_full_tile_above_the_entries_is_checked() -> None:
    """Of 65,536 entries, the tile of level 1 is full; others read it for their proofs."""
    log = DictLog(256 * 256)
    assert await audit.audit(log, SIGNER.verifier) == log.head
    log.flip(Tile(1, 0), 33)

    with pytest.raises(LogRefused, match=r"tile/1/000 does not match the entries 256 to 511"):
        await audit.audit(log, SIGNER.verifier)


async def test_a_missing_entry_or_tile_is_named() -> None:
    """A truncated log is reported with the index of the first missing entry."""
    log = DictLog(10)
    bundle = log.tiles[Tile(ENTRIES, 0, 10)]
    log.tiles[Tile(ENTRIES, 0, 10)] = bundle[: bundle.index(b"entry 7") - 2]
    with pytest.raises(LogRefused, match="entry 7 is missing"):
        await audit.audit(log, SIGNER.verifier)

    log.tiles[Tile(ENTRIES, 0, 10)] = bundle
    del log.tiles[Tile(0, 0, 10)]
    with pytest.raises(LogRefused, match=r"tile/0/000\.p/10 is missing"):
        await audit.audit(log, SIGNER.verifier)

    log.note = None
    with pytest.raises(LogRefused, match="no checkpoint"):
        await audit.audit(log, SIGNER.verifier)


@pytest.mark.parametrize("old", [0, 1, 255, 256, 257, 600])
async def test_a_log_that_has_grown_agrees_with_its_past(old: int) -> None:
    """A proof leads from the earlier checkpoint to the present one."""
    log = DictLog(600)

    await audit.require_growth(log, DictLog(old).head, log.head)


@pytest.mark.parametrize("old", [1, 256, 300, 600])
async def test_a_log_that_was_rewritten_does_not_agree_with_its_past(old: int) -> None:
    """Even with the key: another beginning does not fit an earlier checkpoint."""
    past, log = DictLog(old, "the truth").head, DictLog(600)

    with pytest.raises(LogRefused, match=f"rewritten: its first {old} entries"):
        await audit.require_growth(log, past, log.head)


async def test_a_log_that_was_rolled_back_is_found_out() -> None:
    """A log that is shorter than it was has lost entries."""
    log = DictLog(12)

    with pytest.raises(LogRefused, match="rolled back: it had 20 entries and has 12"):
        await audit.require_growth(log, DictLog(20).head, log.head)


async def test_every_verified_entry_is_passed_on() -> None:
    """In order, and once each."""
    seen: list[bytes] = []
    log = DictLog(300)

    await audit.audit(log, SIGNER.verifier, seen.append)

    assert seen == [one async for one in audit.entries(log, 300)]


@pytest.mark.parametrize(("index", "size"), [(0, 1), (17, 300), (299, 300), (256, 700)])
async def test_a_proof_is_read_out_of_a_log(index: int, size: int) -> None:
    """One entry and the hashes beside it are enough to find the signed root."""
    log = DictLog(size)

    entry = await audit.entry_at(log, index, size)
    proof = await audit.inclusion_proof(log, index, size)

    assert entry == log.contents[index]
    assert proof == naive.path(index, log.contents)
    check_inclusion(leaf_hash(entry), index, size, proof, log.head.root)
