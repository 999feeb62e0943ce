"""Certificate requests (PKCS#10, RFC 2986): parsing and proof of possession.

Start with `parse(pem_text)`, or `parse_once` where several steps need one request. The result has
everything that was sent: the subject with all its values, the alternative names, the key. The
signer's rules are in kernel/credentials/authorities/profiles.py; only what
`kernel/credentials/authorities/authority.py` copies can reach a certificate.

Messages are those of Kubernetes where it has one, because clients show them.
"""

import ipaddress
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, mldsa, rsa

from orchid.kernel.credentials.authorities.authority_keys import (
    ML_DSA_65,
    CertifiedKey,
    algorithm_by_prefix,
    algorithm_name,
)
from orchid.kernel.credentials.keys import MAX_RSA_BITS, refuse_weak_rsa, spki
from orchid.kernel.credentials.refusals import (
    MalformedRequest,
    TooMuchPem,
    UnsupportedKey,
    is_library_error,
)
from orchid.kernel.credentials.x509 import der, pem
from orchid.kernel.credentials.x509.names import (
    MAX_NAMES,
    DistinguishedName,
    IPAddress,
    read_subject,
)

MAX_DER = 64 * 1024
MOST_REQUESTED = 64  # attributes, their values and extensions together; usual requests have three
# The cache of `parse_once`: at most 2 MiB of text, whatever the size of requests.
_CACHED_SIZE = 4 * 1024
_CACHE_ENTRIES, _REMEMBERED_LARGE = 512, 8

SUBJECT_ALTERNATIVE_NAME = "2.5.29.17"
_EXTENSION_REQUEST = der.encode_oid("1.2.840.113549.1.9.14")[2:]

_ATTRIBUTES = 0xA0
_EMAIL, _DNS, _URI, _IP = 0x81, 0x82, 0x86, 0x87
_IP_SIZES = (4, 16)

# Smaller keys are refused here, as in Kubernetes; profiles require more.
_MIN_RSA_BITS = 1024
_CURVES = ("secp224r1", "secp256r1", "secp384r1", "secp521r1")
_SIGNING_CURVES = _CURVES[1:]

_RSA_KEY = der.encode_oid("1.2.840.113549.1.1.1")
_NULL = b"\x05\x00"
# Key types by signature algorithm; and the names of keys in Kubernetes' messages.
_RSA, _ECDSA, _ED25519, _DSA = "RSA", "ECDSA", "Ed25519", "DSA"
_SIGNED_WITH = {
    **{f"1.2.840.113549.1.1.{number}": _RSA for number in (5, 10, 11, 12, 13)},
    **dict.fromkeys(("1.2.840.10040.4.3", "2.16.840.1.101.3.4.3.2"), _DSA),
    "1.2.840.10045.4.1": _ECDSA,
    **{f"1.2.840.10045.4.3.{number}": _ECDSA for number in (2, 3, 4)},
    "1.3.101.112": _ED25519,
    "2.16.840.1.101.3.4.3.18": ML_DSA_65,
}
_ECDSA_SIGNATURES = {
    "1.2.840.10045.4.3.2": ec.ECDSA(hashes.SHA256()),
    "1.2.840.10045.4.3.3": ec.ECDSA(hashes.SHA384()),
    "1.2.840.10045.4.3.4": ec.ECDSA(hashes.SHA512()),
}
_KEY_TYPES = {
    _RSA: "*rsa.PublicKey",
    _ECDSA: "*ecdsa.PublicKey",
    _ED25519: "ed25519.PublicKey",
    ML_DSA_65: "ML-DSA-65",  # unknown to Kubernetes
}

_NOT_IN_HOST = re.compile(r"[ \\^`{|}]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")

_NOT_PEM = "PEM block type must be CERTIFICATE REQUEST"
_UNREADABLE = "x509: malformed certificate request"
_NO_ALGORITHM = "x509: cannot verify signature: algorithm unimplemented"


