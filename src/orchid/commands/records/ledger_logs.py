"""Sources of the ledger: a server, a stopped server's data directory, or exported files.

`opened_log(chosen)` opens the one that the flags select, with the key that must have signed it.
Each is a `LogSource` (tlog/audit.py), so that the checks are the same for all.
"""

import argparse
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from orchid.commands.records.backup import DATABASE
from orchid.commands.terminal.connection import NOT_FOUND, ServerConnection, connect
from orchid.commands.terminal.output import USAGE, Complaint, remark
from orchid.tlog.audit import LogAtOneMoment, LogSource
from orchid.tlog.notes import NoteRefused, NoteVerifier
from orchid.tlog.tiles import Tile

if TYPE_CHECKING:
    from orchid.store.interface import Store

LARGEST_FILE = 32 << 20


class OpenedLog(msgspec.Struct, frozen=True):
    """A log, and the verifier of its signature."""

    source: LogSource
    verifier: NoteVerifier


def add_source(parser: argparse.ArgumentParser) -> None:
    """The flags that select the ledger."""
    parser.add_argument(
        "--key",
        metavar="KEY",
        help="the verifier key that must have signed it, or a file with that line "
        "(default: the one that the server names)",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="read a stopped server's data directory"
    )
    where.add_argument(
        "--from", dest="exported", type=Path, metavar="DIR", help="read what `export` has written"
    )


@contextlib.asynccontextmanager
async def opened_log(chosen: argparse.Namespace) -> AsyncIterator[OpenedLog]:
    """The selected log; closed at the end."""
    async with _chosen_log(chosen) as (source, verifier):
        yield OpenedLog(LogAtOneMoment(source), verifier)


@contextlib.asynccontextmanager
async def _chosen_log(chosen: argparse.Namespace) -> AsyncIterator[tuple[LogSource, NoteVerifier]]:
    given = verifier_of(chosen.key) if chosen.key else None
    if chosen.exported:
        if given is None:
            raise Complaint("--from needs --key: files cannot say themselves whom to trust", USAGE)
        yield DirectoryLog(chosen.exported), given
    elif chosen.data_dir:
        async with _stored(chosen.data_dir, given) as opened:
            yield opened
    else:
        source = ServerLog(connect(chosen))
        yield source, given or source.verifier()


def verifier_of(given: str) -> NoteVerifier:
    """The verifier in a line, or in a file with that line."""
    with contextlib.suppress(OSError):
        given = Path(given).read_text()[:LARGEST_FILE]
    try:
        return NoteVerifier.parse(given)
    except NoteRefused as refusal:
        raise Complaint(f"--key: {refusal}", USAGE) from None


class ServerLog:
    """The ledger of a running server, under /ledger/."""

    def __init__(self, server: ServerConnection) -> None:
        self._server = server

    def verifier(self) -> NoteVerifier:
        line = self._server.data("/ledger/key").decode(errors="replace")
        try:
            return NoteVerifier.parse(line)
        except NoteRefused as refusal:
            raise Complaint(f"the server names no key of a ledger: {refusal}") from None

    async def checkpoint(self) -> bytes | None:
        return self._get("checkpoint")

    async def tile(self, tile: Tile) -> bytes | None:
        return self._get(tile.path)

    def _get(self, name: str) -> bytes | None:
        return self._server.data(f"/ledger/{name}", absent=NOT_FOUND) or None


class DirectoryLog:
    """A ledger as files, laid out as the paths of C2SP tlog-tiles."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def checkpoint(self) -> bytes | None:
        return self._read("checkpoint")

    async def tile(self, tile: Tile) -> bytes | None:
        return self._read(tile.path)

    def write(self, name: str, data: bytes) -> None:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def _read(self, name: str) -> bytes | None:
        try:
            with (self._root / name).open("rb") as file:
                return file.read(LARGEST_FILE)
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise Complaint(f"{problem.filename}: {problem.strerror}") from None


@contextlib.asynccontextmanager
async def _stored(
    directory: Path, given: NoteVerifier | None
) -> AsyncIterator[tuple[LogSource, NoteVerifier]]:
    from orchid.ledger.reading import StoredLog
    from orchid.store.interface import AlreadyInUse, StoreError
    from orchid.store.sqlite.store import SQLiteStore

    if not (directory / DATABASE).is_file():
        raise Complaint(f"there is no {directory / DATABASE}", USAGE)
    try:
        store: Store = await SQLiteStore.open(directory / DATABASE)
        async with contextlib.AsyncExitStack() as closing:
            closing.push_async_callback(store.close)
            source = StoredLog(store)
            verifier = given or _own_key(directory, await source.checkpoint())
            if waiting := await source.pending():
                remark(f"{waiting} entries wait for the server to give them an index")
            yield source, verifier
    except AlreadyInUse:
        raise Complaint("a server has it open: ask that one, without --data-dir") from None
    except StoreError as problem:
        raise Complaint(str(problem)) from None


def _own_key(directory: Path, note: bytes | None) -> NoteVerifier:
    """The key in the data directory, under the name of the log."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from orchid.credentials.files import read_private
    from orchid.credentials.keys import read_private_key
    from orchid.credentials.refusals import Refusal
    from orchid.tlog.checkpoints import Checkpoint

    path = directory / "ledger.key"
    try:
        key = read_private_key(read_private(path), str(path))
        origin = Checkpoint.claimed(note or b"").origin
    except Refusal as refusal:
        raise Complaint(f"{refusal}; say with --key who signed the ledger", USAGE) from None
    except NoteRefused as refusal:
        raise Complaint(f"the ledger has no checkpoint that can be read: {refusal}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise Complaint(f"{path} is not an Ed25519 key", USAGE)
    return NoteVerifier(origin, key.public_key())
