"""Logs in a store, for the tests of the ledger."""

from datetime import UTC, datetime

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from orchid.features.ledger.sequencing import Sequencer
from orchid.features.ledger.signing_keys import LedgerKeys
from orchid.kernel.engine.ledger import store_keys
from orchid.kernel.engine.ledger.entries import Fact
from orchid.kernel.store.interface import Store
from orchid.kernel.tlog.notes import NoteVerifier

KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(b"o" * 32)
ORIGIN = "example.com/ledger"
VERIFIER = NoteVerifier(ORIGIN, KEY.public_key())
NOW = datetime(2026, 11, 15, 10, 0, tzinfo=UTC)


def sequencer(store: Store) -> Sequencer:
    return Sequencer(store, LedgerKeys([KEY]), ORIGIN)


async def leave_pending(store: Store, first: int, count: int, at: datetime = NOW) -> None:
    """Commit entries one by one, each with its object."""
    for number in range(first, first + count):
        facts = [Fact("test.made", {"number": number})]
        await store.commit(store_keys.pending(facts, f"uid-{number}", at))


async def grow(store: Store, first: int, count: int) -> None:
    """Have so many more entries in the log."""
    await leave_pending(store, first, count)
    await sequencer(store).drain()
