"""Files with keys and certificates: safe reads, atomic writes, reloads.

`read_private` refuses a key that others can read or own; `refuse_exposed` alone checks owner and
mode, of keys and of their directories. `write_private` leaves either the old file or the complete
new one, never readable by others. `set_aside` keeps a damaged file. `Reloading` reloads a value
when its files change, and keeps the old one while the new files are invalid.
"""

import contextlib
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Generic, TypeVar

from orchid.kernel.credentials.refusals import ExposedKeyFile, KeyRefused, Refusal, UnreadableKey

T = TypeVar("T")

# Larger files are no keys; reading one would only cost memory.
MAX_KEY_FILE = 1 << 20
CHECK_INTERVAL_SECONDS = 1.0  # between checks of followed files

UNREADABLE = ".unreadable-"  # and a time: the name of a damaged file that was set aside

_ROOT = 0

Fingerprint = tuple[tuple[int, int, int, int], ...]


def read_bounded(path: Path, limit: int = MAX_KEY_FILE) -> bytes:
    """Read a file of keys or certificates that may be public."""
    data, _ = _read(path, limit)
    return data


def read_private(path: Path, limit: int = MAX_KEY_FILE) -> bytes:
    """Read a private key; refuse it if others than its owner can access it."""
    data, status = _read(path, limit)
    refuse_exposed(path, status)
    return data


def read_with_status(path: Path, limit: int = MAX_KEY_FILE) -> tuple[bytes, os.stat_result]:
    """Read a file and return its status from the same open file."""
    return _read(path, limit)


def read_unlinked(path: Path, limit: int) -> tuple[bytes, os.stat_result]:
    """Read a file that is not a symbolic link; return its status from the same open file."""
    return _read(path, limit, os.O_NOFOLLOW)


def refuse_exposed(path: Path, status: os.stat_result) -> None:
    """Refuse a private key file, or a directory of keys, by its owner and mode.

    It must belong to us or to root and be inaccessible to others. A file of root may be readable by
    its group: orchestrators and distributions provide keys that way to a service that does not run
    as root. Of a symbolic link only the owner is checked, since its mode means nothing.
    """
    directory = stat.S_ISDIR(status.st_mode)
    what = f"directory {path}" if directory else f"private key file {path}"
    us = os.geteuid()
    if status.st_uid not in (us, _ROOT):
        raise ExposedKeyFile(
            f"{what} belongs to another user (uid {status.st_uid}); run: chown {us} {path}"
        )
    if stat.S_ISLNK(status.st_mode):
        return
    forbidden = stat.S_IRWXG | stat.S_IRWXO
    if status.st_uid == _ROOT and us != _ROOT and not directory:
        forbidden ^= stat.S_IRGRP
    if status.st_mode & forbidden:
        mode, needed = stat.S_IMODE(status.st_mode), "0700" if directory else "0600"
        raise ExposedKeyFile(
            f"{what} can be reached by others (mode {mode:04o}); run: chmod {needed} {path}"
        )


def rewrite(path: Path, data: bytes) -> None:
    """Replace the content of a file atomically; its owner and its mode stay."""
    write_private(path, data, path.stat())


def write_private(path: Path, data: bytes, like: os.stat_result | None = None) -> None:
    """Write a file atomically, readable only by its owner, or by those who may read another."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if like is not None:
                if (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(descriptor, like.st_uid, like.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def set_aside(path: Path, now: datetime) -> Path:
    """Give a damaged file one more name, so that the next write does not lose its content."""
    aside = path.with_name(f"{path.name}{UNREADABLE}{now:%Y%m%dT%H%M%SZ}")
    with contextlib.suppress(FileExistsError):
        aside.hardlink_to(path)
    return aside


class Reloading(Generic[T]):
    """A value built from files, and rebuilt when one of them changes.

    `current()` costs one `stat` per file. With a monotonic clock it checks at most once a second.
    While changed files cannot be read or do not match (a rotation in progress), the last valid
    value stays and `problem` has the reason.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        load: Callable[[], T],
        *,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        self._paths = tuple(paths)
        self._load = load
        self._monotonic = monotonic
        self._next_look = 0.0
        self._seen = self._fingerprint()
        self._value = load()
        self.problem: str | None = None

    def current(self) -> T:
        """Return the newest valid value."""
        if self._monotonic is not None:
            now = self._monotonic()
            if now < self._next_look:
                return self._value
            self._next_look = now + CHECK_INTERVAL_SECONDS
        seen = self._fingerprint()
        if seen != self._seen:
            self._reload(seen)
        return self._value

    def _reload(self, seen: Fingerprint) -> None:
        try:
            self._value = self._load()
        except Refusal as refusal:
            self.problem = str(refusal)
        else:
            self.problem = None
        # Also after a failure: the same invalid files are not parsed at every call.
        self._seen = seen

    def _fingerprint(self) -> Fingerprint:
        return fingerprint(self._paths)


def fingerprint(paths: Iterable[Path]) -> Fingerprint:
    """A value that changes when one of the files does."""
    return tuple(_fingerprint(path) for path in paths)


def _fingerprint(path: Path) -> tuple[int, int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0, 0)
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _read(path: Path, limit: int, flags: int = 0) -> tuple[bytes, os.stat_result]:
    try:
        # Non-blocking, so that a pipe at this path cannot hang the start.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
        with os.fdopen(descriptor, "rb") as file:
            # Status of the open file, not of the path: no time between check and use.
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UnreadableKey(f"{path} is not a regular file")
            data = file.read(limit + 1)
    except KeyRefused:
        raise
    except OSError as error:
        raise UnreadableKey(f"cannot read {path}: {error.strerror}") from None
    if len(data) > limit:
        raise UnreadableKey(f"{path} is larger than {limit} bytes")
    return data, status


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
