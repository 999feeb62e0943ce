"""The format of a store: a number in the store, with the versions that wrote it and can read it.

    ~server/format   {"format":1,"writtenBy":"1.2.0","needs":"1.0.0"}

Every backend reads this record before anything else and refuses a format that is newer than its
own, so an older program never damages the data of a newer one. A store without the record is of
format 1: versions before the record wrote that. docs/compatibility.md has the rules for a new one.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from orchid.kernel.base.version import __version__
from orchid.kernel.store.interface import ABSENT, Change, NewerFormat, Record, StoreUnusable

KEY: Final = "~server/format"  # sorts after all objects, like the ledger
FORMAT: Final = 1
NEEDS: Final = "0.1.0"  # the oldest version that can open this format


class StoreFormat(msgspec.Struct, frozen=True, rename="camel"):
    """The record. Later versions may add fields, and may not change these three."""

    format: int = 1
    written_by: str = ""  # the version that started last; empty: older than the record
    needs: str = ""  # the oldest version that can open the store

    @property
    def author(self) -> str:
        return f"Orchid {self.written_by}" if self.written_by else "an early version of Orchid"


CURRENT: Final = StoreFormat(FORMAT, __version__, NEEDS)


def decode(value: bytes | None, where: str) -> StoreFormat:
    """The format that a record states; raises StoreUnusable if it is damaged."""
    if value is None:
        return StoreFormat()
    try:
        return msgspec.json.decode(value, type=StoreFormat)
    except (msgspec.MsgspecError, ValueError):
        raise StoreUnusable(f"{where} is damaged: its record {KEY} cannot be read") from None


def refuse_newer(stated: StoreFormat, where: str) -> None:
    """Raise NewerFormat for a format that this version does not know."""
    if stated.format <= FORMAT:
        return
    needed = f"Orchid {stated.needs} or later" if stated.needs else "a later version of Orchid"
    raise NewerFormat(
        f"{where} has format {stated.format}, written by {stated.author}: it needs {needed}. "
        f"This is Orchid {__version__}, which knows formats up to {FORMAT}"
    )


def update(records: Mapping[str, Record]) -> list[Change]:
    """The change after which the record names this version; none if it does so already."""
    value = msgspec.json.encode(CURRENT)
    record = records.get(KEY)
    if record is not None and record.value == value:
        return []
    return [Change(KEY, value, record.revision if record else ABSENT)]
