"""Files that change together: each set is a directory of its own, and one rename makes it current.

The layout is that of kubelet's volumes:

    tls.crt -> ..data/tls.crt
    tls.key -> ..data/tls.key
    ..data  -> ..20261118T0444-1f2e3d4c        the current generation

Start with `write_generation`. Whenever the process ends, also by kill -9 or a power failure, all
files are of one generation: the previous one, or the new one. The previous generation stays, so
that a program that opened one of its files can open the others. What a write left behind is removed
by the next one. Owner and mode are set before a generation is current.
"""

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from orchid.kernel.credentials.files import read_bounded

CURRENT, NEXT = "..data", "..next"
PUBLIC_MODE: Final = 0o644
LARGEST_OUTPUT: Final = 32 << 20  # twice the largest answer: an archive of a bundle is larger
_GENERATION = re.compile(r"\.\.\d{8}T\d{6}-[0-9a-f]{8}")
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
ROOT = 0
_MOST_STEPS: Final = 256  # of a path; links that lead to each other end here


class OutputRefused(Exception):
    """The directory cannot be used, or the files could not be written; the old ones stay."""


class OutputFile(msgspec.Struct, frozen=True):
    """One file of a generation."""

    name: str
    data: bytes
    is_secret: bool = False

    def __repr__(self) -> str:
        return f"OutputFile({self.name!r}, {len(self.data)} bytes)"


class Permissions(msgspec.Struct, frozen=True):
    """Owner, group and mode of the files; -1 leaves owner or group as they are."""

    owner: int = -1
    group: int = -1
    secret_mode: int = 0o600


def write_generation(
    directory: Path, files: Sequence[OutputFile], permissions: Permissions, now: datetime
) -> None:
    """Replace all files of a directory at once; raises OutputRefused if that is not possible."""
    for file in files:
        if not _NAME.fullmatch(file.name):
            raise OutputRefused(f"{file.name!r} is not a name for a file of an output")
    refuse_unsafe(directory)
    name = f"..{now:%Y%m%dT%H%M%S}-{os.urandom(4).hex()}"
    try:
        with _opened(directory) as dir_fd:
            _refuse_foreign(directory, dir_fd, files)
            current = _current(dir_fd)
            _remove_generations(dir_fd, keep={current})
            try:
                _fill(dir_fd, name, files, permissions)
                _link_missing(dir_fd, files)
                _make_current(dir_fd, name)
            except BaseException:
                if _current(dir_fd) != name:
                    _remove_generation(dir_fd, name)
                raise
            _remove_old_links(dir_fd, {file.name for file in files})
    except OSError as error:
        raise OutputRefused(f"cannot write to {directory}: {error.strerror}") from None


def read_current(directory: Path) -> dict[str, bytes]:
    """The files of the current generation; none if there is none. Raises OSError or Refusal.

    The owner of a file may be another user, who can make it as large as the disk.
    """
    current = directory / CURRENT
    if not current.is_dir():
        return {}
    # Resolved once: all files are read from one generation.
    generation = directory / current.readlink()
    return {path.name: read_bounded(path, LARGEST_OUTPUT) for path in generation.iterdir()}


def refuse_unsafe(directory: Path) -> None:
    """Refuse a directory in which, or above which, another user could replace files."""
    for path, is_parent in passed_paths(directory):
        try:
            status = path.lstat()
        except OSError as error:
            raise OutputRefused(f"cannot use {path}: {error.strerror}") from None
        if status.st_uid not in (os.geteuid(), ROOT):
            raise OutputRefused(f"{path} belongs to another user (uid {status.st_uid})")
        if is_parent and stat.S_ISLNK(status.st_mode):
            continue  # the next paths are those that it leads to
        if not stat.S_ISDIR(status.st_mode):
            raise OutputRefused(f"{path} is not a directory")
        others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        # In a directory with the sticky bit, nobody can replace the entries of others.
        if others and not (is_parent and status.st_mode & stat.S_ISVTX):
            raise OutputRefused(f"{path} can be written by other users; run: chmod go-w {path}")


