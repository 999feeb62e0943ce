"""Certificates as they reach us: read one, and say whom it names.

`parse` reads one completely, `parse_blocks` the PEM of an issued one by the reference's rules.
`identify` reads user, groups and uid out of a client's; certification_path.py proves them, and has
to be asked first. Two certificates are the same only if all their bytes are (`same`): serial
numbers and key ids can be forged.
"""

import contextlib
import hashlib
import hmac
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.utils import CryptographyDeprecationWarning

from orchid.credentials import der, pem
from orchid.credentials.names import (
    USER_UID,
    BadString,
    DistinguishedName,
    IPAddress,
    has_control_characters,
    read_subject,
)
from orchid.credentials.refusals import (
    CertificateRefused,
    MalformedCertificate,
    is_panic,
)

_MAX_CERTIFICATE = 128 * 1024

_UNREADABLE = "x509: malformed certificate"
_UNREADABLE_FOR = (
    ValueError,
    TypeError,
    Warning,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
)
_VERSION = 0xA0
# The beginning of every usual certificate, up to the length of its serial number, which is above 0.
_BEFORE_SERIAL = re.compile(
    rb"(?:\x30(?:[\x00-\x7f]|\x81.|\x82..|\x83...)){2}(?:\xa0\x03\x02\x01.)?"
    rb"\x02([\x02-\x7f](?=[\x00-\x7f])|\x01(?=[\x01-\x7f]))",
    re.DOTALL,
)
_EC_KEY = der.encode_oid("1.2.840.10045.2.1")
_KNOWN_CURVES = tuple(
    der.encode_oid(curve)
    for curve in ("1.3.132.0.33", "1.2.840.10045.3.1.7", "1.3.132.0.34", "1.3.132.0.35")
)
_BEFORE_KEY = 8  # the most that stands between the beginning of a key and its algorithm
_LONG_FORM = 0x80
# ASCII, and no tag of a string with more than one octet to a character.
_PLAIN_NAME = re.compile(rb"[\x00-\x1b\x1d\x1f-\x7f]*+")


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a client certificate names. An empty user name means: nobody, try another way."""

    user: str
    groups: tuple[str, ...]
    uid: str
    credential_id: str


@dataclass(frozen=True, slots=True)
class CertificateContents:
    """The names inside a certificate, in the form that signers' rules read."""

    subject: DistinguishedName
    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[IPAddress, ...] = ()
    email_addresses: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()


def parse(data: bytes) -> x509.Certificate:
    """Read one DER certificate completely, extensions and names included."""
    if len(data) > _MAX_CERTIFICATE:
        raise MalformedCertificate(f"a certificate has at most {_MAX_CERTIFICATE} bytes")
    usual = _BEFORE_SERIAL.match(data)
    if usual or _serial_bytes(data) != b"\x00":
        certificate = _load(data)
    else:
        # Some old roots have this number; they pass, without the library's warning.
        with warnings.catch_warnings(action="ignore", category=CryptographyDeprecationWarning):
            certificate = _load(data)
    _refuse_unreadable_parts(data, usual)
    return certificate


def parse_blocks(text: bytes | str) -> list[x509.Certificate]:
    """Read issued certificates from PEM text; the first problem ends the reading.

    A block may hold several certificates one after the other; text outside blocks is ignored.
    """
    found: list[x509.Certificate] = []
    blocks = pem.split(text)
    for block in blocks:
        if block.label != pem.CERTIFICATE:
            raise MalformedCertificate(
                f'only CERTIFICATE PEM blocks are allowed, found "{block.label}"'
            )
        if block.headers:
            raise MalformedCertificate("no PEM block headers are permitted")
        if not block.data:
            raise MalformedCertificate("found CERTIFICATE PEM block containing 0 certificates")
        found.extend(parse(data) for data in _concatenated(block.data))
    if not found:
        raise MalformedCertificate("must contain at least one CERTIFICATE PEM block")
    return found


def encode(certificate: x509.Certificate) -> bytes:
    """Give the DER bytes of a certificate."""
    return certificate.public_bytes(serialization.Encoding.DER)


def same(one: bytes, other: bytes) -> bool:
    """Say whether two DER certificates are the same, byte for byte."""
    return hmac.compare_digest(hashlib.sha256(one).digest(), hashlib.sha256(other).digest())


def credential_id(data: bytes) -> str:
    """Name a certificate in records and user attributes."""
    return f"X509SHA256={hashlib.sha256(data).hexdigest()}"


