"""Another key for a log that has begun: because the old one was lost, or may be known to others.

The head is signed, as it is, with the new key beside the old signature. So whoever has only the old
key can still check everything up to the handover, and sees who goes on. Nothing else changes.
"""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from orchid.ledger import places
from orchid.ledger.reading import StoredLog
from orchid.store.interface import Change, Span, Store
from orchid.tlog.audit import audit
from orchid.tlog.notes import Signer, Verifier


async def rekey(store: Store, key: Ed25519PrivateKey, old: Verifier) -> Verifier:
    """Hand a log over to a new key; raises LogRefused unless the old one has signed all of it."""
    head = await audit(StoredLog(store), old)
    [record] = (await store.read(Span.key(places.HEAD))).records
    signer = Signer(head.origin, key)
    if signer.verifier.id != old.id:
        note = signer.cosigned(record.value)
        await store.commit([Change(places.HEAD, note, record.revision)])
    return signer.verifier
