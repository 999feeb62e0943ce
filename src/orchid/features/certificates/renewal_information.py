"""Renewal information (RFC 9773): when a certificate of this server should be renewed.

One hint for every client: a window within which to renew. A revoked certificate has a window in
the past, so that clients renew at once. The certificates of a replaced key have slots, spread over
the time until the key can retire. Any other is renewed within 60 to 70 % of its life. Start with
`RenewalInformation.of`. A certificate is found by its serial number, which is the name of its
record; the identifier of its authority's key must be the one on record.
"""

import base64
import binascii
import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.features.revocation.revocations import Revocations
from orchid.kernel.base.clock import Clock
from orchid.kernel.credentials.x509.certificates import serial_name
from orchid.kernel.engine.cache.kind_cache import KindCache

RENEW_FROM, RENEW_UNTIL = 0.6, 0.7
REVOKED_FROM: Final = timedelta(hours=-1)
REVOKED_UNTIL: Final = timedelta(minutes=-30)
SHORTEST_PAUSE, LONGEST_PAUSE = timedelta(minutes=1), timedelta(hours=1)
PAUSES_PER_LIFE: Final = 20
SLOTS_UNTIL, SLOT_WIDTH = 0.8, 0.05  # of the time until a replaced key can retire
HASHED: Final = 8  # bytes
NEGATIVE: Final = 0x80  # the first byte from which DER needs a zero byte before it
LONGEST_ID: Final = 128  # characters; a key identifier has 20 bytes, a serial number at most 20

# When another key began to sign, and the end of the last certificate; None for a current key.
ReplacedKey = Callable[[str], tuple[datetime, datetime] | None]


class ReplacedBy(NamedTuple):
    """When certificates of a replaced key are to be renewed, as a later feature knows."""

    get: ReplacedKey


class MalformedId(ValueError):
    """Not the identifier of a certificate."""


class RenewalWindow(msgspec.Struct, frozen=True):
    """When to renew, and when to ask again."""

    start: datetime
    end: datetime
    ask_again: timedelta

    @property
    def ask_again_seconds(self) -> int:
        return int(self.ask_again.total_seconds())


class RenewalInformation:
    """The windows of all certificates on record."""

    def __init__(
        self,
        records: KindCache[IssuedCertificate],
        revocations: Revocations,
        clock: Clock,
        replaced: ReplacedKey,
    ) -> None:
        self._records = records
        self._replaced = replaced
        self._revocations = revocations
        self._clock = clock

    def of(self, identifier: str) -> RenewalWindow | None:
        """The window of a certificate; None if this server has no record of it.

        Raises MalformedId.
        """
        authority_key, serial = parse_id(identifier)
        entry = self._records.get("", serial_name(serial))
        if entry is None:
            return None
        record = entry.object
        begins, ends = record.spec.not_before, record.spec.not_after
        if record.spec.authority_key != authority_key.hex() or begins is None or ends is None:
            return None
        life = ends - begins
        again = min(max(life / PAUSES_PER_LIFE, SHORTEST_PAUSE), LONGEST_PAUSE)
        if self._revocations.is_final(record):
            now = self._clock.now()
            return RenewalWindow(now + REVOKED_FROM, now + REVOKED_UNTIL, again)
        usual = RenewalWindow(begins + RENEW_FROM * life, begins + RENEW_UNTIL * life, again)
        replaced = self._replaced(authority_key.hex())
        return earlier_slot(usual, serial, *replaced) if replaced else usual


def earlier_slot(
    usual: RenewalWindow, serial: bytes, since: datetime, until: datetime
) -> RenewalWindow:
    """The slot of a certificate whose key was replaced then, unless it renews earlier anyway."""
    fraction = int.from_bytes(hashlib.sha256(serial).digest()[:HASHED], "big") / 256**HASHED
    span = until - since
    start = since + fraction * SLOTS_UNTIL * span
    if start > usual.start:
        return usual
    return RenewalWindow(start, start + SLOT_WIDTH * span, usual.ask_again)


def parse_id(identifier: str) -> tuple[bytes, bytes]:
    """Key identifier and serial number: both in base64url without padding, joined by a dot."""
    authority_key, dot, serial = identifier.partition(".")
    if not dot or len(identifier) > LONGEST_ID:
        raise MalformedId("must be a key identifier and a serial number, joined by a dot")
    number = _decoded(serial)
    if len(number) > 1 and number[0] == 0 and number[1] < NEGATIVE:
        raise MalformedId("the serial number has a needless zero byte")
    return _decoded(authority_key), number


def certificate_id(authority_key: bytes, serial: bytes) -> str:
    """The identifier of a certificate (RFC 9773 section 4.1); `serial` as DER encodes it."""
    return f"{_encoded(authority_key)}.{_encoded(serial)}"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _decoded(text: str) -> bytes:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        data = b""
    # One identifier for each certificate: no padding, no stray bits, no other alphabet.
    if not data or _encoded(data) != text:
        raise MalformedId("must be base64url without padding")
    return data
