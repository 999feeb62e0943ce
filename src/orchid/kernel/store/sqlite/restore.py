"""Replace a data file by a backup, so that no client is misled.

A restored store holds the past, and clients have later revisions. So its counter is moved ahead of
everything that was ever returned: of the backup, of the replaced file and of the clock (decision
11). All history before that is compacted, and every watcher has to list again.

The previous file is renamed. It is locked meanwhile: nothing is restored under a running server.
"""

import os
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import MappingProxyType

import apsw
import msgspec

from orchid.kernel.store.interface import MAX_CHANGES, AlreadyInUse, Revision, StoreUnusable
from orchid.kernel.store.sqlite import file as sqlite_file
from orchid.kernel.store.sqlite import tables as sqlite_tables

_COMPANIONS = ("-wal", "-shm", "-journal")
_DANGLING = (
    "SELECT count(*) FROM current LEFT JOIN log USING (position)"
    " WHERE log.key IS NOT current.key OR log.value IS NULL"
)
_VALUES = (
    "SELECT current.key, log.value FROM current JOIN log USING (position)"
    " WHERE current.key >= ? AND current.key < ?"
)
_FORGET = "DELETE FROM log WHERE position = (SELECT position FROM current WHERE key = ?)"
_UID = re.compile(rb'"uid":"([^"]+)"')  # the first is that of the object: metadata comes first

# Keys and values that belong to a key and its value.
EntriesOf = Callable[[str, bytes], Iterable[tuple[str, bytes]]]


class BackupContents(msgspec.Struct, frozen=True):
    """The content of a data file."""

    records: int
    oldest: Revision
    newest: Revision
    author: str  # the version that wrote it
    counts: dict[str, int]  # of the records below each prefix: core/secrets/, ~ledger/


class Restored(msgspec.Struct, frozen=True):
    """The result of a restore."""

    contents: BackupContents
    aside: Path | None  # the new name of the replaced file
    kept: int  # values of that file that were kept


def inspect(path: Path) -> BackupContents:
    """Check a complete data file that is not in use; raises StoreUnusable."""
    try:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as db:
            return _inspect(db, path)
    except (apsw.Error, OSError) as error:
        raise StoreUnusable(f"{path} cannot be read as an Orchid data file: {error}") from error


def require_known_format(path: Path) -> None:
    """Raise NewerFormat, or StoreUnusable for a file that is not a data file."""
    try:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as db:
            sqlite_file.stated_format(db, path)
    except (apsw.Error, OSError) as error:
        raise StoreUnusable(f"{path} cannot be read as an Orchid data file: {error}") from error


def values_if_readable(path: Path, prefix: str) -> dict[str, bytes]:
    """The values below a prefix, by key; none if the file is missing or damaged."""
    if not path.exists():
        return {}
    with suppress(apsw.Error, OSError), closing(sqlite_file.connect(path, writable=False)) as db:
        return dict(db.execute(_VALUES, (prefix, prefix + "\U0010ffff")))
    return {}


def missing_in(path: Path, keys: Iterable[str]) -> list[str]:
    """The keys that a data file does not have."""
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as db:
        asked = "SELECT count(*) FROM current WHERE key = ?"
        return [key for key in keys if not db.execute(asked, (key,)).get]


def value_of(path: Path, key: str) -> bytes | None:
    """The value of a key in a data file; None if it has none."""
    try:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as db:
            row = db.execute(_VALUES, (key, key + "\0")).fetchone()
            return bytes(row[1]) if row else None
    except apsw.Error as error:
        raise StoreUnusable(f"{path} cannot be read as an Orchid data file: {error}") from error


def uids(path: Path, prefixes: Iterable[str]) -> dict[str, bytes]:
    """The uid of each object below some prefixes, by key; empty if its value is encrypted."""
    try:
        with closing(sqlite_file.connect(path, writable=False)) as db:
            return _uids(db, prefixes)
    except (apsw.Error, OSError) as error:
        raise StoreUnusable(f"{path} cannot be read as an Orchid data file: {error}") from error


def uids_if_readable(path: Path, prefixes: Iterable[str]) -> dict[str, bytes] | None:
    """The same; None if the file is missing or damaged."""
    if not path.exists():
        return None
    with suppress(StoreUnusable):
        return uids(path, prefixes)
    return None


def _uids(db: apsw.Connection, prefixes: Iterable[str]) -> dict[str, bytes]:
    uids: dict[str, bytes] = {}
    for prefix in prefixes:
        rows = db.execute(_VALUES, (prefix, prefix + "\U0010ffff"))
        for key, value in rows:
            uid = _UID.search(value)
            uids[key] = uid[1] if uid else b""
    return uids


