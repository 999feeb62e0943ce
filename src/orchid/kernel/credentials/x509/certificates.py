"""Certificates from clients and signers: parsing, and the identity of a client certificate.

`parse` parses one completely, `parse_blocks` the PEM of an issued one by the rules of Kubernetes.
`identify` returns user, groups and uid of a client certificate, which trust/certification_path.py
must have verified before. trust/verified_chain.py defines the identity of a certificate itself.
"""

import contextlib
import hashlib
import warnings
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.utils import CryptographyDeprecationWarning

from orchid.kernel.credentials.refusals import (
    CertificateRefused,
    MalformedCertificate,
    is_library_error,
    library_errors_as,
)
from orchid.kernel.credentials.x509 import der, pem
from orchid.kernel.credentials.x509.certificate_body import ALTERNATIVE_NAMES
from orchid.kernel.credentials.x509.names import (
    USER_UID,
    BadString,
    DistinguishedName,
    IPAddress,
    has_control_characters,
    read_subject,
)

_MAX_CERTIFICATE = 128 * 1024
_CACHED_SIZE, _CACHED_TEXT, _CACHE_ENTRIES = 4096, 8192, 64

_UNREADABLE = "x509: malformed certificate"
_VERSION = 0xA0
_TELETEX, _EMPTY_SET = b"\x14", b"\x31\x00"
_EC_KEY = der.encode_oid("1.2.840.10045.2.1")
_KNOWN_CURVES = tuple(
    der.encode_oid(curve)
    for curve in ("1.3.132.0.33", "1.2.840.10045.3.1.7", "1.3.132.0.34", "1.3.132.0.35")
)
_BEFORE_ALGORITHM = 8  # the most bytes before it in a key


class Identity(msgspec.Struct, frozen=True):
    """User, groups and uid of a client certificate. Without a user name it identifies nobody."""

    user: str
    groups: tuple[str, ...]
    uid: str
    credential_id: str


class CertificateContents(msgspec.Struct, frozen=True):
    """The names in a certificate, as profiles check them."""

    subject: DistinguishedName
    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[IPAddress, ...] = ()
    email_addresses: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()


def parse(data: bytes) -> x509.Certificate:
    """Parse a DER certificate completely, extensions and names included."""
    return read(data).certificate


def read(data: bytes) -> "ReadCertificate":
    """`parse`, with the parts that were parsed here."""
    if len(data) > _MAX_CERTIFICATE:
        raise MalformedCertificate(f"a certificate has at most {_MAX_CERTIFICATE} bytes")
    parts = read_parts(data)
    if parts.serial[:1] >= b"\x80":
        raise MalformedCertificate("x509: negative serial number")
    if parts.serial == b"\x00":
        # Some old roots have serial number 0; they are accepted, without the library's warning.
        with warnings.catch_warnings(action="ignore", category=CryptographyDeprecationWarning):
            certificate = _load(data)
    else:
        certificate = _load(data)
    return ReadCertificate(certificate, parts, _readable_subject(certificate, parts))


def read_once(data: bytes) -> "ReadCertificate":
    """`read` with a cache of the last few: a certificate is validated first, and then recorded.

    Never used by the check before signing (inspection.py).
    """
    return _read_cached(data) if len(data) <= _CACHED_SIZE else read(data)


_read_cached = lru_cache(maxsize=_CACHE_ENTRIES)(read)


def parse_blocks(text: bytes | str) -> list[x509.Certificate]:
    """Parse issued certificates from PEM text; the first problem ends it.

    A block may hold several concatenated certificates; text outside of blocks is ignored.
    """
    return [read_once(data).certificate for data in encoded_blocks(text)]


def encoded_blocks(text: bytes | str) -> Iterable[bytes]:
    """The same certificates in DER, not parsed; the last few texts are cached."""
    return _cached_blocks(text) if len(text) <= _CACHED_TEXT else _blocks(text)


def _blocks(text: bytes | str) -> Iterator[bytes]:
    """A generator: a block of zeros is half a million elements, of which one suffices."""
    blocks = pem.split(text)
    if not blocks:
        raise MalformedCertificate("must contain at least one CERTIFICATE PEM block")
    for block in blocks:
        if block.label != pem.CERTIFICATE:
            raise MalformedCertificate(
                f'only CERTIFICATE PEM blocks are allowed, found "{block.label}"'
            )
        if block.headers:
            raise MalformedCertificate("no PEM block headers are permitted")
        if not block.data:
            raise MalformedCertificate("found CERTIFICATE PEM block containing 0 certificates")
        yield from _concatenated(block.data)


@lru_cache(maxsize=_CACHE_ENTRIES)
def _cached_blocks(text: bytes | str) -> tuple[bytes, ...]:
    return tuple(_blocks(text))


