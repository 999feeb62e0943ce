"""Entries of the ledger: JSON that never changes.

A kind describes its entries as `Fact`s (see `Kind.records`). Public values are in clear: a serial
number, a signer, a time. Personal values are sealed: only one hash of them all is written, salted
with the uid of the object. The uid is random, and is in that object and not in the entry. So a
reader of the object can find the entry (`object_seal`) and verify it (`seal`), and after the
deletion of the object nobody can: the log stays complete, and holds no name.
"""

from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

import msgspec

from orchid.kernel.base.clock import whole_seconds

LARGEST_ENTRY: Final = 4096
"""Bytes; a bundle of 256 entries must fit into one value of the store."""

CERTIFICATE_ISSUED: Final = "certificate.issued"
"""The type of entries about certificates; proofs are looked up by their `serial`, in hex."""

_encode = msgspec.json.Encoder(order="sorted").encode


class EntryTooLarge(Exception):
    """A fact does not fit into an entry."""


class Fact(msgspec.Struct, frozen=True):
    """An event of an object: `clear` is written as it is, `sealed` as one hash.

    Nothing in `clear` may name a person. Values are JSON values.
    """

    type: str  # like request.approved: the subject, then the event
    clear: Mapping[str, Any] = msgspec.field(default_factory=dict)
    sealed: Mapping[str, Any] = msgspec.field(default_factory=dict)


def entry(fact: Fact, uid: str, now: datetime) -> bytes:
    """A fact about the object with this uid, as logged bytes.

    Without a uid it is about no object, and nothing can be sealed.
    """
    content = {**fact.clear, "type": fact.type, "time": whole_seconds(now)}
    if uid:
        content["object"] = object_seal(uid)
        if fact.sealed:
            content["sealed"] = seal(uid, fact.sealed)
    data = _encode(content)
    if len(data) > LARGEST_ENTRY:
        raise EntryTooLarge(f"a {fact.type} entry of {len(data)} bytes, limit is {LARGEST_ENTRY}")
    return data


# Not HMAC: its call releases the interpreter lock, and a busy server waits long for it.
def object_seal(uid: str) -> str:
    """The hash that identifies an object in every entry about it."""
    return sha256(b"%b\0uid\0%b" % (uid.encode(), _encode(uid))).hexdigest()


def seal(uid: str, values: Mapping[str, Any]) -> str:
    """The hash of these values, reproducible with the uid of the object."""
    return sha256(b"%b\0%b" % (uid.encode(), _encode(values))).hexdigest()
