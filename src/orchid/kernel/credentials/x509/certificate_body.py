"""The body of a certificate, written from a template (RFC 5280 section 4.1).

`Template` has the complete content of a certificate; `encode_body` encodes it, `assemble` joins
body and signature. Extensions are in the order of Kubernetes, with a subject key identifier added.
Nothing here signs or decides: kernel/credentials/authorities/authority.py does, after the X.509
library has parsed the bytes.
"""

import datetime
import hashlib
from functools import lru_cache

import msgspec

from orchid.kernel.credentials.x509 import der
from orchid.kernel.credentials.x509.names import DistinguishedName, IPAddress

_VERSION_3 = der.encode(0xA0, der.encode_integer(2))
EXTENSIONS = 0xA3
_TRUE = der.encode(der.BOOLEAN, b"\xff")
_EMAIL, _DNS, _URI, _IP = 0x81, 0x82, 0x86, 0x87

_KEY_USAGE = der.encode_oid("2.5.29.15")
_EXTENDED_KEY_USAGE = der.encode_oid("2.5.29.37")
_BASIC_CONSTRAINTS = der.encode_oid("2.5.29.19")
_SUBJECT_KEY_ID = der.encode_oid("2.5.29.14")
_AUTHORITY_KEY_ID = der.encode_oid("2.5.29.35")
ALTERNATIVE_NAMES = der.encode_oid("2.5.29.17")
_DISTRIBUTION_POINTS = der.encode_oid("2.5.29.31")

KEY_ID_OCTETS = 20
# The DER before the octets of a subject key identifier in its extension.
BEFORE_KEY_ID = der.encode(
    der.SEQUENCE,
    _SUBJECT_KEY_ID,
    der.encode(der.OCTET_STRING, der.encode(der.OCTET_STRING, bytes(KEY_ID_OCTETS))),
)[:-KEY_ID_OCTETS]


class Template(msgspec.Struct, frozen=True):
    """The content of a certificate, except for issuer and serial number."""

    subject: DistinguishedName
    spki: bytes
    not_before: datetime.datetime
    not_after: datetime.datetime
    key_usages: frozenset[int]
    extended_usages: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    email_addresses: tuple[str, ...] = ()
    ip_addresses: tuple[IPAddress, ...] = ()
    uris: tuple[str, ...] = ()
    crl_url: str = ""
    authority: bool = False
    # Of a certificate for another authority, whose name and key identifier stay as they are.
    encoded_subject: bytes = b""
    key_id: bytes = b""


def encode_body(
    template: Template, serial: int, algorithm: bytes, issuer: bytes, authority_key: bytes
) -> bytes:
    """Encode the to-be-signed part (RFC 5280 section 4.1)."""
    extensions = der.encode(der.SEQUENCE, *_encode_extensions(template, authority_key))
    return der.encode(
        der.SEQUENCE,
        _VERSION_3,
        der.encode_integer(serial),
        algorithm,
        issuer,
        _encode_validity(template.not_before, template.not_after),
        template.encoded_subject or template.subject.encode(),
        template.spki,
        der.encode(EXTENSIONS, extensions),
    )


def assemble(body: bytes, algorithm: bytes, signature: bytes) -> bytes:
    """Join a body and its signature to a certificate, or to a CRL."""
    return der.encode(der.SEQUENCE, body, algorithm, der.encode_bits(signature))


def _encode_extensions(template: Template, authority_key: bytes) -> list[bytes]:
    usages = _encode_usages(template.key_usages, template.extended_usages, template.authority)
    if template.key_id:
        key_id = der.encode(der.OCTET_STRING, template.key_id)
        extensions = [usages, encode_extension(_SUBJECT_KEY_ID, key_id)]
    else:
        extensions = [usages, BEFORE_KEY_ID + key_digest(template.spki)]
    if authority_key:
        extensions.append(encode_authority_key(authority_key))
    if alternative := _encode_alternative_names(template):
        # RFC 5280 section 4.2.1.6: critical if the subject is empty.
        critical = not template.subject.attributes
        extensions.append(encode_extension(ALTERNATIVE_NAMES, alternative, critical=critical))
    if template.crl_url:
        extensions.append(_encode_distribution_point(template.crl_url))
    return extensions


