"""Sets of trust anchors: read from the text of trust bundles, joined, and written as PEM.

Start with `join`. The result depends only on the set of certificates: each appears once, in the
order of its SHA-256, and expired ones are left out. So a bundle that was renamed, or that repeats
the certificate of another, changes nothing.
"""

import hashlib
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

import msgspec

from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates, pem
from orchid.kernel.credentials.x509.trust import trust_anchors


class Anchor(NamedTuple):
    """One certificate."""

    sha256: str
    der: bytes
    not_after: datetime


class AnchorSet(msgspec.Struct, frozen=True):
    """The certificates of a bundle at one time."""

    anchors: tuple[Anchor, ...]
    pem: bytes
    sha256: str  # of the PEM text
    next_end: datetime | None  # when the next certificate expires


def read(text: str) -> tuple[Anchor, ...]:
    """The certificates of a trust bundle; those that cannot be parsed are left out."""
    anchors = []
    try:
        blocks = trust_anchors.anchors(text)
    except Refusal:
        return ()
    for der in blocks:
        try:
            end = certificates.parse(der).not_valid_after_utc
        except Refusal:
            continue
        anchors.append(Anchor(hashlib.sha256(der).hexdigest(), der, end))
    return tuple(anchors)


def join(anchors: Iterable[Anchor], now: datetime) -> AnchorSet:
    """One set of several: what is valid, or will be, each certificate once."""
    unique = {anchor.sha256: anchor for anchor in anchors if anchor.not_after > now}
    current = tuple(unique[digest] for digest in sorted(unique))
    text = b"".join(pem.encode(pem.CERTIFICATE, anchor.der) for anchor in current)
    end = min((anchor.not_after for anchor in current), default=None)
    return AnchorSet(current, text, hashlib.sha256(text).hexdigest(), end)
