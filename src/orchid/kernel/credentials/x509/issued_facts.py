"""Attributes of an issued certificate for the inventory, from its bytes.

`read_issued` takes the PEM chain of a signer and describes its first certificate. The chain has
just been validated, so its certificates are not parsed again. Nothing here validates a certificate.
"""

import datetime
import hashlib
from typing import Any, Final

import msgspec
from cryptography import x509

from orchid.kernel.credentials.authorities.authority_keys import algorithm_by_prefix, algorithm_name
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.credentials.x509.inspection import bits_of, purposes_of
from orchid.kernel.credentials.x509.usages import usages_of

_NAMES: Final[tuple[type[Any], ...]] = (
    x509.DNSName,
    x509.IPAddress,
    x509.RFC822Name,
    x509.UniformResourceIdentifier,
)


class IssuedFacts(msgspec.Struct, frozen=True):
    """A certificate, as the inventory records it."""

    certificate: x509.Certificate
    data: bytes  # DER
    key: bytes  # the public key as encoded in it
    serial: str  # lower-case hex
    sha256: str  # of the DER
    subject: str  # RFC 4514
    username: str  # the common name, as authentication reads it
    names: tuple[str, ...]  # alternative names: hosts, addresses, e-mail addresses, URIs
    usages: tuple[str, ...]
    key_algorithm: str
    key_sha256: str  # of the public key
    authority_key: str  # the key identifier of the issuer, in hex
    not_before: datetime.datetime
    not_after: datetime.datetime


class _Extended(msgspec.Struct, frozen=True):
    """Values of a certificate's extensions."""

    usages: tuple[str, ...]
    authority_key: str
    names: tuple[str, ...]


def read_issued(chain: bytes) -> IssuedFacts:
    """The first certificate of a PEM chain."""
    data = next(iter(certificates.encoded_blocks(chain)))
    certificate, parts, subject = certificates.read_once(data)
    extended = _read_extensions(certificate)
    return IssuedFacts(
        certificate=certificate,
        data=data,
        key=parts.key,
        serial=certificates.serial_name(parts.serial),
        sha256=hashlib.sha256(data).hexdigest(),
        subject=subject.text or certificate.subject.rfc4514_string(),
        username=subject.common_name,
        names=extended.names,
        usages=extended.usages,
        key_algorithm=algorithm_by_prefix(parts.key) or algorithm_of(certificate),
        key_sha256=hashlib.sha256(parts.key).hexdigest(),
        authority_key=extended.authority_key,
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
    )


def common_name_of(data: bytes) -> str:
    """The common name of a DER certificate; empty if it has none or cannot be read."""
    try:
        return certificates.read_once(data).subject.common_name
    except Refusal:
        return ""


def _read_extensions(certificate: x509.Certificate) -> _Extended:
    extensions: dict[type, x509.ExtensionType] = {}
    for extension in certificate.extensions:
        value = extension.value
        extensions[type(value)] = value
    authority = extensions.get(x509.AuthorityKeyIdentifier)
    key_id = getattr(authority, "key_identifier", None) or b""
    usages = usages_of(
        bits_of(extensions.get(x509.KeyUsage)), purposes_of(extensions.get(x509.ExtendedKeyUsage))
    )
    return _Extended(usages, key_id.hex(), _names(extensions.get(x509.SubjectAlternativeName)))


def _names(alternative: x509.ExtensionType | None) -> tuple[str, ...]:
    """Hosts, addresses, e-mail addresses and URIs, in that order."""
    if not isinstance(alternative, x509.SubjectAlternativeName):
        return ()
    return tuple(str(name) for kind in _NAMES for name in alternative.get_values_for_type(kind))


def algorithm_of(certificate: x509.Certificate) -> str:
    """The algorithm of the key; empty if the key cannot be parsed."""
    key = certificates.public_key_of(certificate)
    return "" if key is None else algorithm_name(key)  # type: ignore[arg-type]  # unknown kinds have a name there too
