"""The audit log: a file of JSON lines, or standard output.

`AuditLog.put` takes one finished line and returns immediately; a thread writes queued lines, with
one system call for many events. It also builds expensive lines, passed with `put_later`. The queue
is limited: when it is `full`, requests are refused before they are processed, so that nothing
happens unrecorded.

The file is opened for appending with mode 0600. If it is renamed or removed, the next batch goes to
a new file of the old name, so that any rotation works without a signal. An event that cannot be
written is counted in `errors` and logged without its content.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from orchid.kernel.base.telemetry import failure_story

log = logging.getLogger(__name__)

STANDARD_OUTPUT = "-"
MOST_WAITING = 64 << 20  # bytes
CLOSE_SECONDS = 10.0
GATHER_SECONDS = 0.02  # lines within this time are written together
_STDOUT = 1


class AuditLogUnusable(Exception):
    """The file cannot be opened; the message has the reason."""


class AuditLog:
    """An open audit log. `close` writes all queued lines."""

    def __init__(self, path: str, *, most_waiting: int = MOST_WAITING) -> None:
        self.errors = 0  # events that could not be written
        self._path = None if path == STANDARD_OUTPUT else Path(path)
        self._most = most_waiting
        self._lines: list[bytes | Callable[[], bytes]] = []
        self._gathered = 0  # the size of these lines
        self._size = 0  # including lines that are being written
        self._lock = threading.Lock()
        self._arrived = threading.Event()
        self._closing = threading.Event()
        self._torn = False  # the last line may be incomplete
        self._file = _STDOUT
        if self._path is not None:
            try:
                self._file = _opened(self._path)
            except OSError as problem:
                raise AuditLogUnusable(f"{path}: {problem.strerror}") from None
        self._thread = threading.Thread(target=self._run, name="audit-log", daemon=True)
        self._thread.start()

    @property
    def full(self) -> bool:
        """Whether the queue is full."""
        return self._size >= self._most

    def put(self, line: bytes) -> None:
        """Queue a line, which ends with a line feed.

        It is accepted even when the log is `full`: the request has begun, and the number of those
        is limited.
        """
        self._take(line, len(line))

    def put_later(self, line: Callable[[], bytes], size: int) -> None:
        """Queue the creation of a line, in order with the others; `size` is an estimate."""
        self._take(line, size)

    def _take(self, line: bytes | Callable[[], bytes], size: int) -> None:
        with self._lock:
            self._lines.append(line)
            self._gathered += size
            self._size += size
        if not self._arrived.is_set():
            self._arrived.set()

    def close(self) -> None:
        """Write all queued lines and close the file. Nothing may be put afterwards."""
        self._closing.set()
        self._arrived.set()
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():  # a hanging disk must not keep the server from ending
            log.error("audit.not_written", extra={"problem": "the file takes no more"})
        elif self._path is not None and self._file >= 0:
            os.close(self._file)
            self._file = -1

    # -- in the thread -----------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing.is_set():
            self._arrived.wait()
            self._closing.wait(GATHER_SECONDS)
            self._arrived.clear()
            self._write_waiting()
        self._write_waiting()

    def _write_waiting(self) -> None:
        with self._lock:
            lines, self._lines = self._lines, []
            size, self._gathered = self._gathered, 0
        if not lines:
            return
        data = b"".join(map(self._finished, lines))
        try:
            self._follow_name()
            _write_all(self._file, b"\n" + data if self._torn else data)
            self._torn = False
        except OSError as problem:
            self._torn = True
            self.errors += len(lines)
            log.error(
                "audit.not_written", extra={"events": len(lines), "problem": problem.strerror}
            )
        with self._lock:
            self._size -= size

    def _finished(self, line: bytes | Callable[[], bytes]) -> bytes:
        if isinstance(line, bytes):
            return line
        try:
            return line()
        except Exception as problem:
            self.errors += 1
            log.error("audit.not_written", extra={"events": 1, "story": failure_story(problem)})
            return b""

    def _follow_name(self) -> None:
        """Open the file again if it was renamed or removed."""
        if self._path is None:
            return
        if self._file >= 0:
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(self._path.stat(), os.fstat(self._file)):
                    return
            os.close(self._file)
            self._file = -1
        self._file = _opened(self._path)


def _opened(path: Path) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY
    return os.open(path, flags, 0o600)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