def read_subject_of(data: bytes) -> DistinguishedName:
    """Read the subject of a DER certificate exactly as it stands there."""
    return _read_names(data)[1]


def subject_bytes(data: bytes) -> bytes:
    """Give the subject of a DER certificate as the bytes that stand there."""
    return _name_bytes(data, 1)


def issuer_bytes(data: bytes) -> bytes:
    """Give the issuer of a DER certificate as the bytes that stand there."""
    return _name_bytes(data, 0)


def identify(data: bytes) -> Identity:
    """Read user, groups and uid from a verified DER certificate."""
    subject = read_subject_of(data)
    if any(map(has_control_characters, (subject.common_name, *subject.organizations))):
        # Nobody has such a name; it could only be meant to look like another in a log.
        raise CertificateRefused("the subject contains control characters")
    return Identity(
        user=subject.common_name,
        groups=subject.organizations,
        uid=_uid(subject),
        credential_id=credential_id(data),
    )


def read_contents(certificate: x509.Certificate, data: bytes) -> CertificateContents:
    """Read the names of a certificate and its DER: the subject by us, the rest by the library."""
    names: x509.SubjectAlternativeName | Sequence[x509.GeneralName] = ()
    with contextlib.suppress(x509.ExtensionNotFound):
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    found: dict[type, list[object]] = {}
    for name in names:
        found.setdefault(type(name), []).append(name.value)
    addresses = found.get(x509.IPAddress, [])
    return CertificateContents(
        subject=read_subject_of(data),
        dns_names=_texts(found.get(x509.DNSName, [])),
        ip_addresses=tuple(address for address in addresses if isinstance(address, IPAddress)),
        email_addresses=_texts(found.get(x509.RFC822Name, [])),
        uris=_texts(found.get(x509.UniformResourceIdentifier, [])),
    )


def is_authority(certificate: x509.Certificate) -> bool:
    """Say whether basic constraints are there and name an authority."""
    for extension in certificate.extensions:
        if isinstance(extension.value, x509.BasicConstraints):
            return extension.value.ca
    return False


def describe(certificate: x509.Certificate) -> str:
    """Name a certificate in a message: serial number and key ids, nothing a client wrote."""
    subject_key = authority_key = b""
    for extension in certificate.extensions:
        if isinstance(extension.value, x509.SubjectKeyIdentifier):
            subject_key = extension.value.digest
        elif isinstance(extension.value, x509.AuthorityKeyIdentifier):
            authority_key = extension.value.key_identifier or b""
    # Read by us: the library warns about the number zero each time it is asked.
    serial = int.from_bytes(_serial_bytes(encode(certificate)), "big")
    return (
        f"SN={serial}, SKID={subject_key.hex(':').upper()}, AKID={authority_key.hex(':').upper()}"
    )


def _serial_bytes(data: bytes) -> bytes:
    try:
        serial = _body_elements(data)[0]
    except der.NotDer:
        raise MalformedCertificate(_fault(data)) from None
    content = data[serial.start : serial.stop]
    if content[:1] >= b"\x80":
        raise MalformedCertificate("x509: negative serial number")
    return content


def _load(data: bytes) -> x509.Certificate:
    try:
        certificate = x509.load_der_x509_certificate(data)
        # The library reads lazily; a certificate that cannot be read whole is none.
        certificate.extensions  # noqa: B018 - read for its refusal
    except _UNREADABLE_FOR:
        # A warning arrives here only where warnings are errors: the library will refuse soon.
        raise MalformedCertificate(_fault(data)) from None
    except BaseException as problem:  # as `panics_as`, which costs as much as the reading itself
        if is_panic(type(problem)):
            raise MalformedCertificate(_UNREADABLE) from None
        raise
    return certificate


def _refuse_unreadable_parts(data: bytes, usual: re.Match[bytes] | None) -> None:
    """What the library reads only when asked: the names, and a key on a curve that few know."""
    key = _behind_plain_names(data, usual) if usual else 0
    if not key:
        _read_names(data)
        key = _name_elements(data)[1].stop
    algorithm = data.find(_EC_KEY, key, key + _BEFORE_KEY + len(_EC_KEY))
    if algorithm > 0 and not data.startswith(_KNOWN_CURVES, algorithm + len(_EC_KEY)):
        raise MalformedCertificate("x509: unsupported elliptic curve")


