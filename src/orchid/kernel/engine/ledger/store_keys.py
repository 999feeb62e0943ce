"""The keys of the ledger in the store, and the changes that add an entry.

    ~ledger/pending/<time>-<random>…  an entry that waits for its index in the log
    ~ledger/entries/<index>           a segment of a bundle: entries from that index on
    ~ledger/tile/<level>/<index>      a tile of hashes; the last one of a level grows
    ~ledger/head/checkpoint           the size of the log, signed
    ~ledger/known/<what>              the last set of keys, see features/ledger/known_keys.py

The prefix sorts behind every object, so that one range holds all objects and nothing of the ledger.
An entry becomes pending in the same commit as its object (`pending`). No two commits write the same
key for it, so none waits for another. features/ledger/sequencing.py assigns its index.
"""

import itertools
import secrets
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from orchid.kernel.engine.ledger.entries import Fact, entry
from orchid.kernel.store.interface import ABSENT, Change, Span
from orchid.kernel.tlog.tiles import FULL, Tile

PREFIX: Final = "~ledger/"
OBJECTS: Final = Span("", PREFIX)
"""Every key outside of the ledger."""

PENDING: Final = Span.prefix(PREFIX + "pending/")
HEAD: Final = PREFIX + "head/checkpoint"
_DIGITS: Final = 13  # of a time in milliseconds, until the year 2286


class _Process:
    """A unique prefix for the keys of this process, and a counter."""

    def __init__(self) -> None:
        # Random once: asking the kernel for each key would dominate the cost.
        self.word = secrets.token_hex(8)
        self.count = itertools.count(10**11)  # of twelve digits, so that keys sort by it


_process = _Process()


def pending(facts: Iterable[Fact], uid: str, now: datetime) -> list[Change]:
    """The changes of a commit that add these facts about an object to the ledger.

    Each has a unique key: the time, a random word of this process, and a count. Sorted by time, so
    that entries get their indexes in about that order.
    """
    moment = f"{int(now.timestamp() * 1000):0{_DIGITS}d}"
    start = f"{PENDING.start}{moment}-{_process.word}-"
    changes: list[Change] = []
    for fact in facts:
        key = f"{start}{next(_process.count)}"
        changes.append(Change(key, entry(fact, uid, now), ABSENT))
    return changes


def pending_since(key: str) -> float:
    """The time at which an entry became pending, as a Unix time; 0 for a malformed key."""
    moment = key.removeprefix(PENDING.start).partition("-")[0]
    return int(moment) / 1000 if len(moment) == _DIGITS and moment.isdecimal() else 0.0


def pending_before(key: str, seconds: float) -> str:
    """A key after all pending entries that are older than this one by so many seconds."""
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