@dataclass(frozen=True)
class SigningRequest:
    """A request with a valid signature by its key."""

    subject: DistinguishedName
    # The subject of the certificate.
    certified_subject: DistinguishedName
    public_key: CertifiedKey
    der: bytes = field(repr=False)
    # The canonical encoding of the key; the sender's may differ.
    spki: bytes = field(repr=False)
    dns_names: tuple[str, ...] = ()
    email_addresses: tuple[str, ...] = ()
    ip_addresses: tuple[IPAddress, ...] = ()
    uris: tuple[str, ...] = ()
    other_names: int = 0  # alternative names of types that are never copied
    # Other requested extensions by object identifier.
    extension_values: Mapping[str, bytes] = field(default_factory=dict, repr=False, hash=False)

    @property
    def extensions(self) -> tuple[str, ...]:
        return tuple(self.extension_values)

    @property
    def key_algorithm(self) -> str:
        """Algorithm and size of the key, as profiles name them."""
        return algorithm_by_prefix(self.spki) or algorithm_name(self.public_key)

    @property
    def weakness(self) -> str | None:
        """Why the key is too weak for a certificate, or None."""
        if algorithm_by_prefix(self.spki):
            return None
        key = self.public_key
        if isinstance(key, ec.EllipticCurvePublicKey):
            if key.curve.name not in _SIGNING_CURVES:
                return f"elliptic curve {key.curve.name} is too weak"
        elif isinstance(key, rsa.RSAPublicKey):
            try:
                refuse_weak_rsa(key)
            except UnsupportedKey as refusal:
                return str(refusal)
        return None


def parse(text: bytes | str) -> SigningRequest:
    """Parse the first PEM block of a text as a request and verify its signature."""
    return parse_der(_block(text))


def unproven_subject(text: bytes | str) -> DistinguishedName:
    """The subject of a request; its signature is verified elsewhere."""
    data = _block(text)
    outer = _outer_element(data)
    try:
        return read_subject(data, _info_elements(data, outer)[1])
    except der.NotDer as error:
        raise MalformedRequest(f"asn1: syntax error: {error}") from None


def _block(text: bytes | str) -> bytes:
    try:
        block = pem.first(text)
    except TooMuchPem as refusal:
        raise MalformedRequest(str(refusal)) from None
    if block is None or block.label != pem.CERTIFICATE_REQUEST:
        raise MalformedRequest(_NOT_PEM)
    return block.data


def parse_once(text: bytes) -> SigningRequest:
    """`parse` with a cache of the last few valid requests.

    Validation, admission and signing need the same request one after the other, and verifying its
    signature is expensive. The key is the request's bytes, so an entry is never stale.
    """
    return _parse_cached(text) if len(text) <= _CACHED_SIZE else _parse_large(text)


_parse_cached = lru_cache(maxsize=_CACHE_ENTRIES)(parse)
_parse_large = lru_cache(maxsize=_REMEMBERED_LARGE)(parse)


def parse_der_once(data: bytes) -> SigningRequest:
    """`parse_der` with a cache of the last few; see `parse_once`."""
    return _parse_usual_der(data) if len(data) <= _CACHED_SIZE else parse_der(data)


def parse_der(data: bytes) -> SigningRequest:
    """Parse a DER request and verify its signature."""
    outer = _outer_element(data)
    try:
        return _read(data, outer)
    except der.NotDer as error:
        raise MalformedRequest(f"asn1: syntax error: {error}") from None


_parse_usual_der = lru_cache(maxsize=_CACHE_ENTRIES)(parse_der)


def _outer_element(data: bytes) -> der.Element:
    """The outermost sequence of the request."""
    if not data:
        raise MalformedRequest("asn1: syntax error: sequence truncated")
    if len(data) > MAX_DER:
        raise MalformedRequest(f"a certificate request has at most {MAX_DER} bytes")
    if data[0] != der.SEQUENCE:
        raise MalformedRequest(
            f"asn1: structure error: tags don't match (16 vs {data[0] & 0x1F}) certificateRequest"
        )
    try:
        outer = der.element(data, 0, len(data))
    except der.NotDer as error:
        raise MalformedRequest(f"asn1: syntax error: {error}") from None
    if outer.stop != len(data):
        raise MalformedRequest("asn1: syntax error: trailing data")
    return outer


def _read(data: bytes, outer: der.Element) -> SigningRequest:
    info, name = _info_elements(data, outer)
    key_info = der.element(data, name.stop, info.stop, der.SEQUENCE)
    _refuse_bare_rsa(data, key_info)
    subject = read_subject(data, name)
    extensions = _requested_extensions(data, key_info.stop, info.stop)
    names = _AlternativeNames()
    if (value := extensions.get(SUBJECT_ALTERNATIVE_NAME)) is not None:
        names.read(value)
    public = _prove_key(data)
    key = data[key_info.begin : key_info.stop]
    return SigningRequest(
        subject=subject,
        certified_subject=subject.permitted(),
        public_key=public,
        der=data,
        spki=key if algorithm_by_prefix(key) else spki(public),
        dns_names=tuple(names.dns),
        email_addresses=tuple(names.email),
        ip_addresses=tuple(names.ip),
        uris=tuple(names.uri),
        other_names=names.others,
        extension_values=extensions,
    )