@lru_cache(maxsize=64)  # certificates of one second and one lifetime share their times
def _encode_validity(not_before: datetime.datetime, not_after: datetime.datetime) -> bytes:
    return der.encode(der.SEQUENCE, der.encode_time(not_before), der.encode_time(not_after))


@lru_cache(maxsize=64)  # most certificates of a signer have the same usages
def _encode_usages(
    key_usages: frozenset[int], extended_usages: tuple[str, ...], authority: bool
) -> bytes:
    encoded = b""
    if key_usages:
        encoded += encode_extension(_KEY_USAGE, _encode_bits(key_usages), critical=True)
    if extended_usages:
        purposes = (der.encode_oid(oid) for oid in extended_usages)
        encoded += encode_extension(_EXTENDED_KEY_USAGE, der.encode(der.SEQUENCE, *purposes))
    constraints = der.encode(der.SEQUENCE, _TRUE if authority else b"")
    return encoded + encode_extension(_BASIC_CONSTRAINTS, constraints, critical=True)


@lru_cache(maxsize=16)
def encode_authority_key(key_id: bytes) -> bytes:
    """The authority key identifier extension (RFC 5280 section 4.2.1.1)."""
    value = der.encode(der.SEQUENCE, der.encode(0x80, key_id))
    return encode_extension(_AUTHORITY_KEY_ID, value)


@lru_cache(maxsize=16)
def _encode_distribution_point(url: str) -> bytes:
    """The CRL distribution point: one point with one URL (RFC 5280, 4.2.1.13)."""
    full_name = der.encode(0xA0, der.encode(_URI, url.encode("ascii")))
    point = der.encode(der.SEQUENCE, der.encode(0xA0, full_name))
    return encode_extension(_DISTRIBUTION_POINTS, der.encode(der.SEQUENCE, point))


def encode_extension(oid: bytes, value: bytes, *, critical: bool = False) -> bytes:
    """An extension from its encoded OID and value."""
    flag = _TRUE if critical else b""
    return der.encode(der.SEQUENCE, oid, flag, der.encode(der.OCTET_STRING, value))


def _encode_bits(bits: frozenset[int]) -> bytes:
    """A named bit list: bit 0 first, no trailing zero bits (X.690 section 11.2.2)."""
    size = max(bits) // 8 + 1
    number = sum(1 << (8 * size - 1 - bit) for bit in bits)
    return der.encode_bits(number.to_bytes(size, "big"), 8 * size - 1 - max(bits))


def _encode_alternative_names(template: Template) -> bytes:
    if not (
        template.dns_names or template.email_addresses or template.ip_addresses or template.uris
    ):
        return b""
    parts = (
        *(der.encode(_DNS, name.encode("ascii")) for name in template.dns_names),
        *(der.encode(_EMAIL, name.encode("ascii")) for name in template.email_addresses),
        *(der.encode(_IP, address.packed) for address in template.ip_addresses),
        *(der.encode(_URI, uri.encode("ascii")) for uri in template.uris),
    )
    return der.encode(der.SEQUENCE, *parts)


@lru_cache(maxsize=64)  # computed for the encoding, then for the inspection
def key_digest(key_info: bytes) -> bytes:
    """Key identifier: the first 160 bits of the SHA-256 of the key bits (RFC 7093 section 2)."""
    outer = der.element(key_info, 0, len(key_info))
    algorithm = der.element(key_info, outer.start, outer.stop)
    bits = der.element(key_info, algorithm.stop, outer.stop, der.BIT_STRING)
    return hashlib.sha256(key_info[bits.start + 1 : bits.stop]).digest()[:KEY_ID_OCTETS]
