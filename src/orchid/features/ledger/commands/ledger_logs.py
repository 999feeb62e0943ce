"""Sources of the ledger: a server, a stopped server's data directory, or exported files.

`opened_log(chosen)` opens the one that the flags select, with the key that must have signed it.
Each is a `LogSource` (kernel/tlog/audit.py), so that the checks are the same for all.
"""

import argparse
import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from orchid.kernel.store.sqlite.file import DATABASE
from orchid.kernel.terminal import kubeconfig_file
from orchid.kernel.terminal.connection import NOT_FOUND, ServerConnection, connect
from orchid.kernel.terminal.kubeconfig_file import FoundKubeconfig
from orchid.kernel.terminal.output import USAGE, Complaint, remark
from orchid.kernel.tlog.audit import LogAtOneMoment, LogRefused, LogSource, require_growth
from orchid.kernel.tlog.checkpoints import Checkpoint
from orchid.kernel.tlog.merkle import HASH_SIZE
from orchid.kernel.tlog.notes import NoteRefused, NoteVerifier
from orchid.kernel.tlog.tiles import Tile

if TYPE_CHECKING:
    from orchid.kernel.store.interface import Store

LARGEST_FILE = 32 << 20


class OpenedLog(msgspec.Struct, frozen=True):
    """A log, the verifier of its signature, and all that were given."""

    source: LogSource
    verifier: NoteVerifier
    trusted: list[NoteVerifier]


def add_source(parser: argparse.ArgumentParser) -> None:
    """The flags that select the ledger."""
    parser.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="KEY",
        help="the verifier key that must have signed it, or a file with that line "
        "(default: the one that the server names); repeat it if the key was replaced",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="read a stopped server's data directory"
    )
    where.add_argument(
        "--from", dest="exported", type=Path, metavar="DIR", help="read what `export` has written"
    )


@contextlib.asynccontextmanager
async def opened_log(arguments: argparse.Namespace) -> AsyncIterator[OpenedLog]:
    """The selected log; closed at the end."""
    async with _chosen_log(arguments) as (opened, trusted):
        source = LogAtOneMoment(opened)
        note = await source.checkpoint() or b""
        signer = next((verifier for verifier in trusted if verifier.has_signed(note)), trusted[0])
        yield OpenedLog(source, signer, trusted)


@contextlib.asynccontextmanager
async def _chosen_log(
    arguments: argparse.Namespace,
) -> AsyncIterator[tuple[LogSource, list[NoteVerifier]]]:
    verifiers = [verifier_of(key) for key in arguments.key]
    if arguments.exported:
        if not verifiers:
            raise Complaint("--from needs --key: files cannot say themselves whom to trust", USAGE)
        yield DirectoryLog(arguments.exported), verifiers
    elif arguments.data_dir:
        async with _stored(arguments.data_dir, verifiers) as opened:
            yield opened
    else:
        source = ServerLog(connect(arguments))
        yield source, verifiers or [source.verifier()]


def verifier_of(key: str) -> NoteVerifier:
    """The verifier in a line, or in a file with that line."""
    with contextlib.suppress(OSError):
        key = Path(key).read_text()[:LARGEST_FILE]
    try:
        return NoteVerifier.parse(key)
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


class DatabaseLog:
    """The hashes of the ledger in an embedded store, which a server may have open."""

    def __init__(self, database: Path) -> None:
        self._database = database

    async def checkpoint(self) -> bytes | None:
        from orchid.kernel.engine.ledger import store_keys

        return self._value(store_keys.HEAD)

    async def tile(self, tile: Tile) -> bytes | None:
        from orchid.kernel.engine.ledger import store_keys

        data = self._value(store_keys.tile_key(tile)) or b""
        size = tile.width * HASH_SIZE
        return data[:size] if len(data) >= size else None

    def _value(self, key: str) -> bytes | None:
        from orchid.kernel.store.sqlite.restore import value_of

        return value_of(self._database, key)


def begins_with(directory: Path, checkpoint: Checkpoint) -> bool:
    """Whether the log is the one of the checkpoint; False if nobody can say."""
    from orchid.kernel.store.interface import StoreError
    from orchid.kernel.store.migrate import MOVED
    from orchid.kernel.store.sqlite.restore import value_of

    database = directory / DATABASE
    try:
        if not database.is_file() or value_of(database, MOVED) is not None:
            return _reported_unchanged(directory)
        log = DatabaseLog(database)
        head = Checkpoint.claimed(asyncio.run(log.checkpoint()) or b"")
        asyncio.run(require_growth(log, checkpoint, head))
    except (LogRefused, NoteRefused, StoreError):
        return False
    return True


def _reported_unchanged(directory: Path) -> bool:
    """Whether the server of a data directory, whose store is elsewhere, reports the same log."""
    try:
        kubeconfig = FoundKubeconfig((directory / "admin.kubeconfig",), "data directory")
        _, text = ServerConnection(kubeconfig_file.load(kubeconfig), kubeconfig).text("/metrics")
    except Complaint:
        return False
    return "\norchid_ledger_rolled_back 0\n" in text


@contextlib.asynccontextmanager
async def _stored(
    directory: Path, verifiers: list[NoteVerifier]
) -> AsyncIterator[tuple[LogSource, list[NoteVerifier]]]:
    from orchid.features.ledger.reading import StoredLog
    from orchid.kernel.store.interface import AlreadyInUse, StoreError
    from orchid.kernel.store.sqlite.store import SQLiteStore

    if not (directory / DATABASE).is_file():
        raise Complaint(f"there is no {directory / DATABASE}", USAGE)
    try:
        store: Store = await SQLiteStore.open(directory / DATABASE)
        async with contextlib.AsyncExitStack() as closing:
            closing.push_async_callback(store.close)
            source = StoredLog(store)
            trusted = verifiers or [_own_key(directory, await source.checkpoint())]
            if waiting := await source.pending():
                remark(f"{waiting} entries wait for the server to give them an index")
            yield source, trusted
    except AlreadyInUse:
        raise Complaint("a server has it open: ask that one, without --data-dir") from None
    except StoreError as problem:
        raise Complaint(str(problem)) from None


def _own_key(directory: Path, note: bytes | None) -> NoteVerifier:
    """The key in the data directory, under the name of the log."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from orchid.kernel.credentials.files import read_private
    from orchid.kernel.credentials.keys import read_private_key
    from orchid.kernel.credentials.refusals import Refusal

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