def _info_elements(data: bytes, outer: der.Element) -> tuple[der.Element, der.Element]:
    """The signed part of a request, and the subject in it."""
    info = der.element(data, outer.start, outer.stop, der.SEQUENCE)
    version = der.element(data, info.start, info.stop, der.INTEGER)
    return info, der.element(data, version.stop, info.stop, der.SEQUENCE)


def _refuse_bare_rsa(data: bytes, key_info: der.Element) -> None:
    """Refuse RSA keys without NULL parameters (RFC 3279, 2.3.1); the library accepts them."""
    algorithm = der.element(data, key_info.start, key_info.stop, der.SEQUENCE)
    said = data[algorithm.start : algorithm.stop]
    if said.startswith(_RSA_KEY) and said != _RSA_KEY + _NULL:
        raise MalformedRequest("x509: RSA key missing NULL parameters")


def _requested_extensions(data: bytes, begin: int, limit: int) -> dict[str, bytes]:
    extensions: dict[str, bytes] = {}
    for extension in _extension_elements(data, begin, limit):
        oid = der.element(data, extension.start, extension.stop, der.OID)
        value = der.element(data, oid.stop, extension.stop)
        if value.tag == der.BOOLEAN:
            value = der.element(data, value.stop, extension.stop)
        if value.tag != der.OCTET_STRING or value.stop != extension.stop:
            raise MalformedRequest("x509: malformed extension value field")
        name = der.decode_oid(data[oid.start : oid.stop])
        if name in extensions:
            raise MalformedRequest(
                "x509: certificate request contains duplicate requested extensions"
            )
        extensions[name] = data[value.start : value.stop]
    return extensions


def _extension_elements(data: bytes, begin: int, limit: int) -> Iterator[der.Element]:
    if begin == limit:
        return
    attributes = der.element(data, begin, limit, _ATTRIBUTES)
    count = itertools.count()
    for attribute in _few_children(data, attributes, count):
        oid = der.element(data, attribute.start, attribute.stop, der.OID)
        if data[oid.start : oid.stop] == _EXTENSION_REQUEST:
            values = der.element(data, oid.stop, attribute.stop, der.SET)
            for extensions in _few_children(data, values, count):
                yield from _few_children(data, extensions, count)


def _few_children(data: bytes, parent: der.Element, count: Iterator[int]) -> Iterator[der.Element]:
    """The parts of an element, while the shared count is below the limit."""
    for child in der.children(data, parent.start, parent.stop):
        if next(count) == MOST_REQUESTED:
            raise MalformedRequest(
                f"x509: a certificate request has at most {MOST_REQUESTED} attributes and "
                "requested extensions"
            )
        yield child


class _AlternativeNames:
    """The four types of alternative names that are copied, in the order of the request."""

    def __init__(self) -> None:
        self.dns: list[str] = []
        self.email: list[str] = []
        self.ip: list[IPAddress] = []
        self.uri: list[str] = []
        self.others = 0

    def read(self, value: bytes) -> None:
        """Parse the value of the extension (RFC 5280 section 4.2.1.6)."""
        outer = der.element(value, 0, len(value), der.SEQUENCE)
        if outer.stop != len(value):
            raise der.NotDer("trailing data")
        for count, name in enumerate(der.children(value, outer.start, outer.stop)):
            if count == MAX_NAMES:
                raise MalformedRequest(f"more than {MAX_NAMES} subjectAltNames")
            self._add(name.tag, value[name.start : name.stop])

    def _add(self, tag: int, content: bytes) -> None:
        if tag == _DNS:
            self.dns.append(_ascii(content, "dNSName"))
        elif tag == _EMAIL:
            self.email.append(_ascii(content, "rfc822Name"))
        elif tag == _URI:
            self.uri.append(_uri(content))
        elif tag == _IP:
            if len(content) not in _IP_SIZES:
                raise MalformedRequest(f"x509: cannot parse IP address of length {len(content)}")
            self.ip.append(ipaddress.ip_address(content))
        else:
            self.others += 1


def _ascii(content: bytes, kind: str) -> str:
    try:
        return content.decode("ascii")
    except UnicodeDecodeError:
        raise MalformedRequest(f"x509: SAN {kind} is malformed") from None


