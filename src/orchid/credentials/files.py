"""Files that hold keys and certificates: read safely, write atomically, notice changes.

`read_private` refuses a key that others can read or own; `refuse_exposed` is the one place that
judges owner and mode, of keys and of the directories that hold them. `write_private` leaves either
the old file or the whole new one, never half, and never readable by others in between. `Reloading`
keeps the value made from some files up to date, and keeps the old one while the new files are bad.
"""

import os
import secrets
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from orchid.credentials.refusals import ExposedKeyFile, KeyRefused, Refusal, UnreadableKey

T = TypeVar("T")

# Larger files are no keys; reading one whole would only cost memory.
MAX_KEY_FILE = 1 << 20
LOOK_EVERY_SECONDS = 1.0  # at files that are followed by a clock

_ROOT = 0

_Fingerprint = tuple[tuple[int, int, int, int], ...]


def read_bounded(path: Path, limit: int = MAX_KEY_FILE) -> bytes:
    """Read a file of keys or certificates that may be public."""
    data, _ = _read(path, limit)
    return data


def read_private(path: Path, limit: int = MAX_KEY_FILE) -> bytes:
    """Read a private key; refuse it when others than its owner can reach it."""
    data, status = _read(path, limit)
    refuse_exposed(path, status)
    return data


def read_with_status(path: Path, limit: int = MAX_KEY_FILE) -> tuple[bytes, os.stat_result]:
    """Read a file and say what was known of it at that moment, from the same open file."""
    return _read(path, limit)


def refuse_exposed(path: Path, status: os.stat_result) -> None:
    """Refuse a private key file, or a directory of keys, by its owner and mode.

    It must belong to us or to root, and nobody else may reach it. A file of root's may be readable
    by its group: that is how orchestrators and distributions hand keys to a service that does not
    run as root. Of a link only the owner matters: everybody may read where it leads.
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
        mode, wanted = stat.S_IMODE(status.st_mode), "0700" if directory else "0600"
        raise ExposedKeyFile(
            f"{what} can be reached by others (mode {mode:04o}); run: chmod {wanted} {path}"
        )


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, all of it or nothing."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


class Reloading(Generic[T]):
    """The value made from files, made anew when one of them changes.

    `current()` costs one `stat` per file. With a clock, which counts seconds and never goes back,
    it looks at them once a second at most. While changed files cannot be read or do not fit
    together (a rotation in progress), the last good value stays and `problem` says why.
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
        """Give the newest good value."""
        if self._monotonic is not None:
            now = self._monotonic()
            if now < self._next_look:
                return self._value
            self._next_look = now + LOOK_EVERY_SECONDS
        seen = self._fingerprint()
        if seen != self._seen:
            self._reload(seen)
        return self._value

    def _reload(self, seen: _Fingerprint) -> None:
        try:
            self._value = self._load()
        except Refusal as refusal:
            self.problem = str(refusal)
        else:
            self.problem = None
        # Remembered also after a failure: the same bad files are not parsed at every call.
        self._seen = seen

    def _fingerprint(self) -> _Fingerprint:
        return tuple(_fingerprint(path) for path in self._paths)


def _fingerprint(path: Path) -> tuple[int, int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0, 0)
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _read(path: Path, limit: int) -> tuple[bytes, os.stat_result]:
    try:
        # Non-blocking, so that a pipe in the file's place cannot hang the start.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            # The open file is asked, not the path: no time between check and use.
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
