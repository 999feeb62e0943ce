"""The keys of the ledger in the store, and the changes that add an entry.

    ~ledger/pending/<time>-<random>…  an entry that waits for its place in the log
    ~ledger/entries/<index>           a segment of a bundle: entries from that index on
    ~ledger/tile/<level>/<index>      a tile of hashes; the last one of a level grows
    ~ledger/head/checkpoint           how far the log goes, signed
    ~ledger/known/<what>              the keys that were there last, see known_keys.py

The prefix sorts behind every object, so that one span holds all objects and nothing of the ledger.
An entry becomes pending in the same commit as the object it tells of (`pending`). No two commits
write the same key for it, so none waits for another. sequencing.py gives it its place.
"""

import itertools
import secrets
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from orchid.ledger.entries import Fact, entry
from orchid.store.interface import ABSENT, Change, Span
from orchid.tlog.tiles import FULL, Tile

PREFIX: Final = "~ledger/"
OBJECTS: Final = Span("", PREFIX)
"""Every key that is none of the ledger's."""

PENDING: Final = Span.prefix(PREFIX + "pending/")
HEAD: Final = PREFIX + "head/checkpoint"
_DIGITS: Final = 13  # of a time in milliseconds, until the year 2286


class _Process:
    """What tells the keys that this process makes from those of others, and from each other."""

    def __init__(self) -> None:
        # Random once: asking the kernel for each key would take longer than all the rest.
        self.word = secrets.token_hex(8)
        self.count = itertools.count(10**11)  # of twelve digits, so that keys sort by it


_process = _Process()


def pending(facts: Iterable[Fact], uid: str, now: datetime) -> list[Change]:
    """What a commit adds to put these facts about an object into the ledger.

    Each has a key that nobody else takes: the time, a word for this process, and a count. In the
    order of time, so that a crowd of entries gets its places in about that order.
    """
    moment = f"{int(now.timestamp() * 1000):0{_DIGITS}d}"
    start = f"{PENDING.start}{moment}-{_process.word}-"
    changes: list[Change] = []
    for fact in facts:
        key = f"{start}{next(_process.count)}"
        changes.append(Change(key, entry(fact, uid, now), ABSENT))
    return changes


def pending_since(key: str) -> float:
    """Since when a pending entry waits, as a Unix time; 0 if its key is not as we make them."""
    moment = key.removeprefix(PENDING.start).partition("-")[0]
    return int(moment) / 1000 if len(moment) == _DIGITS and moment.isdecimal() else 0.0


def pending_before(key: str, seconds: float) -> str:
    """Behind the keys of pending entries that are older than this one by so many seconds."""
    moment = max(pending_since(key) - seconds, 0.0)
    return f"{PENDING.start}{int(moment * 1000):0{_DIGITS}d}"


def segment_key(index: int) -> str:
    return f"{PREFIX}entries/{index:016d}"


def bundle_span(index: int) -> Span:
    """The segments of one bundle: joined, they are the bundle."""
    return Span(segment_key(index * FULL), segment_key((index + 1) * FULL))


def tile_key(tile: Tile) -> str:
    """One key for all widths of a tile: the wider one begins with the narrower ones."""
    return f"{PREFIX}tile/{tile.level:02d}/{tile.index:016d}"
