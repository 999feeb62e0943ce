"""A disk that forgets, when the power is cut, whatever was not synced; for SQLite, through apsw.

`Disk` becomes SQLite's default file system for as long as it is `installed`. Files are written as
usual; beside that, the disk keeps for each file what was in it when it was last synced. `cut`
gives those files, as a machine finds them that comes up again.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

REAL = "unix"


class Disk(apsw.VFS):
    """SQLite's way to files, with a memory of what was synced."""

    def __init__(self) -> None:
        super().__init__("power-cut", REAL, makedefault=True)
        self._lock = threading.Lock()
        self._written: dict[str, bytearray] = {}
        self._synced: dict[str, bytes] = {}

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        return DiskFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 - SQLite's name
        super().xDelete(filename, syncdir)
        with self._lock:
            self._written.pop(filename, None)
            self._synced.pop(filename, None)

    def write(self, name: str, data: bytes, offset: int) -> None:
        with self._lock:
            content = self._written.setdefault(name, bytearray())
            content.extend(bytes(max(0, offset + len(data) - len(content))))
            content[offset : offset + len(data)] = data

    def truncate(self, name: str, size: int) -> None:
        with self._lock:
            del self._written.setdefault(name, bytearray())[size:]

    def sync(self, name: str) -> None:
        with self._lock:
            self._synced[name] = bytes(self._written.get(name, b""))

    def cut(self, directory: Path, into: Path) -> None:
        """Write into a new directory what is left of every file of another."""
        into.mkdir()
        with self._lock:
            for name, content in self._synced.items():
                if Path(name).parent == directory:
                    (into / Path(name).name).write_bytes(content)


class DiskFile(apsw.VFSFile):
    """A file that reports its operations to its simulated disk."""

    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        super().__init__(REAL, name, flags)
        self._disk = disk
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else str(name)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        super().xWrite(data, offset)
        self._disk.write(self._name, data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - SQLite's name
        super().xTruncate(newsize)
        self._disk.truncate(self._name, newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        super().xSync(flags)
        self._disk.sync(self._name)


@contextmanager
def installed() -> Iterator[Disk]:
    """Have every file that SQLite opens be on such a disk."""
    disk = Disk()
    try:
        yield disk
    finally:
        disk.unregister()
