"""What an issued certificate says, for whoever keeps an inventory: read from its own bytes.

`read_issued` takes the PEM chain that a signer handed out and tells of its first certificate.
Nothing here judges it.
"""

import datetime
import hashlib
from dataclasses import dataclass
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from orchid.credentials import certificates, pem
from orchid.credentials.authority_keys import algorithm_name
from orchid.credentials.inspection import bits_of, purposes_of
from orchid.credentials.refusals import MalformedCertificate
from orchid.credentials.usages import usages_of

_NAMES: Final[tuple[type[Any], ...]] = (
    x509.DNSName,
    x509.IPAddress,
    x509.RFC822Name,
    x509.UniformResourceIdentifier,
)


@dataclass(frozen=True, slots=True)
class IssuedFacts:
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


def read_issued(chain: bytes) -> IssuedFacts:
    """Read the first certificate of a PEM chain."""
    block = pem.first(chain)
    if block is None:
        raise MalformedCertificate("must contain at least one CERTIFICATE PEM block")
    certificate = certificates.parse_once(block.data)
    found: dict[type, x509.ExtensionType] = {}
    for extension in certificate.extensions:
        value = extension.value
        found[type(value)] = value
    authority = found.get(x509.AuthorityKeyIdentifier)
    key_id = getattr(authority, "key_identifier", None) or b""
    algorithm, spki = _key(certificate)
    return IssuedFacts(
        data=block.data,
        serial=serial_name(certificate.serial_number),
        sha256=hashlib.sha256(block.data).hexdigest(),
        subject=certificate.subject.rfc4514_string(),
        names=_names(found.get(x509.SubjectAlternativeName)),
        usages=usages_of(
            bits_of(found.get(x509.KeyUsage)), purposes_of(found.get(x509.ExtendedKeyUsage))
        ),
        key_algorithm=algorithm,
        key_sha256=hashlib.sha256(spki).hexdigest(),
        authority_key=key_id.hex(),
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
    )


def serial_name(number: int) -> str:
    """A serial number as it names an object: lower-case hex without leading zeros."""
    return f"{number:x}"


def _names(alternative: x509.ExtensionType | None) -> tuple[str, ...]:
    """Hosts, addresses, e-mail addresses and URIs, in that order."""
    if not isinstance(alternative, x509.SubjectAlternativeName):
        return ()
    return tuple(str(name) for kind in _NAMES for name in alternative.get_values_for_type(kind))


def _key(certificate: x509.Certificate) -> tuple[str, bytes]:
    """The algorithm of the key, and the key itself; nothing if it cannot be read."""
    try:
        key = certificate.public_key()
        spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return "", b""
    return algorithm_name(key), spki  # type: ignore[arg-type]  # unknown kinds have a name there too
