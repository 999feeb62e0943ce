"""The ledger of one server: its keys, the sequencer, and its pages."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from orchid.features.ledger.key_files import ledger_key_files
from orchid.features.ledger.pages.ledger import LedgerPages
from orchid.features.ledger.reading import StoredLog
from orchid.features.ledger.sequencing import LedgerBroken, Sequencer
from orchid.features.ledger.signing_keys import LedgerKeys, announce
from orchid.features.ledger.status import FILE, keep_newest, refuse_rolled_back, report_damaged
from orchid.kernel.base.clock import SystemClock
from orchid.kernel.credentials.files import read_private
from orchid.kernel.credentials.keys import read_private_key
from orchid.kernel.credentials.refusals import Refusal, UnsupportedKey
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.errors import BadSettings, NotAvailable
from orchid.kernel.store.interface import Store, StoreError
from orchid.kernel.tlog.checkpoints import Checkpoint
from orchid.kernel.tlog.notes import NoteRefused

log = logging.getLogger(__name__)


def ledger_keys(settings: Settings) -> list[Ed25519PrivateKey]:
    """The keys that sign checkpoints, the oldest first."""
    try:
        return [ledger_key(path) for path in ledger_key_files(settings)]
    except Refusal as refusal:
        raise BadSettings(f"--ledger-key-file: {refusal}") from None


def ledger_key(path: Path) -> Ed25519PrivateKey:
    """The key in a file; raises Refusal."""
    key = read_private_key(read_private(path), str(path))
    if not isinstance(key, Ed25519PrivateKey):
        raise UnsupportedKey(f"{path} is not an Ed25519 key")
    return key


def origin(settings: Settings) -> str:
    """The origin of a new log: its URL without the scheme."""
    host = settings.issuers[0].partition("://")[2] or settings.issuers[0]
    return "".join(host.split()).replace("+", "-").rstrip("/") + "/ledger"


@contextlib.asynccontextmanager
async def sequenced(settings: Settings, store: Store) -> AsyncIterator[None]:
    """Run the sequencer within the block; at its end, the last entries are sequenced."""
    options, kept = settings.given, settings.data_dir / FILE
    # the memory store always begins empty
    lasts = bool(options.etcd_servers) or options.store != "memory"

    async def check(head: Checkpoint) -> None:
        if lasts:
            await refuse_rolled_back(store, kept, head)

    given_keys, clock = ledger_keys(settings), SystemClock()
    report_damaged(kept, clock.now())
    try:
        announced = await announce(store, given_keys, clock.now()) if len(given_keys) > 1 else {}
        await _report_other_key(store, given_keys, settings)
    except StoreError as problem:
        raise NotAvailable(f"the ledger cannot be read: {problem}") from None
    keys = LedgerKeys(given_keys, clock.now, announced)
    sequencer = Sequencer(store, keys, origin(settings), check)
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


async def _report_other_key(
    store: Store, keys: list[Ed25519PrivateKey], settings: Settings
) -> None:
    """Log that no key of ours has signed the log in the store, which we cannot continue."""
    note = await StoredLog(store).checkpoint()
    try:
        name = Checkpoint.claimed(note).origin if note else ""
    except NoteRefused:
        return  # the sequencer reports it
    if note and not any(
        verifier.has_signed(note) for verifier in LedgerKeys(keys).all(name).verifiers
    ):
        log.error(
            "ledger.other_key: %s has not signed the ledger in the store, and cannot continue it: "
            "put back the key that has, from a copy",
            ", ".join(map(str, ledger_key_files(settings))),
        )


def ledger_pages(settings: Settings, store: Store) -> LedgerPages:
    """The pages of the ledger, one of them with its public key: the newest that has signed."""
    stored, keys = StoredLog(store), LedgerKeys(ledger_keys(settings)[::-1])

    async def vkey() -> str | None:
        note = await stored.checkpoint()
        if note is None:
            return keys.all(origin(settings)).verifier.vkey
        try:
            verifiers = keys.all(Checkpoint.claimed(note).origin).verifiers
        except NoteRefused:
            return None
        # None: the log has the key of another server.
        return next((verifier.vkey for verifier in verifiers if verifier.has_signed(note)), None)

    return LedgerPages(stored, vkey)
