"""The keys that sign the ledger: one, or two while a new one replaces the old one.

A new key is announced by an entry `ledger-key.made`, which is below the signature of the old key:
a verifier that trusts the old key can trust the new one. Both sign every checkpoint for 30 days, so
that a verifier with either key accepts it; then only the new one does. The time of the announcement
is in the store, so all servers stop at the same time.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from orchid.kernel.base.clock import whole_seconds
from orchid.kernel.engine.ledger import store_keys
from orchid.kernel.engine.ledger.entries import Fact
from orchid.kernel.store.interface import ABSENT, Change, RevisionConflict, Span, Store
from orchid.kernel.tlog.checkpoints import Checkpoint
from orchid.kernel.tlog.notes import NoteRefused, NoteSigner, NoteVerifier

TOGETHER: Final = timedelta(days=30)
MADE: Final = "ledger-key.made"
ANNOUNCED: Final = f"{store_keys.PREFIX}known/ledger-key"

Made = Mapping[str, datetime]
"""When keys were announced, by their verifier lines."""


class LedgerKeys:
    """The given keys, and which of them sign now."""

    def __init__(
        self,
        keys: Sequence[Ed25519PrivateKey],
        now: Callable[[], datetime] | None = None,
        times: Made | None = None,
    ) -> None:
        self._keys = tuple(keys)
        self._now = now
        self._made = times or {}

    def all(self, name: str) -> NoteSigner:
        """Every key, under the name of the log."""
        return NoteSigner(name, *self._keys)

    def signer(self, name: str) -> NoteSigner:
        """The keys that sign now, under the name of the log."""
        signer = self.all(name)
        times = {verifier.vkey: self._made.get(verifier.vkey) for verifier in signer.verifiers}
        newest = max((moment for moment in times.values() if moment), default=None)
        if newest is None or self._now is None or self._now() < newest + TOGETHER:
            return signer
        return signer.only(vkey for vkey, moment in times.items() if moment == newest)


async def announce(store: Store, keys: Sequence[Ed25519PrivateKey], now: datetime) -> Made:
    """Add an entry for each key that is new to the log; return when keys were announced.

    The entry names the keys that sign so far, too: checkpoints that they signed stay good.
    A log of which no given key has signed the head is left alone: it belongs to another server.
    """
    while True:
        records = (await store.read(Span.key(ANNOUNCED), limit=1)).records
        times = msgspec.json.decode(records[0].value, type=dict[str, datetime]) if records else {}
        signed, unknown = await _by_head(store, keys)
        new = [vkey for vkey in unknown if signed and vkey not in times]
        if not new:
            return times
        times |= dict.fromkeys(new, whole_seconds(now))
        facts = [
            Fact(MADE, {"key": key, "algorithm": "Ed25519", "replaces": signed}) for key in new
        ]
        change = Change(
            ANNOUNCED,
            msgspec.json.encode(times, order="sorted"),
            records[0].revision if records else ABSENT,
        )
        try:
            await store.commit([change, *store_keys.pending(facts, "", now)])
        except RevisionConflict:
            continue  # another server was faster
        return times


async def _by_head(store: Store, keys: Sequence[Ed25519PrivateKey]) -> tuple[list[str], list[str]]:
    """The keys that have signed the head, and those that have not."""
    heads = (await store.read(Span.key(store_keys.HEAD), limit=1)).records
    if not heads:
        return [], []
    try:
        name = Checkpoint.claimed(heads[0].value).origin
    except NoteRefused:
        return [], []
    verifiers = [NoteVerifier(name, key.public_key()) for key in keys]
    signed = [verifier.vkey for verifier in verifiers if verifier.has_signed(heads[0].value)]
    return signed, [verifier.vkey for verifier in verifiers if verifier.vkey not in signed]


def keys_named(entry: bytes) -> list[NoteVerifier]:
    """The keys that an entry of a log names as its own."""
    try:
        named = msgspec.json.decode(entry, type=_MadeEntry)
        vkeys = [named.key, *named.replaces] if named.type == MADE else []
        return [NoteVerifier.parse(vkey) for vkey in vkeys]
    except (msgspec.DecodeError, NoteRefused):
        return []  # of another type, or written by somebody else


class _MadeEntry(msgspec.Struct, frozen=True):
    type: str
    key: str = ""
    replaces: list[str] = []
