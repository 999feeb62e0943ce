"""Tiles: the storage and publication format of a log, as in C2SP tlog-tiles.

A tile at level 0 has the leaf hashes of 256 consecutive entries; a hash in a tile one level up is
the root over a full tile below. Only the last tile of a level may be partial. An entry bundle has
the entries of a tile of level 0, each after its length. A full tile never changes, so that it can
be cached for ever. Start with `Tile`; `Edge` appends to a log by reading only its partial tiles.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from orchid.kernel.tlog.merkle import HASH_SIZE, Subtree, TreeNode, tree_hash

FULL: Final = 256  # hashes in a full tile
HEIGHT: Final = 8  # levels of the tree in one tile
ENTRIES: Final = -1  # the level of a bundle, which has the entries themselves
MAX_LEVEL: Final = 63
MAX_ENTRY: Final = 0xFFFF  # bytes, by the size of the length field

_PATH = re.compile(
    r"tile/(entries|0|[1-9][0-9]?)/((?:x[0-9]{3}/){0,6}[0-9]{3})(?:\.p/([1-9][0-9]{0,2}))?",
    re.ASCII,
)


class BadTile(Exception):
    """A malformed path, tile or bundle."""


class Tile(msgspec.Struct, frozen=True):
    """A tile or bundle: its level, its index in the level, and its width."""

    level: int
    index: int
    width: int = FULL

    @property
    def full(self) -> bool:
        return self.width == FULL

    @property
    def path(self) -> str:
        level = "entries" if self.level == ENTRIES else str(self.level)
        digits = f"{self.index:03d}"
        digits = digits.zfill(-(-len(digits) // 3) * 3)
        groups = [digits[i : i + 3] for i in range(0, len(digits), 3)]
        number = "/".join([f"x{group}" for group in groups[:-1]] + groups[-1:])
        return f"tile/{level}/{number}" + ("" if self.full else f".p/{self.width}")

    @classmethod
    def at(cls, path: str) -> "Tile":
        """The tile of a path; raises BadTile for all but the canonical spelling."""
        match = _PATH.fullmatch(path)
        if match is None:
            raise BadTile(f"not the path of a tile: {path!r}")
        level, number, width = match.groups()
        tile = cls(
            ENTRIES if level == "entries" else int(level),
            int(number.replace("x", "").replace("/", "")),
            int(width) if width else FULL,
        )
        if tile.level > MAX_LEVEL or tile.path != path:
            raise BadTile(f"not the path of a tile: {path!r}")
        return tile

    @classmethod
    def with_node(cls, node: TreeNode, size: int) -> "Tile":
        """The tile of a log of `size` entries that has a node's hash."""
        level, below = divmod(node.height, HEIGHT)
        index = node.position << below >> HEIGHT
        return cls(level, index, width_of(level, index, size))

    def hash_of(self, node: TreeNode, data: bytes) -> bytes:
        """A node's hash, from the bytes of the tile of `with_node`."""
        return _hash_in_row(node, split(data))


def _hash_in_row(node: TreeNode, row: Sequence[bytes]) -> bytes:
    """A node's hash, from the hashes of its tile."""
    below = node.height % HEIGHT
    first = (node.position << below) % FULL
    return tree_hash(row[first : first + (1 << below)])


def width_of(level: int, index: int, size: int) -> int:
    """The width of a tile in a log of `size` entries: 0 to 256."""
    hashes = size >> HEIGHT * max(level, 0)
    return min(max(hashes - index * FULL, 0), FULL)