def _uri(content: bytes) -> str:
    text = _ascii(content, "uniformResourceIdentifier")
    if not text.isprintable() or not _is_uri(text):
        raise MalformedRequest(f"x509: cannot parse URI {json.dumps(text[:256])}")
    return text


def _is_uri(text: str) -> bool:
    """Whether a text parses as a URI; the query is not checked."""
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - read for its refusal
    except ValueError:
        return False
    escaped = (parts.netloc, parts.path, parts.fragment)
    return not _NOT_IN_HOST.search(parts.netloc) and not any(map(_BAD_ESCAPE.search, escaped))


def _prove_key(data: bytes) -> CertifiedKey:
    try:
        request = x509.load_der_x509_csr(data)
        public = _public_key(request)
        _verify(request, public)
    except BaseException as problem:  # as `library_errors_as`, whose calls are measurable here
        if is_library_error(problem):
            raise MalformedRequest(_UNREADABLE) from None
        raise
    return public


def _public_key(request: x509.CertificateSigningRequest) -> CertifiedKey:
    try:
        public = request.public_key()
    except UnsupportedAlgorithm:
        raise MalformedRequest("x509: unsupported elliptic curve") from None
    except (ValueError, Warning):
        raise MalformedRequest("x509: invalid public key") from None
    if isinstance(public, ec.EllipticCurvePublicKey):
        if public.curve.name not in _CURVES:
            raise MalformedRequest("x509: unsupported elliptic curve")
    elif isinstance(public, rsa.RSAPublicKey):
        _refuse_unusable_rsa(public)
    elif not isinstance(public, ed25519.Ed25519PublicKey | mldsa.MLDSA65PublicKey):
        raise MalformedRequest(_NO_ALGORITHM)
    return public


def _refuse_unusable_rsa(public: rsa.RSAPublicKey) -> None:
    if public.key_size < _MIN_RSA_BITS:
        raise MalformedRequest(
            f"crypto/rsa: {public.key_size}-bit keys are insecure "
            "(see https://go.dev/pkg/crypto/rsa#hdr-Minimum_key_size)"
        )
    if public.key_size > MAX_RSA_BITS:
        # Verification time grows with the cube of the size: a cheap attack.
        raise MalformedRequest(f"RSA keys of more than {MAX_RSA_BITS} bits are not accepted")
    exponent = public.public_numbers().e
    if exponent % 2 == 0 or exponent.bit_length() > 64:  # noqa: PLR2004 - as OpenSSL for large keys
        raise MalformedRequest("x509: RSA public exponent is not acceptable")


def _verify(request: x509.CertificateSigningRequest, public: CertifiedKey) -> None:
    try:
        valid = _is_signed(request, public)
    except (ValueError, TypeError, Warning, UnsupportedAlgorithm):
        raise MalformedRequest(_NO_ALGORITHM) from None
    if valid:
        return
    sort = _sort(public)
    if sort == _RSA:
        raise MalformedRequest("crypto/rsa: verification error")
    raise MalformedRequest(f"x509: {sort} verification failure")


def _is_signed(request: x509.CertificateSigningRequest, public: CertifiedKey) -> bool:
    """Verify the signature, with the parsed key where its use is simple.

    The library would parse the key and set it up again: a seventh of the work.
    """
    algorithm = request.signature_algorithm_oid.dotted_string
    usual = _ECDSA_SIGNATURES.get(algorithm)
    if usual is None or not isinstance(public, ec.EllipticCurvePublicKey):
        _refuse_unfit_algorithm(request, public, algorithm)
        return request.is_signature_valid
    try:
        public.verify(request.signature, request.tbs_certrequest_bytes, usual)
    except InvalidSignature:
        return False
    return True


def _refuse_unfit_algorithm(
    request: x509.CertificateSigningRequest, public: CertifiedKey, algorithm: str
) -> None:
    if isinstance(request.signature_hash_algorithm, hashes.MD5):
        raise MalformedRequest("x509: cannot verify signature: insecure algorithm MD5-RSA")
    sort = _sort(public)
    needed = _SIGNED_WITH.get(algorithm, sort)
    if needed != sort:
        raise MalformedRequest(
            f"x509: signature algorithm specifies an {needed} public key, "
            f"but have public key of type {_KEY_TYPES[sort]}"
        )


def _sort(public: CertifiedKey) -> str:
    if isinstance(public, rsa.RSAPublicKey):
        return _RSA
    if isinstance(public, ec.EllipticCurvePublicKey):
        return _ECDSA
    return _ED25519 if isinstance(public, ed25519.Ed25519PublicKey) else ML_DSA_65
