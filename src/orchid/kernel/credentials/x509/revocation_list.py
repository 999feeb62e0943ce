"""The body of a certificate revocation list, complete and of version 2 (RFC 5280 section 5).

`RevokedCertificates` holds the revoked certificates of one key, each entry encoded once, so that a
list of a hundred thousand costs little more than its signature: `Authority.sign_revocation_list`.
It has no issuing distribution point, since verifiers would treat it as a partial list, and there
are no deltas. Nothing here signs or decides what is revoked.
"""

import datetime

import msgspec
from cryptography import x509

from orchid.kernel.credentials.refusals import BadRevocation, UnsoundCertificate, library_errors_as
from orchid.kernel.credentials.x509 import der
from orchid.kernel.credentials.x509.certificate_body import encode_authority_key, encode_extension

LISTED_AFTER_END = datetime.timedelta(days=7)
"""Time for which an entry stays in lists after the end of its certificate.

RFC 5280 section 3.3 wants it in one list that was issued after the end; lists are issued daily.
"""

UNSPECIFIED = "unspecified"
# Section 5.3.1. `removeFromCRL` is only for deltas.
REASONS = {
    UNSPECIFIED: 0,
    "keyCompromise": 1,
    "cACompromise": 2,
    "affiliationChanged": 3,
    "superseded": 4,
    "cessationOfOperation": 5,
    "certificateHold": 6,
    "privilegeWithdrawn": 9,
    "aACompromise": 10,
}

LASTS = datetime.timedelta(days=7)
BACKDATE = datetime.timedelta(minutes=5)  # clocks differ

_MAX_NUMBER_BITS = 159  # 20 octets and positive, for serial numbers and CRL numbers
_VERSION_2 = der.encode_integer(1)
_ENUMERATED = 0x0A
_LIST_EXTENSIONS = 0xA0
_CRL_NUMBER = der.encode_oid("2.5.29.20")
_REASON_CODE = der.encode_oid("2.5.29.21")


def _encode_reason(code: int) -> bytes:
    extension = encode_extension(_REASON_CODE, der.encode(_ENUMERATED, bytes((code,))))
    return der.encode(der.SEQUENCE, extension)


# An unspecified reason is omitted (section 5.3.1).
_ENCODED_REASONS = {
    reason: _encode_reason(code) if code else b"" for reason, code in REASONS.items()
}


class RevokedCertificates:
    """Revoked certificates by serial number, with encoded entries."""

    def __init__(self) -> None:
        self._entries: dict[int, bytes] = {}
        self._dates: dict[int, datetime.datetime] = {}

    def add(self, serial: int, when: datetime.datetime, reason: str = UNSPECIFIED) -> None:
        """Add a serial number; a later call overwrites it."""
        if serial < 0 or serial.bit_length() > _MAX_NUMBER_BITS:
            raise BadRevocation("a serial number is not negative and has at most 20 octets")
        if reason not in _ENCODED_REASONS:
            raise BadRevocation(f"the reason is not one of {', '.join(REASONS)}")
        self._dates[serial] = when.replace(microsecond=0)
        self._entries[serial] = der.encode(
            der.SEQUENCE,
            der.encode_integer(serial),
            der.encode_time(self._dates[serial]),
            _ENCODED_REASONS[reason],
        )

    def remove(self, serial: int) -> None:
        """Remove a serial number: its hold was lifted, or the certificate expired long ago."""
        self._entries.pop(serial, None)
        self._dates.pop(serial, None)

    def update(self, other: "RevokedCertificates") -> None:
        """Add all entries of another."""
        self._entries.update(other._entries)
        self._dates.update(other._dates)

    def newest(self) -> datetime.datetime | None:
        """The latest date of an entry; None without entries."""
        return max(self._dates.values(), default=None)

    def __len__(self) -> int:
        return len(self._entries)

    def encode(self) -> bytes:
        """All entries, sorted by serial number: the same on every server."""
        if not self._entries:
            return b""  # an empty list omits the field (section 5.1.2.6)
        return der.encode(
            der.SEQUENCE, *(self._entries[serial] for serial in sorted(self._entries))
        )


class Edition(msgspec.Struct, frozen=True):
    """An edition of a list: its number, which only grows, and its validity."""

    number: int
    this_update: datetime.datetime
    next_update: datetime.datetime


def next_edition(revoked: RevokedCertificates, now: datetime.datetime, last: int = 0) -> Edition:
    """The edition of a list that is signed now; `last`: the number of the one before.

    It is back-dated for slow clocks, but not before its entries. Its number is the time in
    nanoseconds, so that it does not go back after a restore; after a clock that was ahead, it is
    one more than the last.
    """
    begin, newest = now - BACKDATE, revoked.newest()
    if newest is not None and newest > begin:
        begin = newest
    number = max(int(now.timestamp() * 1_000_000) * 1000, last + 1)
    return Edition(number, begin, now + LASTS)


def encode_list_body(
    revoked: RevokedCertificates,
    edition: Edition,
    *,
    algorithm: bytes,
    issuer: bytes,
    authority_key: bytes,
) -> bytes:
    """Encode the to-be-signed part (section 5.1)."""
    if edition.number < 0 or edition.number.bit_length() > _MAX_NUMBER_BITS:
        raise BadRevocation("the number of a list is not negative and has at most 20 octets")
    extensions = der.encode(
        der.SEQUENCE,
        encode_authority_key(authority_key),
        encode_extension(_CRL_NUMBER, der.encode_integer(edition.number)),
    )
    return der.encode(
        der.SEQUENCE,
        _VERSION_2,
        algorithm,
        issuer,
        der.encode_time(edition.this_update.replace(microsecond=0)),
        der.encode_time(edition.next_update.replace(microsecond=0)),
        revoked.encode(),
        der.encode(_LIST_EXTENSIONS, extensions),
    )


def refuse_unsound_list(
    data: bytes,
    revoked: RevokedCertificates,
    edition: Edition,
    authority: x509.Certificate,
    authority_key: bytes,
) -> None:
    """Parse a list with the X.509 library and refuse it if it differs from the input."""
    try:
        with library_errors_as(
            UnsoundCertificate, "the revocation list to be signed cannot be read"
        ):
            signed = x509.load_der_x509_crl(data)
            agreed = x509.Extensions(
                [
                    x509.Extension(kind.oid, critical=False, value=kind)
                    for kind in (
                        x509.AuthorityKeyIdentifier(authority_key, None, None),
                        x509.CRLNumber(edition.number),
                    )
                ]
            )
            sound = (
                signed.issuer == authority.subject
                and signed.last_update_utc == edition.this_update.replace(microsecond=0)
                and signed.next_update_utc == edition.next_update.replace(microsecond=0)
                and edition.this_update < edition.next_update
                and len(signed) == len(revoked)
                and list(signed.extensions) == list(agreed)
            )
    except ValueError:
        sound = False
    if not sound:
        raise UnsoundCertificate("the revocation list to be signed is not what was meant")


def read_list(data: bytes) -> x509.CertificateRevocationList:
    """A list that others may have written; raises BadRevocation if it cannot be read."""
    with library_errors_as(BadRevocation, "the revocation list cannot be read"):
        revocation_list = x509.load_der_x509_crl(data)
        revocation_list.last_update_utc, revocation_list.next_update_utc  # noqa: B018 - parsed when they are read
        return revocation_list


def list_url(base: str, name: str) -> str:
    """The URL of a revocation list, for certificates; "" without a base URL."""
    return f"{base.rstrip('/')}/crl/{name}.crl" if base else ""
