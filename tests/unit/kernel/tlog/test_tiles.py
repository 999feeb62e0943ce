"""Tiles are named and filled as C2SP tlog-tiles says, and an edge grows a log without its past."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchid.kernel.tlog import proofs, tiles
from orchid.kernel.tlog.merkle import Subtree, leaf_hash
from orchid.kernel.tlog.tiles import ENTRIES, BadTile, Edge, Tile
from tests.unit.kernel.tlog import naive


def log_of(sizes: list[int]) -> tuple[list[bytes], dict[Tile, bytes]]:
    """A log that has grown in steps, each from the edge alone, and all its tiles."""
    entries: list[bytes] = []
    kept: dict[Tile, bytes] = {}
    for count in sizes:
        start = len(entries)
        new = [b"entry %d" % number for number in range(start, start + count)]
        edge = Edge(start, [kept[tile] for tile in Edge.partial_tiles(start)])
        kept |= edge.append([leaf_hash(entry) for entry in new])
        entries += new
    return entries, kept


@pytest.mark.parametrize(
    ("tile", "path"),
    [
        (Tile(0, 0), "tile/0/000"),
        (Tile(0, 1234067), "tile/0/x001/x234/067"),
        (Tile(2, 1000, 17), "tile/2/x001/000.p/17"),
        (Tile(ENTRIES, 999, 255), "tile/entries/999.p/255"),
        (Tile(63, 5), "tile/63/005"),
    ],
)
def test_a_tile_has_one_path(tile: Tile, path: str) -> None:
    """The path says level, place and width; both directions agree."""
    assert tile.path == path
    assert Tile.at(path) == tile


@pytest.mark.parametrize(
    "path",
    [
        "tile/0/0", "tile/00/000", "tile/64/000", "tile/-1/000", "tile/0/x000/000", "tile/0/1000",
        "tile/0/000.p/0", "tile/0/000.p/256", "tile/0/000.p/01", "tile/0/000/", "/tile/0/000",
        "tile/0/x001", "tile/entries", "tile/0/x001/x234/067/..", "tile/0/٣٣٣", "tile/0/000\n",
        "tile/data/000", "",
    ],
)  # fmt: skip
def test_any_other_spelling_of_a_path_is_refused(path: str) -> None:
    """One tile has one path, or caches would keep it twice and checks could be passed by."""
    with pytest.raises(BadTile):
        Tile.at(path)


def test_a_log_of_seventy_thousand_has_the_tiles_of_the_specification() -> None:
    """The example of the specification: 273 full ones and one of 112, one and 17, one of 1."""
    found = list(tiles.tiles_of(70_000))

    assert [tile for tile in found if not tile.full] == [
        Tile(0, 273, 112),
        Tile(1, 1, 17),
        Tile(2, 0, 1),
    ]
    assert len(found) == 273 + 1 + 1 + 1 + 1


@settings(max_examples=30)
@given(st.lists(st.integers(1, 300), max_size=6))
def test_a_log_that_grew_in_steps_has_the_naive_root_and_every_tile(sizes: list[int]) -> None:
    """However it grew, the edge knows the root, and each tile that there must be was written."""
    entries, kept = log_of(sizes)
    size = len(entries)

    edge = Edge(size, [kept[tile] for tile in Edge.partial_tiles(size)])

    assert edge.root() == naive.root(entries)
    for tile in tiles.tiles_of(size):
        span = 256**tile.level
        first = tile.index * 256 * span
        starts = range(first, first + tile.width * span, span)
        assert kept[tile] == b"".join(naive.root(entries[at : at + span]) for at in starts)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 1100), st.data())
def test_proofs_are_made_from_few_tiles(size: int, data: st.DataObject) -> None:
    """Both proofs come out of the tiles that `tiles_for` names, equal to the naive ones."""
    entries, kept = log_of([size])
    index = data.draw(st.integers(0, size - 1))
    wanted = {
        "inclusion": (proofs.inclusion(index, size), naive.path(index, entries)),
        "consistency": (proofs.consistency(index + 1, size), naive.proof(index + 1, entries)),
    }

    for subtrees, expected in wanted.values():
        given_tiles = {tile: kept[tile] for tile in tiles.tiles_for(subtrees, size)}
        found = [tiles.subtree_hash(each, size, given_tiles.__getitem__) for each in subtrees]
        assert found == expected
        assert len(given_tiles) <= 6


def test_an_append_writes_only_the_right_edge() -> None:
    """One more entry in a log of seventy thousand touches one tile of it."""
    _, kept = log_of([70_000])
    edge = Edge(70_000, [kept[tile] for tile in Edge.partial_tiles(70_000)])

    written = edge.append([leaf_hash(b"one more")])

    assert list(written) == [Tile(0, 273, 113)]
    assert edge.root() == tiles.subtree_hash(
        Subtree(0, 70_001), 70_001, lambda tile: (kept | written)[tile]
    )


def test_an_edge_refuses_a_tile_of_another_size() -> None:
    """A tile that lost a hash cannot be what the log of that size had."""
    with pytest.raises(BadTile, match=r"tile/0/000\.p/3 has 64 bytes"):
        Edge(3, [b"\0" * 64])


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_a_bundle_gives_its_entries_back(entries: list[bytes]) -> None:
    """Entries of any bytes, empty ones too, come out as they went in."""
    assert tiles.unbundle(tiles.bundle(entries)) == entries


@pytest.mark.parametrize("data", [b"\0", b"\0\3ab", b"\0\1a\0"])
def test_a_bundle_that_was_cut_is_refused(data: bytes) -> None:
    """The end of a bundle is the end of an entry."""
    with pytest.raises(BadTile, match="in the middle of its entry"):
        tiles.unbundle(data)


def test_a_tile_is_a_whole_number_of_hashes() -> None:
    """Bytes left over would belong to no hash."""
    with pytest.raises(BadTile, match="33 bytes"):
        tiles.split(b"\0" * 33)


def test_an_entry_that_is_too_long_for_its_length_is_refused() -> None:
    """The length in front of an entry has two bytes."""
    with pytest.raises(OverflowError):
        tiles.bundle([b"x" * (tiles.MAX_ENTRY + 1)])