def encode(certificate: x509.Certificate) -> bytes:
    """The DER bytes of a certificate."""
    return certificate.public_bytes(serialization.Encoding.DER)


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 of a certificate, in hex."""
    return hashlib.sha256(encode(certificate)).hexdigest()


def serial_name(number: bytes) -> str:
    """A serial number as the name of an object: lower-case hex without leading zeros."""
    return number.hex().lstrip("0") or "0"


def credential_id(data: bytes) -> str:
    """The id of a certificate in records and user attributes."""
    return f"X509SHA256={hashlib.sha256(data).hexdigest()}"


def read_subject_of(data: bytes) -> DistinguishedName:
    """The subject of a DER certificate, exactly as encoded."""
    return read_name(read_parts(data).subject)


def identify(data: bytes) -> Identity:
    """User, groups and uid from a verified DER certificate."""
    subject = read_subject_of(data)
    if any(map(has_control_characters, (subject.common_name, *subject.organizations))):
        # No real name has these; they could only imitate another name in a log.
        raise CertificateRefused("the subject contains control characters")
    return Identity(
        user=subject.common_name,
        groups=subject.organizations,
        uid=_uid(subject),
        credential_id=credential_id(data),
    )


def read_contents(read_certificate: "ReadCertificate") -> CertificateContents:
    """The names of a certificate: the subject parsed here, the rest by the library."""
    certificate, subject = read_certificate.certificate, read_certificate.subject
    if (
        ALTERNATIVE_NAMES not in read_certificate.parts.extensions
    ):  # as in most certificates of users
        return CertificateContents(subject)
    names: Iterable[x509.GeneralName] = ()
    with contextlib.suppress(x509.ExtensionNotFound):
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    values: dict[type, list[object]] = {}
    for name in names:
        values.setdefault(type(name), []).append(name.value)
    addresses = values.get(x509.IPAddress, [])
    return CertificateContents(
        subject=subject,
        dns_names=_texts(values.get(x509.DNSName, [])),
        ip_addresses=tuple(address for address in addresses if isinstance(address, IPAddress)),
        email_addresses=_texts(values.get(x509.RFC822Name, [])),
        uris=_texts(values.get(x509.UniformResourceIdentifier, [])),
    )


def uris_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """The URIs among the alternative names of a certificate."""
    for extension in certificate.extensions:
        if isinstance(extension.value, x509.SubjectAlternativeName):
            return tuple(extension.value.get_values_for_type(x509.UniformResourceIdentifier))
    return ()


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether basic constraints are present and have the CA bit."""
    for extension in certificate.extensions:
        if isinstance(extension.value, x509.BasicConstraints):
            return extension.value.ca
    return False


def public_key_of(certificate: x509.Certificate) -> CertificatePublicKeyTypes | None:
    """The public key; None if the library cannot read it."""
    try:
        with library_errors_as(MalformedCertificate, _UNREADABLE):
            return certificate.public_key()
    except MalformedCertificate:
        return None


def describe(certificate: x509.Certificate) -> str:
    """A certificate for a message: serial number and key ids, nothing that a client chose."""
    subject_key = authority_key = b""
    for extension in certificate.extensions:
        if isinstance(extension.value, x509.SubjectKeyIdentifier):
            subject_key = extension.value.digest
        elif isinstance(extension.value, x509.AuthorityKeyIdentifier):
            authority_key = extension.value.key_identifier or b""
    # Parsed here: the library warns about serial number zero at every access.
    serial = int.from_bytes(read_parts(encode(certificate)).serial, "big")
    return (
        f"SN={serial}, SKID={subject_key.hex(':').upper()}, AKID={authority_key.hex(':').upper()}"
    )


class CertificateParts(NamedTuple):
    """The parts of a certificate that are parsed here, as raw bytes."""

    serial: bytes  # the number alone
    algorithm: bytes  # of the signature
    issuer: bytes
    subject: bytes
    key: bytes
    extensions: bytes  # all bytes after the key


class ReadCertificate(NamedTuple):
    """A completely parsed certificate, with the parts that were parsed here."""

    certificate: x509.Certificate
    parts: CertificateParts
    subject: DistinguishedName


def read_parts(data: bytes) -> CertificateParts:
    """The parts of a DER certificate."""
    try:
        outer = der.element(data, 0, len(data), der.SEQUENCE)
        body = der.element(data, outer.start, outer.stop, der.SEQUENCE)
        return _read_body(data[body.start : body.stop])
    except der.NotDer:
        raise MalformedCertificate(_fault(data)) from None


