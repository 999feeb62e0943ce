"""The ledger of one server: its key, the sequencer, and its pages."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from orchid.credentials.files import read_private
from orchid.credentials.keys import read_private_key
from orchid.credentials.refusals import Refusal
from orchid.data_directory import DataDirectory
from orchid.ledger.reading import StoredLog
from orchid.ledger.sequencing import LedgerBroken, Sequencer
from orchid.ledger.status import FILE, keep_newest, refuse_rolled_back
from orchid.server.pages.ledger import LedgerPages
from orchid.settings.checking import Settings
from orchid.settings.errors import BadSettings
from orchid.store.interface import Store, StoreError
from orchid.tlog.checkpoints import Checkpoint
from orchid.tlog.notes import NoteRefused, NoteVerifier

log = logging.getLogger(__name__)


def ledger_key(files: DataDirectory) -> Ed25519PrivateKey:
    """The key that signs checkpoints."""
    try:
        key = read_private_key(read_private(files.ledger_key), str(files.ledger_key))
    except Refusal as refusal:
        raise BadSettings(f"--ledger-key-file: {refusal}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise BadSettings(f"--ledger-key-file: {files.ledger_key} is not an Ed25519 key")
    return key


def origin(settings: Settings) -> str:
    """The origin of a new log: its URL without the scheme."""
    place = settings.issuers[0].partition("://")[2] or settings.issuers[0]
    return "".join(place.split()).replace("+", "-").rstrip("/") + "/ledger"


@contextlib.asynccontextmanager
async def sequenced(settings: Settings, files: DataDirectory, store: Store) -> AsyncIterator[None]:
    """Run the sequencer within the block; at its end, the last entries are sequenced."""
    given, kept = settings.given, settings.data_dir / FILE
    # the memory store always begins empty
    lasts = bool(given.etcd_servers) or given.store != "memory"

    async def check(head: Checkpoint) -> None:
        if lasts:
            await refuse_rolled_back(store, kept, head)

    sequencer = Sequencer(store, ledger_key(files), origin(settings), check)
    running = asyncio.create_task(sequencer.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])
        try:
            await sequencer.drain()
            if lasts:
                await keep_newest(store, kept)
        except (StoreError, LedgerBroken, NoteRefused, OSError) as failure:
            log.warning("ledger.entries_pending: %s", failure)


def ledger_pages(settings: Settings, files: DataDirectory, store: Store) -> LedgerPages:
    """The pages of the ledger, one of them with its public key."""
    stored, public = StoredLog(store), ledger_key(files).public_key()

    async def vkey() -> str | None:
        note = await stored.checkpoint()
        if note is None:
            return NoteVerifier(origin(settings), public).vkey
        try:
            verifier = NoteVerifier(Checkpoint.claimed(note).origin, public)
            verifier.opened(note)
        except NoteRefused:
            return None  # the log has the key of another server
        return verifier.vkey

    return LedgerPages(stored, vkey)
