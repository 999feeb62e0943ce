"""Tombstones: what the store remembers for good, also when the object itself is deleted.

    ~tombstones/<name>    a short text

A kind declares them (`Kind.tombstones`), and each is part of the commit that changes the object.
Nobody changes or deletes one. Their keys sort behind all objects, so that the feed never loads
them: a reader asks the store.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from orchid.kernel.store.interface import ABSENT, Change, Span, Store

PREFIX: Final = "~tombstones/"
LONGEST_TEXT: Final = 300  # bytes


class Tombstone(NamedTuple):
    name: str
    text: str


async def read_tombstone(store: Store, name: str) -> str | None:
    """The text of a tombstone; None if there is none of that name."""
    records = (await store.read(Span.key(PREFIX + name), limit=1)).records
    return records[0].value.decode() if records else None


async def tombstone_changes(store: Store, tombstones: Iterable[Tombstone]) -> list[Change]:
    """The changes of a commit that add those tombstones which the store does not have."""
    return [
        Change(PREFIX + name, text.encode()[:LONGEST_TEXT], ABSENT)
        for name, text in dict(tombstones).items()
        if await read_tombstone(store, name) is None
    ]