def _behind_plain_names(data: bytes, usual: re.Match[bytes]) -> int:
    """Where the key begins, if all before it is short and its names cannot be misread; else 0.

    Almost all certificates are so, and the thousands in a bundle are to be read in a moment. The
    library has read this one, so that every length in it is right.
    """
    algorithm = usual.end(1) + data[usual.start(1)]
    try:
        issuer = algorithm + 2 + data[algorithm + 1]
        validity = issuer + 2 + data[issuer + 1]
        subject = validity + 2 + data[validity + 1]
        key = subject + 2 + data[subject + 1]
    except IndexError:  # what was taken for a length says how long the length is
        return 0
    longest = max(data[algorithm + 1], data[issuer + 1], data[validity + 1], data[subject + 1])
    plain = (
        longest < _LONG_FORM
        and _PLAIN_NAME.fullmatch(data, issuer, validity)
        and _PLAIN_NAME.fullmatch(data, subject, key)
    )
    return key if plain else 0


def _fault(data: bytes) -> str:
    """Say where bytes stop being a certificate, in the reference's words."""
    part = "certificate"
    try:
        outer = der.expect(data, 0, len(data), der.SEQUENCE)
        part = "tbs certificate"
        body = der.expect(data, outer.start, outer.stop, der.SEQUENCE)
        part = "serial number"
        serial = der.element(data, body.start, body.stop)
        if serial.tag == _VERSION:
            serial = der.element(data, serial.stop, body.stop)
        der.expect(data, serial.begin, body.stop, der.INTEGER)
        part = "signature algorithm identifier"
        inner = der.expect(data, serial.stop, body.stop, der.SEQUENCE)
        part = "algorithm identifier"
        algorithm = der.expect(data, body.stop, outer.stop, der.SEQUENCE)
    except der.NotDer:
        return f"x509: malformed {part}"
    if data[inner.begin : inner.stop] != data[algorithm.begin : algorithm.stop]:
        return "x509: inner and outer signature algorithm identifiers don't match"
    return _UNREADABLE


def _read_names(data: bytes) -> tuple[DistinguishedName, DistinguishedName]:
    """Read issuer and subject of a certificate."""
    try:
        issuer, subject = _name_elements(data)
        return read_subject(data, issuer), read_subject(data, subject)
    except BadString as error:
        raise MalformedCertificate(f"x509: invalid RDNSequence: {error}") from None
    except der.NotDer:
        raise MalformedCertificate("x509: invalid RDNSequence") from None


def _name_elements(data: bytes) -> tuple[der.Element, der.Element]:
    """Find issuer and subject of a certificate."""
    serial, body = _body_elements(data)
    algorithm = der.element(data, serial.stop, body.stop)
    issuer = der.expect(data, algorithm.stop, body.stop, der.SEQUENCE)
    validity = der.element(data, issuer.stop, body.stop)
    return issuer, der.expect(data, validity.stop, body.stop, der.SEQUENCE)


def _body_elements(data: bytes) -> tuple[der.Element, der.Element]:
    """Find the serial number of a certificate, and the body that it stands in."""
    outer = der.expect(data, 0, len(data), der.SEQUENCE)
    body = der.expect(data, outer.start, outer.stop, der.SEQUENCE)
    serial = der.element(data, body.start, body.stop)
    if serial.tag == _VERSION:
        serial = der.element(data, serial.stop, body.stop)
    return serial, body


def _name_bytes(data: bytes, which: int) -> bytes:
    try:
        name = _name_elements(data)[which]
    except der.NotDer:
        raise MalformedCertificate("x509: invalid RDNSequence") from None
    return data[name.begin : name.stop]


def _uid(subject: DistinguishedName) -> str:
    found = [attribute.value for attribute in subject.attributes if attribute.oid == USER_UID]
    if not found:
        return ""
    if len(found) > 1:
        raise CertificateRefused(f"expected 1 UID, but found multiple: {len(found)}")
    if found[0] is None:
        raise CertificateRefused("unable to parse UID into a string")
    if not found[0]:
        raise CertificateRefused("UID cannot be an empty string")
    return found[0]


def _texts(values: list[object]) -> tuple[str, ...]:
    return tuple(value for value in values if isinstance(value, str))


def _concatenated(data: bytes) -> Iterator[bytes]:
    """One at a time: a block of zeros is half a million elements, of which one is enough."""
    try:
        for part in der.children(data, 0, len(data)):
            yield data[part.begin : part.stop]
    except der.NotDer:
        raise MalformedCertificate(_UNREADABLE) from None