def restore(
    backup: Path,
    target: Path,
    *,
    first: Revision,
    stamp: str,
    keeps: Sequence[str] = (),
    newer: Sequence[str] = (),
    entries_of: EntriesOf = lambda _key, _value: (),
    drops: Sequence[str] = (),
    values: Mapping[str, bytes] = MappingProxyType({}),
) -> Restored:
    """Check the backup, then replace the target by it. Raises StoreUnusable, AlreadyInUse.

    `first` is the least revision to continue from; `stamp` goes into the new name of the previous
    file. Values of the target below the prefixes `keeps` that the backup lacks are kept, and
    below `newer` all of them, each with the result of `entries_of`. The keys `drops` of the backup
    are omitted, and `values` are stored in place of those of the backup.
    """
    if target.exists() and target.samefile(backup):
        raise StoreUnusable(f"{backup} is the data file itself")
    inspect(backup)
    lock = sqlite_file.hold(target)
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        sqlite_file.copy(backup, partial)
        newest = max(first, _extent(backup).newest + 1, _newest_in_place(target) + 1)
        kept = [value for prefix in keeps for value in _missing_values(partial, target, prefix)]
        kept += [row for prefix in newer for row in values_if_readable(target, prefix).items()]
        entries = [entry for key, value in kept for entry in entries_of(key, value)]
        stored = [*kept, *entries, *values.items()]
        _move_ahead(partial, newest, stored, [*drops, *(key for key, _ in stored)])
        contents = inspect(partial)
        aside = _set_aside(target, stamp)
        partial.replace(target)
        sqlite_file.sync(target.parent)
    except (apsw.Error, OSError) as error:
        raise StoreUnusable(f"cannot restore {target}: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
        os.close(lock)
    return Restored(contents, aside, len(kept))


def _inspect(db: apsw.Connection, path: Path) -> BackupContents:
    stated = sqlite_file.stated_format(db, path)
    if (verdict := db.pragma("integrity_check")) != "ok":
        raise StoreUnusable(f"{path} is damaged: {verdict}")
    if (dangling := db.execute(_DANGLING).get) != 0:
        raise StoreUnusable(f"{path} is damaged: {dangling} keys have no value")
    oldest, newest = sqlite_tables.extent(db)
    counts = Counter(_prefix(key) for (key,) in db.execute("SELECT key FROM current"))
    return BackupContents(counts.total(), oldest, newest, stated.author, dict(counts))


def _prefix(key: str) -> str:
    """The prefix of the records of a kind: two parts of the key, or one of a record of our own."""
    parts = key.split("/", 2)
    return "/".join((*parts[: 1 if key.startswith("~") else 2], ""))


def _extent(path: Path) -> sqlite_tables.Extent:
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as db:
        return sqlite_tables.extent(db)


def _newest_in_place(target: Path) -> Revision:
    """The newest revision of the file to be replaced; 0 if it cannot be read."""
    if not target.exists():
        return 0
    # A damaged file must not prevent a restore. It is opened read-only: opened for writing, SQLite
    # would discard the log of a file that it does not understand.
    with suppress(apsw.Error), closing(sqlite_file.connect(target, writable=False)) as db:
        return sqlite_tables.extent(db).newest
    return 0


def _missing_values(path: Path, target: Path, prefix: str) -> list[tuple[str, bytes]]:
    """The values below a prefix that the target has and the file lacks; none if it is damaged."""
    found = values_if_readable(target, prefix)
    return [(key, found[key]) for key in missing_in(path, found)]


def _move_ahead(
    path: Path, newest: Revision, kept: Sequence[tuple[str, bytes]], dropped: Sequence[str]
) -> None:
    """Set the revision from which the store continues; `kept` values are stored up to there."""
    last = newest + max(len(kept) - 1, 0) // MAX_CHANGES
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as db:
        db.execute("PRAGMA synchronous = FULL")
        with db:
            for key in dropped:
                db.execute(_FORGET, (key,))
                db.execute("DELETE FROM current WHERE key = ?", (key,))
            for number, (key, value) in enumerate(kept):
                commit, change = divmod(number, MAX_CHANGES)
                position = (newest + commit) << sqlite_tables.SHIFT | change
                db.execute("INSERT INTO log VALUES (?, ?, ?, 0)", (position, key, value))
                db.execute("INSERT INTO current VALUES (?, ?)", (key, position))
            db.execute("UPDATE state SET oldest = ?", (last,))


def _set_aside(target: Path, stamp: str) -> Path | None:
    """Give the previous file a second name; the first is then replaced in one step."""
    if not target.exists():
        return None
    aside = target.with_name(f"{target.name}.before-{stamp}")
    os.link(target, aside)
    for end in _COMPANIONS:  # they belong to the old file; applied to the new one they destroy it
        companion = target.with_name(target.name + end)
        if companion.exists():
            companion.replace(aside.with_name(aside.name + end))
    return aside


__all__ = [
    "AlreadyInUse",
    "BackupContents",
    "Restored",
    "StoreUnusable",
    "inspect",
    "missing_in",
    "require_known_format",
    "restore",
    "uids",
    "uids_if_readable",
    "value_of",
    "values_if_readable",
]
