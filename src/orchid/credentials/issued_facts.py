"""What an issued certificate says, for whoever keeps an inventory: read from its own bytes.

`read_issued` takes the PEM chain that a signer handed out and tells of its first certificate. The
chain was validated a moment ago, so what was read of it then is not read again. What certificates
for the same usages, by the same authority, have in common is read once (`_usual`). Nothing here
judges a certificate.
"""

import datetime
import hashlib
from functools import lru_cache
from typing import Any, Final

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from orchid.credentials import certificates, der
from orchid.credentials.authority_keys import algorithm_name, usual_algorithm
from orchid.credentials.inspection import bits_of, purposes_of
from orchid.credentials.usages import usages_of

_NAMES: Final[tuple[type[Any], ...]] = (
    x509.DNSName,
    x509.IPAddress,
    x509.RFC822Name,
    x509.UniformResourceIdentifier,
)
_ALTERNATIVE_NAMES = der.encode_oid(x509.SubjectAlternativeName.oid.dotted_string)
_ITS_OWN = (_ALTERNATIVE_NAMES, der.encode_oid(x509.SubjectKeyIdentifier.oid.dotted_string))
_USUAL_SIZE, _REMEMBERED = 4096, 64


class IssuedFacts(msgspec.Struct, frozen=True):
    """One certificate, in words."""

    data: bytes  # DER
    serial: str  # lower-case hex
    sha256: str  # of the DER
    subject: str  # RFC 4514
    names: tuple[str, ...]  # alternative names: hosts, addresses, e-mail addresses, URIs
    usages: tuple[str, ...]
    key_algorithm: str
    key_sha256: str  # of the public key
    authority_key: str  # the key identifier of whoever signed it, in hex
    not_before: datetime.datetime
    not_after: datetime.datetime


class _Shared(msgspec.Struct, frozen=True):
    """What the extensions say that many certificates have in common."""

    usages: tuple[str, ...]
    authority_key: str


class _Extensions(bytes):
    """The extensions of a certificate, but for its names and key; the same if their bytes are."""

    certificate: x509.Certificate


def read_issued(chain: bytes) -> IssuedFacts:
    """Read the first certificate of a PEM chain."""
    data = next(iter(certificates.encoded_blocks(chain)))
    certificate = certificates.parse_once(data)
    parts = certificates.read_recorded(data, _ITS_OWN)
    extensions = _Extensions(parts.extensions)
    extensions.certificate = certificate
    shared = _usual(extensions) if len(data) <= _USUAL_SIZE else _read(extensions)
    return IssuedFacts(
        data=data,
        serial=serial_name(certificate.serial_number),
        sha256=hashlib.sha256(data).hexdigest(),
        subject=parts.subject.text or certificate.subject.rfc4514_string(),
        names=_names(data, certificate),
        usages=shared.usages,
        key_algorithm=usual_algorithm(parts.key) or _algorithm(certificate),
        key_sha256=hashlib.sha256(parts.key).hexdigest(),
        authority_key=shared.authority_key,
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
    )


def serial_name(number: int) -> str:
    """A serial number as it names an object: lower-case hex without leading zeros."""
    return f"{number:x}"


def _read(extensions: _Extensions) -> _Shared:
    found: dict[type, x509.ExtensionType] = {}
    for extension in extensions.certificate.extensions:
        value = extension.value
        found[type(value)] = value
    authority = found.get(x509.AuthorityKeyIdentifier)
    key_id = getattr(authority, "key_identifier", None) or b""
    usages = usages_of(
        bits_of(found.get(x509.KeyUsage)), purposes_of(found.get(x509.ExtendedKeyUsage))
    )
    return _Shared(usages, key_id.hex())


_usual = lru_cache(maxsize=_REMEMBERED)(_read)


def _names(data: bytes, certificate: x509.Certificate) -> tuple[str, ...]:
    """Hosts, addresses, e-mail addresses and URIs, in that order."""
    if _ALTERNATIVE_NAMES not in data:  # as in most certificates of users
        return ()
    for extension in certificate.extensions:
        found = extension.value
        if isinstance(found, x509.SubjectAlternativeName):
            return tuple(str(name) for kind in _NAMES for name in found.get_values_for_type(kind))
    return ()


def _algorithm(certificate: x509.Certificate) -> str:
    """The algorithm of the key; nothing if the key cannot be read."""
    try:
        key = certificate.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return ""
    return algorithm_name(key)  # type: ignore[arg-type]  # unknown kinds have a name there too
