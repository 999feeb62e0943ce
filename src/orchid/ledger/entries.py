"""Entries of the ledger: what happened, as JSON that never changes.

A kind says what is worth an entry as a `Fact` (see `Kind.records`). What anybody must be able to
find stands in clear: a serial number, a signer, a time. What may tell of a person is sealed: only
one hash of it all is written, salted with the uid of the object that the entry tells of. The uid is
random, and stands in that object and not in the entry. So whoever can read the object can find the
entry (`object_seal`) and check it (`seal`), and when the object is removed nobody can any more: the
log stays whole, and holds no name.
"""

from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

import msgspec

from orchid.wire.text import whole_seconds

LARGEST_ENTRY: Final = 4096
"""Bytes; a bundle of 256 entries must fit into one value of the store."""

CERTIFICATE_ISSUED: Final = "certificate.issued"
"""The type of entries about certificates; their `serial`, in hex, is what proofs are found by."""

_encode = msgspec.json.Encoder(order="sorted").encode


class EntryTooLarge(Exception):
    """A fact does not fit into an entry."""


class Fact(msgspec.Struct, frozen=True):
    """Something that happened to an object: `clear` is written as it is, `sealed` as one hash.

    Nothing in `clear` may name a person. Values are what JSON knows.
    """

    type: str  # like request.approved: what, then what became of it
    clear: Mapping[str, Any] = msgspec.field(default_factory=dict)
    sealed: Mapping[str, Any] = msgspec.field(default_factory=dict)


def entry(fact: Fact, uid: str, now: datetime) -> bytes:
    """A fact about the object with this uid, as the bytes that are logged.

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
    """The hash that stands for an object in every entry about it."""
    return sha256(b"%b\0uid\0%b" % (uid.encode(), _encode(uid))).hexdigest()


def seal(uid: str, values: Mapping[str, Any]) -> str:
    """The hash that stands for these values, the same for whoever knows the uid of the object."""
    return sha256(b"%b\0%b" % (uid.encode(), _encode(values))).hexdigest()