def _read_body(body: bytes) -> CertificateParts:
    end = len(body)
    serial = der.element(body, 0, end)
    if serial.tag == _VERSION:
        serial = der.element(body, serial.stop, end)
    algorithm = der.element(body, serial.stop, end)
    issuer = der.element(body, algorithm.stop, end, der.SEQUENCE)
    validity = der.element(body, issuer.stop, end)
    subject = der.element(body, validity.stop, end, der.SEQUENCE)
    key = der.element(body, subject.stop, end, der.SEQUENCE)
    return CertificateParts(
        body[serial.start : serial.stop],
        body[algorithm.begin : algorithm.stop],
        body[issuer.begin : issuer.stop],
        body[subject.begin : subject.stop],
        body[key.begin : key.stop],
        body[key.stop :],
    )


def _load(data: bytes) -> x509.Certificate:
    try:
        certificate = x509.load_der_x509_certificate(data)
        # The library parses lazily. All that may fail is read here, so that a certificate with an
        # unusual extension or the year 0 is refused, and nothing raises later.
        certificate.extensions  # noqa: B018 - read for its refusal
        certificate.not_valid_before_utc  # noqa: B018 - as above
        certificate.not_valid_after_utc  # noqa: B018 - as above
    except BaseException as problem:  # as `library_errors_as`, which costs as much as the parsing
        if is_library_error(problem):
            raise MalformedCertificate(_fault(data)) from None
        raise
    return certificate


def _readable_subject(certificate: x509.Certificate, parts: CertificateParts) -> DistinguishedName:
    """The subject, if the lazily parsed parts are valid: names, and keys on unusual curves."""
    subject = read_name(parts.subject)
    issuer = subject if parts.issuer == parts.subject else read_name(parts.issuer)
    if _is_unusual(parts.subject, subject) or _is_unusual(parts.issuer, issuer):
        _refuse_unreadable_names(certificate)
    algorithm = parts.key.find(_EC_KEY, 0, _BEFORE_ALGORITHM + len(_EC_KEY))
    if algorithm > 0 and not parts.key.startswith(_KNOWN_CURVES, algorithm + len(_EC_KEY)):
        raise MalformedCertificate("x509: unsupported elliptic curve")
    return subject


def _is_unusual(encoded: bytes, name: DistinguishedName) -> bool:
    """Whether the library may refuse a name that is read here. Most are not: it takes a while."""
    return (
        _TELETEX in encoded
        or _EMPTY_SET in encoded
        or any(attribute.value is None for attribute in name.attributes)
    )


def _refuse_unreadable_names(certificate: x509.Certificate) -> None:
    # It warns about long and empty attributes, which are accepted.
    with (
        library_errors_as(MalformedCertificate, "x509: invalid RDNSequence"),
        warnings.catch_warnings(action="ignore"),
    ):
        certificate.subject  # noqa: B018 - read for its refusal
        certificate.issuer  # noqa: B018 - as above


def _fault(data: bytes) -> str:
    """The position at which bytes stop being a certificate, in the words of Kubernetes."""
    part = "certificate"
    try:
        outer = der.element(data, 0, len(data), der.SEQUENCE)
        part = "tbs certificate"
        body = der.element(data, outer.start, outer.stop, der.SEQUENCE)
        part = "serial number"
        serial = der.element(data, body.start, body.stop)
        if serial.tag == _VERSION:
            serial = der.element(data, serial.stop, body.stop)
        der.element(data, serial.begin, body.stop, der.INTEGER)
        part = "signature algorithm identifier"
        inner = der.element(data, serial.stop, body.stop, der.SEQUENCE)
        part = "algorithm identifier"
        algorithm = der.element(data, body.stop, outer.stop, der.SEQUENCE)
    except der.NotDer:
        return f"x509: malformed {part}"
    if data[inner.begin : inner.stop] != data[algorithm.begin : algorithm.stop]:
        return "x509: inner and outer signature algorithm identifiers don't match"
    return _UNREADABLE


def read_name(encoded: bytes) -> DistinguishedName:
    """Parse a DER Name of a certificate."""
    try:
        return read_subject(encoded, der.element(encoded, 0, len(encoded)))
    except BadString as error:
        raise MalformedCertificate(f"x509: invalid RDNSequence: {error}") from None
    except der.NotDer:
        raise MalformedCertificate("x509: invalid RDNSequence") from None


def _uid(subject: DistinguishedName) -> str:
    uids = [attribute.value for attribute in subject.attributes if attribute.oid == USER_UID]
    if not uids:
        return ""
    if len(uids) > 1:
        raise CertificateRefused(f"expected 1 UID, but found multiple: {len(uids)}")
    if uids[0] is None:
        raise CertificateRefused("unable to parse UID into a string")
    if not uids[0]:
        raise CertificateRefused("UID cannot be an empty string")
    return uids[0]


def _texts(values: list[object]) -> tuple[str, ...]:
    return tuple(value for value in values if isinstance(value, str))


def _concatenated(data: bytes) -> Iterator[bytes]:
    try:
        for part in der.children(data, 0, len(data)):
            yield data[part.begin : part.stop]
    except der.NotDer:
        raise MalformedCertificate(_UNREADABLE) from None