def tiles_of(size: int) -> Iterator[Tile]:
    """Every tile of hashes of a log of `size` entries, level by level."""
    for level in range(MAX_LEVEL + 1):
        hashes = size >> HEIGHT * level
        if not hashes:
            return
        for index in range(-(-hashes // FULL)):
            yield Tile(level, index, width_of(level, index, size))


def split(data: bytes) -> list[bytes]:
    """The hashes in a tile."""
    if len(data) % HASH_SIZE:
        raise BadTile(f"{len(data)} bytes are not a row of hashes")
    return [data[i : i + HASH_SIZE] for i in range(0, len(data), HASH_SIZE)]


def subtree_hash(subtree: Subtree, size: int, read: Callable[[Tile], bytes]) -> bytes:
    """The hash of a subtree, from the tiles of a log of `size` entries."""

    def of_node(node: TreeNode) -> bytes:
        tile = Tile.with_node(node, size)
        return tile.hash_of(node, read(tile))

    return subtree.hash(of_node)


def tiles_for(subtrees: Iterable[Subtree], size: int) -> list[Tile]:
    """The tiles for the hashes of some subtrees, without duplicates."""
    nodes = (node for subtree in subtrees for node in subtree.nodes())
    return list(dict.fromkeys(Tile.with_node(node, size) for node in nodes))


def bundle(entries: Iterable[bytes]) -> bytes:
    """Entries, encoded as a bundle."""
    return b"".join([len(entry).to_bytes(2, "big") + entry for entry in entries])


def first_entries(data: bytes, count: int) -> bytes | None:
    """The prefix of a bundle with `count` entries; None if it has fewer."""
    at = 0
    for _ in range(count):
        if at >= len(data):
            return None
        at += 2 + int.from_bytes(data[at : at + 2], "big")
    return data[:at]


def unbundle(data: bytes) -> list[bytes]:
    """The entries in a bundle."""
    entries: list[bytes] = []
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 2], "big")
        entry = data[at + 2 : at + 2 + length]
        if at + 2 > len(data) or len(entry) < length:
            raise BadTile(f"the bundle ends in the middle of its entry {len(entries)}")
        entries.append(entry)
        at += 2 + length
    return entries


class Edge:
    """The right edge of a log: the partial tile of each level. Suffices to append, and for the
    root.

    An append costs the hashes of the new entries, whatever the size of the log.
    """

    def __init__(self, size: int, partial: Sequence[bytes] = ()) -> None:
        """`partial`: the bytes of each tile of `partial_tiles`, in its order."""
        self.size = size
        self._rows: list[list[bytes]] = []
        for tile, data in zip(self.partial_tiles(size), partial, strict=True):
            if len(data) != tile.width * HASH_SIZE:
                raise BadTile(f"{tile.path} has {len(data)} bytes")
            self._row(tile.level).extend(split(data))

    @staticmethod
    def partial_tiles(size: int) -> list[Tile]:
        """The tiles to read before appending to a log of `size` entries."""
        levels = range(-(-size.bit_length() // HEIGHT))
        tiles = (Tile(level, size >> HEIGHT * (level + 1)) for level in levels)
        widths = ((tile, width_of(tile.level, tile.index, size)) for tile in tiles)
        return [Tile(tile.level, tile.index, width) for tile, width in widths if width]

    def append(self, leaves: Sequence[bytes]) -> dict[Tile, bytes]:
        """Add leaf hashes; return the tiles that are new or have grown."""
        written: dict[Tile, bytes] = {}
        self._grow(0, leaves, written)
        self.size += len(leaves)
        return written

    def _grow(self, level: int, hashes: Sequence[bytes], written: dict[Tile, bytes]) -> None:
        row = self._row(level)
        index = self.size >> HEIGHT * (level + 1)
        row.extend(hashes)
        above = []
        while len(row) >= FULL:
            full, row[:] = row[:FULL], row[FULL:]
            written[Tile(level, index)] = b"".join(full)
            above.append(tree_hash(full))
            index += 1
        if row and hashes:
            written[Tile(level, index, len(row))] = b"".join(row)
        if above:
            self._grow(level + 1, above, written)

    def _row(self, level: int) -> list[bytes]:
        while len(self._rows) <= level:
            self._rows.append([])
        return self._rows[level]

    def tile(self, tile: Tile) -> bytes:
        """The bytes of one of the partial tiles."""
        return b"".join(self._rows[tile.level])

    def root(self) -> bytes:
        rows = self._rows
        return Subtree(0, self.size).hash(
            lambda node: _hash_in_row(node, rows[node.height // HEIGHT])
        )