def passed_paths(directory: Path) -> Iterator[tuple[Path, bool]]:
    """Every path that opening a directory passes, also by links; with whether it is a parent."""
    path = Path("/")
    yield path, True
    left = [*directory.absolute().parts[1:]]
    for _ in range(_MOST_STEPS):
        if not left:
            return
        part = left.pop(0)
        path = path.parent if part == ".." else path / part
        yield path, bool(left)
        if left and path.is_symlink():
            target = path.readlink()
            path = Path("/") if target.is_absolute() else path.parent
            left = [*target.parts[target.is_absolute() :], *left]
    raise OutputRefused(f"cannot use {directory}: too many links")


# --- one generation ---------------------------------------------------------------------------


def _fill(dir_fd: int, name: str, files: Sequence[OutputFile], permissions: Permissions) -> None:
    """Write a generation to disk; nobody else can enter it before it is complete."""
    os.mkdir(name, 0o700, dir_fd=dir_fd)
    with _opened(name, dir_fd) as inside:
        for file in files:
            _write(inside, file, permissions)
        os.fchmod(inside, 0o755)
        os.fsync(inside)


def _write(inside: int, file: OutputFile, permissions: Permissions) -> None:
    descriptor = os.open(file.name, _NEW_FILE, 0o600, dir_fd=inside)
    try:
        left = memoryview(file.data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fchown(descriptor, permissions.owner, permissions.group)
        os.fchmod(descriptor, permissions.secret_mode if file.is_secret else PUBLIC_MODE)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _link_missing(dir_fd: int, files: Iterable[OutputFile]) -> None:
    """Create the visible links. Those of the first generation lead nowhere until it is current."""
    for file in files:
        with contextlib.suppress(FileExistsError):
            os.symlink(f"{CURRENT}/{file.name}", file.name, dir_fd=dir_fd)


def _make_current(dir_fd: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(NEXT, dir_fd=dir_fd)
    os.symlink(name, NEXT, dir_fd=dir_fd)
    os.rename(NEXT, CURRENT, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    os.fsync(dir_fd)


# --- what is there ----------------------------------------------------------------------------


def _current(dir_fd: int) -> str:
    """The name of the current generation; empty if there is none."""
    try:
        return os.readlink(CURRENT, dir_fd=dir_fd)
    except FileNotFoundError:
        return ""


def _refuse_foreign(directory: Path, dir_fd: int, files: Iterable[OutputFile]) -> None:
    """Refuse a directory that has something else under one of our names."""
    for name in (CURRENT, NEXT):
        target = _target(dir_fd, name)
        if target is not None and not _GENERATION.fullmatch(target):
            raise OutputRefused(f"{directory / name} is not a link of this program")
    for file in files:
        target = _target(dir_fd, file.name)
        if target is not None and target != f"{CURRENT}/{file.name}":
            raise OutputRefused(
                f"{directory / file.name} is not a link of this program; move it away"
            )


def _target(dir_fd: int, name: str) -> str | None:
    """The target of a link; None if there is nothing, empty if it is no link."""
    try:
        return os.readlink(name, dir_fd=dir_fd)
    except FileNotFoundError:
        return None
    except OSError:
        return ""


def _remove_generations(dir_fd: int, keep: set[str]) -> None:
    """Remove what earlier writes left: complete generations and unfinished ones."""
    for name in os.listdir(dir_fd):
        if _GENERATION.fullmatch(name) and name not in keep:
            _remove_generation(dir_fd, name)


def _remove_generation(dir_fd: int, name: str) -> None:
    try:
        with _opened(name, dir_fd) as inside:
            for file in os.listdir(inside):  # noqa: PTH208 -- by descriptor
                os.unlink(file, dir_fd=inside)
        os.rmdir(name, dir_fd=dir_fd)
    except FileNotFoundError:
        return


def _remove_old_links(dir_fd: int, names: set[str]) -> None:
    """Remove the links to files that the output no longer has."""
    for name in os.listdir(dir_fd):
        if name not in names and _target(dir_fd, name) == f"{CURRENT}/{name}":
            os.unlink(name, dir_fd=dir_fd)


@contextlib.contextmanager
def _opened(path: Path | str, dir_fd: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, _DIRECTORY, dir_fd=dir_fd)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
