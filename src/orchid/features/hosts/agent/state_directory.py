"""The state directory of an agent: mode 0700, used by one agent at a time.

    lock                    held while an agent runs
    identity/               certificate and key of the host, its server (generations.py)
    requests/NAME.json      a certificate request under way: its name, its key, and its denial
    reloads/NAME.json       a reload that has not succeeded yet
    status.json             the status for `orchid agent status`

Every file is replaced atomically. A request is written before it is sent, and a reload before the
files change, so a restarted agent continues both.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from orchid.features.hosts.agent.generations import OutputRefused, refuse_unsafe
from orchid.kernel.credentials.files import (
    read_bounded,
    read_private,
    refuse_exposed,
    write_private,
)
from orchid.kernel.credentials.refusals import Refusal

T = TypeVar("T")


class StateUnusable(Exception):
    """The state directory cannot be used; the message says what to change."""


class SavedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate request under way."""

    name: str
    key: str  # PEM
    purpose: str  # digest of what was requested; after a change of it, the request is dropped
    denied: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    reason: str = ""  # of the denial

    def __repr__(self) -> str:
        return f"SavedRequest({self.name!r})"


class SavedReload(msgspec.Struct, frozen=True, kw_only=True):
    """Reloads of an output that have not succeeded, by their text in the configuration."""

    actions: tuple[str, ...]
    failures: int = 0
    message: str = ""


class StateDirectory:
    """The files above. Create it with `opened`, which locks the directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def identity(self) -> Path:
        return self.path / "identity"

    @property
    def status_file(self) -> Path:
        return self.path / "status.json"

    # -- requests ----------------------------------------------------------------------------

    def request(self, name: str) -> SavedRequest | None:
        return _read(self._request(name), SavedRequest)

    def save_request(self, name: str, request: SavedRequest) -> None:
        _write(self._request(name), request)

    def deny_request(self, name: str, request: SavedRequest, now: datetime, reason: str) -> None:
        """Keep a denial, so that a restarted agent does not send the request again."""
        self.save_request(name, msgspec.structs.replace(request, denied=now, reason=reason))

    def forget_denial(self, name: str) -> None:
        found = self.request(name)
        if found is not None and found.denied is not None:
            self.drop_request(name)

    def drop_request(self, name: str) -> None:
        _remove(self._request(name))

    # -- reloads -----------------------------------------------------------------------------

    def reload(self, name: str) -> SavedReload | None:
        return _read(self._reload(name), SavedReload)

    def save_reload(self, name: str, pending: SavedReload) -> None:
        _write(self._reload(name), pending)

    def drop_reload(self, name: str) -> None:
        _remove(self._reload(name))

    def save_status(self, status: Any) -> None:
        _write(self.status_file, status)

    def _request(self, name: str) -> Path:
        return self.path / "requests" / f"{name}.json"

    def _reload(self, name: str) -> Path:
        return self.path / "reloads" / f"{name}.json"


@contextlib.contextmanager
def opened(path: Path) -> Iterator[StateDirectory]:
    """Create the directory if it is missing, check it and lock it."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        refuse_exposed(path, path.lstat())
        refuse_unsafe(path)
        for name in ("identity", "requests", "reloads"):
            (path / name).mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except (Refusal, OutputRefused) as refusal:
        raise StateUnusable(str(refusal)) from None
    except OSError as error:
        raise StateUnusable(f"cannot use {path}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StateUnusable(f"another agent uses {path}") from None
        _remove_unfinished(path)
        yield StateDirectory(path)
    finally:
        os.close(descriptor)


def _remove_unfinished(path: Path) -> None:
    """Remove what a killed agent was writing; a file gets its name when it is complete."""
    for directory in (path, path / "requests", path / "reloads"):
        for file in directory.glob(".*.json.*"):
            _remove(file)


def read_status(path: Path, kind: type[T]) -> T | None:
    """The status that an agent wrote; None if there is none."""
    try:
        return msgspec.json.decode(read_bounded(path), type=kind)
    except (Refusal, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _read(path: Path, kind: type[T]) -> T | None:
    """A file of the agent itself; an unreadable one is as good as none."""
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(read_private(path), type=kind)
    except (Refusal, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _write(path: Path, value: Any) -> None:
    try:
        write_private(path, msgspec.json.encode(value))
    except OSError as error:
        raise OutputRefused(f"cannot write {path}: {error.strerror}") from None


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise OutputRefused(f"cannot remove {path}: {error.strerror}") from None
