"""The data file: creating, locking, checking, opening and copying it.

One store has it open at a time: a lock file beside it, which is released with its process, however
that ends. Only the owner may read it, for it holds secrets. Start with `DataFile`; `copy` makes a
backup while the file is in use.
"""

import errno
import fcntl
import os
import secrets
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import apsw
import msgspec

from orchid.kernel.store import format as store_format
from orchid.kernel.store.format import FORMAT, StoreFormat
from orchid.kernel.store.interface import FIRST, AlreadyInUse, Revision, StoreUnusable
from orchid.kernel.store.sqlite.tables import RANGES_SCHEMA, SCHEMA

DATABASE: Final = "orchid.db"  # in the data directory

APPLICATION = 0x4F524348  # "ORCH", in the header of every data file
# Earlier versions can damage the file if two connections write and checkpoint at the same time.
MINIMUM_SQLITE = (3, 51, 3)
PRIVATE = 0o600
PAGE_BYTES = 8192  # values are about 2 KB; smaller pages would stay half empty
CACHE_KIB = 1024  # of each connection; the objects themselves are cached in memory
WAL_BYTES_KEPT = 64 << 20
PAGES_PER_STEP = 256
# Later formats keep this query working, so that every version can name the one that is needed.
_FORMAT_RECORD = "SELECT log.value FROM current JOIN log USING (position) WHERE current.key = ?"


class DataFile:
    """A locked data file until `close`, with a connection for each of two threads."""

    def __init__(self, path: Path, first: Revision = FIRST) -> None:
        check_sqlite(apsw.sqlite_lib_version())
        self.path = path
        with ExitStack() as undo:
            lock = hold(path)
            undo.callback(os.close, lock)
            self.writing = _prepare(path, first)
            undo.callback(self.writing.close)
            self.reading = connect(path, writable=False)
            undo.callback(self.reading.close)
            self._undo = undo.pop_all()

    def close(self) -> None:
        """Write everything back into the one file, and release it.

        The writing connection closes last: it checkpoints the write-ahead log.
        """
        self._undo.close()


def connect(path: Path, *, writable: bool = True) -> apsw.Connection:
    """Open a connection with our settings."""
    mode = apsw.SQLITE_OPEN_READWRITE if writable else apsw.SQLITE_OPEN_READONLY
    db = apsw.Connection(str(path), flags=mode)
    db.set_busy_timeout(10_000)  # a backup by another process may hold a lock for a moment
    db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    db.execute("PRAGMA mmap_size = 0")
    db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    if writable:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
    return db


def copy(source: Path, target: Path) -> None:
    """Write a consistent, checked copy of a file that may be in use, and only then name it.

    A failed copy leaves an existing `target` unchanged.
    """
    if target.exists() and target.samefile(source):
        raise ValueError(f"{target} is the data file itself")
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        _create_empty(partial)
        _copy_pages(source, partial)
        sync(partial)
        partial.replace(target)
        sync(target.parent)
    except (apsw.Error, OSError) as error:
        raise StoreUnusable(f"cannot write the backup {target}: {_reason(error)}") from error
    finally:
        partial.unlink(missing_ok=True)
        partial.with_name(partial.name + "-journal").unlink(missing_ok=True)


def check_sqlite(version: str) -> None:
    """Refuse a SQLite version that can damage files."""
    if tuple(int(part) for part in version.split(".")[:3]) < MINIMUM_SQLITE:
        needed = ".".join(map(str, MINIMUM_SQLITE))
        raise StoreUnusable(f"SQLite {version} is too old, {needed} or later is needed")


def hold(path: Path) -> int:
    """Take the exclusive lock; closing the descriptor releases it."""
    try:
        name = path.with_name(path.name + "-lock")
        lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    except OSError as error:
        raise StoreUnusable(f"cannot open the data file {path}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(lock, 20, 0).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise AlreadyInUse(f"the data file {path} is in use by process {holder}") from error
    try:
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        os.close(lock)
        raise StoreUnusable(f"cannot write {name}: {error.strerror}") from error
    return lock


def _reason(error: apsw.Error | OSError) -> str:
    """The reason of a failure; SQLite calls a full disk "not an error"."""
    if isinstance(error, apsw.FullError):
        return os.strerror(errno.ENOSPC)
    return str(error)


def _prepare(path: Path, first: Revision) -> apsw.Connection:
    """Open the locked file for writing; create it first if it is new."""
    try:
        _make_private(path)
        db = connect(path)
        try:
            _check_format(db, path, first)
        except BaseException:
            db.close()
            raise
    except apsw.NotADBError as error:
        raise StoreUnusable(f"{path} is not an Orchid data file") from error
    except (apsw.Error, OSError) as error:
        raise StoreUnusable(f"cannot open the data file {path}: {error}") from error
    return db


def _make_private(path: Path) -> None:
    if path.exists():
        path.chmod(PRIVATE)
        return
    _create_empty(path)
    sync(path.parent)


def _create_empty(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))


def _check_format(db: apsw.Connection, path: Path, first: Revision) -> None:
    if db.pragma("application_id") or db.execute("SELECT 1 FROM sqlite_schema").get:
        stated_format(db, path)
        db.execute(RANGES_SCHEMA)  # older files have no such table
        return
    with db:  # one transaction: a crash leaves an empty file, which is created again
        db.execute(SCHEMA)
        db.execute(RANGES_SCHEMA)
        db.execute("UPDATE state SET oldest = ?", (first,))
        db.execute(f"PRAGMA application_id = {APPLICATION}")
        db.execute(f"PRAGMA user_version = {FORMAT}")


def stated_format(db: apsw.Connection, path: Path) -> StoreFormat:
    """The format of a data file; raises NewerFormat, or StoreUnusable for another file."""
    if db.pragma("application_id") != APPLICATION:
        raise StoreUnusable(f"{path} is not an Orchid data file")
    number = int(db.pragma("user_version"))
    try:
        value_of = db.execute(_FORMAT_RECORD, (store_format.KEY,)).get
    except apsw.SQLError:  # the tables of a later version
        value_of = None
    stated = store_format.decode(value_of, str(path))
    stated = msgspec.structs.replace(stated, format=max(stated.format, number))
    store_format.refuse_newer(stated, str(path))
    return stated


def _copy_pages(source: Path, target: Path) -> None:
    with (
        closing(connect(source, writable=False)) as old,
        closing(apsw.Connection(str(target))) as new,
    ):
        # One snapshot, so that writers cannot make the copy start over.
        old.execute("BEGIN")
        old.execute("SELECT 1 FROM state").get  # noqa: B018 - the snapshot begins with a read
        with new.backup("main", old, "main") as pages:
            while not pages.done:
                pages.step(PAGES_PER_STEP)
        new.execute("PRAGMA journal_mode = DELETE")  # a backup is one file, without companions
        if (verdict := new.pragma("quick_check")) != "ok":
            raise StoreUnusable(f"the copy of {source} is damaged: {verdict}")


def sync(path: Path) -> None:
    """Wait until a file, or a directory's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
