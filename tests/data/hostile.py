"""Hostile requests, certificates and bundles: what an attacker would send to be signed or trusted.

Start with `corpus()`. Each sample has a name that says what is odd about it, and a kind: a
`request` (for spec.request), a `certificate` (for status.certificate) or a `bundle` (for
spec.trustBundle). The server must refuse each with a 4xx, or accept it and then stay
within its own rules; nothing may raise, hang, or answer at many times the size.

Everything is written byte by byte (nothing that a library refuses to write is out of reach) and is
the same in every run: keys come from small numbers, signatures are deterministic (RFC 6979).
"""

import functools
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, x25519

from orchid.kernel.credentials.keys import spki
from orchid.kernel.credentials.x509 import der, names, pem
from tests.unit.kernel.credentials.samples import (
    ED25519,
    P256,
    STRING_TYPES,
    attribute,
    extension,
    name,
    rsa_key,
    utf8,
)

REQUEST, CERTIFICATE, BUNDLE = "request", "certificate", "bundle"
MIB = 1 << 20

MASTERS = "system:masters"
NODE = name(
    (utf8(names.ORGANIZATION, "system:nodes"),), (utf8(names.COMMON_NAME, "system:node:n1"),)
)

SAN, BASIC_CONSTRAINTS, KEY_USAGE = "2.5.29.17", "2.5.29.19", "2.5.29.15"
AUTHORITY = extension(
    BASIC_CONSTRAINTS, der.encode(der.SEQUENCE, der.encode(der.BOOLEAN, b"\xff")), critical=True
)
NULL = b"\x05\x00"
PRIME256V1 = der.encode_oid("1.2.840.10045.3.1.7")
ECDSA_SHA256 = der.encode(der.SEQUENCE, der.encode_oid("1.2.840.10045.4.3.2"))
UTC_TIMES = (b"\x17\x0d260101000000Z", b"\x17\x0d360101000000Z")


class Sample(NamedTuple):
    """One thing to send, and what it is to be taken for."""

    name: str
    kind: str
    data: bytes


def corpus() -> Iterator[Sample]:
    """Give every sample, in the same order in every run."""
    yield from _built()


@functools.cache
def _built() -> tuple[Sample, ...]:
    """Built once: signing costs a second or two."""
    made: list[Sample] = []
    for kind, makers in (
        (REQUEST, (_subjects, _alternative_names, _extensions, _keys, _signatures, _structures)),
        (CERTIFICATE, (_certificates,)),
        (BUNDLE, (_bundles,)),
    ):
        for maker in makers:
            made += (Sample(f"{kind}-{label}", kind, data) for label, data in maker())
        made += (Sample(f"{kind}-pem-{label}", kind, data) for label, data in _texts(kind))
        made += (Sample(f"{kind}-{label}", kind, data) for label, data in _damaged(kind))
    return tuple(made)


# --- writing --------------------------------------------------------------------------------------

Made = Iterator[tuple[str, bytes]]


def request_der(
    subject: bytes = NODE,
    *extensions: bytes,
    key_info: bytes = b"",
    attributes: bytes | None = None,
    version: bytes = b"\x02\x01\x00",
    algorithm: bytes = ECDSA_SHA256,
    signature: bytes | None = None,
) -> bytes:
    """Write a request from raw parts, signed by the P-256 key unless a signature is given."""
    if attributes is None:
        attributes = b""
        if extensions:
            attributes = extension_request(der.encode(der.SEQUENCE, *extensions))
    body = der.encode(
        der.SEQUENCE,
        version,
        subject,
        key_info or spki(P256.public_key()),
        der.encode(0xA0, attributes) if attributes != NULL else b"",
    )
    if signature is None:
        signature = der.encode_bits(_sign(body))
    return der.encode(der.SEQUENCE, body, algorithm, signature)


def extension_request(value: bytes) -> bytes:
    """Write the attribute in which a request asks for extensions."""
    oid = der.encode_oid("1.2.840.113549.1.9.14")
    return der.encode(der.SEQUENCE, oid, der.encode(der.SET, value))


def certificate_der(
    *extensions: bytes,
    version: bytes = b"\xa0\x03\x02\x01\x02",
    serial: bytes = b"\x02\x01\x01",
    times: tuple[bytes, bytes] = UTC_TIMES,
    subject: bytes = NODE,
    key_info: bytes = b"",
    algorithm: bytes = ECDSA_SHA256,
    issuer: bytes = NODE,
) -> bytes:
    """Write a certificate from raw parts; its signature is not verified when it is stored."""
    body = der.encode(
        der.SEQUENCE,
        version,
        serial,
        algorithm,
        issuer,
        der.encode(der.SEQUENCE, *times),
        subject,
        key_info or spki(P256.public_key()),
        der.encode(0xA3, der.encode(der.SEQUENCE, *extensions)) if extensions else b"",
    )
    signature = der.encode(der.SEQUENCE, b"\x02\x01\x01", b"\x02\x01\x01")
    return der.encode(der.SEQUENCE, body, ECDSA_SHA256, der.encode_bits(signature))


def _sign(body: bytes) -> bytes:
    return P256.sign(body, ec.ECDSA(hashes.SHA256(), deterministic_signing=True))


def _request(*args: bytes, **parts: Any) -> bytes:
    return pem.encode(pem.CERTIFICATE_REQUEST, request_der(*args, **parts))


def _certificate(*args: bytes, **parts: Any) -> bytes:
    return pem.encode(pem.CERTIFICATE, certificate_der(*args, **parts))


def _san(*entries: bytes) -> bytes:
    return extension(SAN, der.encode(der.SEQUENCE, *entries))


# --- requests -------------------------------------------------------------------------------------


def _subjects() -> Made:
    user = utf8(names.COMMON_NAME, "eve")
    harmless = utf8(names.ORGANIZATION, "dev")
    for kind, (tag, codec) in STRING_TYPES.items():
        for spelling, text in {"plain": MASTERS, "nul": MASTERS + "\x00"}.items():
            group = attribute(names.ORGANIZATION, tag, text.encode(codec))
            yield f"masters-{kind}-{spelling}", _request(name((group,), (user,)))
            yield f"masters-{kind}-{spelling}-multi", _request(name((harmless, group, user)))
    for label, text in {
        "upper": "SYSTEM:MASTERS",
        "wide": "\uff53ystem:masters",
        "zero-width": "system:\u200bmasters",
        "soft-hyphen": "system:mas\u00adters",
        "cyrillic": "\u0455ystem:masters",
        "blanks": " system:masters ",
        "line": "system:masters\n",
    }.items():
        yield f"masters-{label}", _request(name((utf8(names.ORGANIZATION, text),), (user,)))
    for label, text in {
        "empty": "",
        "nul": "system:node:a\x00b",
        "lines": "system:node:a\r\nX-Remote-User: admin",
        "right-to-left": "system:node:\u202egnp.n1",
        "slash": "system:node:../../secrets",
        "escape": "\x1b[2Jsystem:node:n1",
        "not-a-character": "system:node:\uffff",
        "emoji": "system:node:\U0001f600",
        "long": "x" * 60_000,
        "too-long": "x" * 200_000,
    }.items():
        yield f"user-{label}", _request(name((utf8(names.COMMON_NAME, text),)))
    odd_values = {
        "integer": b"\x02\x01\x05",
        "boolean": b"\x01\x01\xff",
        "null": NULL,
        "sequence": der.encode(der.SEQUENCE, b"\x0c\x01a"),
        "bit-string": b"\x03\x02\x00a",
        "bad-utf8": b"\x0c\x02\xff\xfe",
        "surrogate-utf8": b"\x0c\x03\xed\xa0\x80",
        "overlong-utf8": b"\x0c\x02\xc1\xa1",
        "half-bmp": b"\x1e\x03\x00a\x00",
        "surrogate-bmp": b"\x1e\x02\xd8\x00",
        "beyond-universal": b"\x1c\x04\x00\x11\x00\x00",
        "eight-bit-printable": b"\x13\x01\xe9",
        "general-string": b"\x1b\x01a",
        "constructed-utf8": b"\x2c\x03\x0c\x01a",
        "high-tag": b"\x1f\x81\x01\x01a",
    }
    for label, value in odd_values.items():
        odd = der.encode(der.SEQUENCE, der.encode_oid(names.COMMON_NAME), value)
        yield f"user-as-{label}", _request(name((odd,)))
    yield "subject-empty", _request(name())
    yield "subject-empty-set", _request(name(()))
    yield "subject-set-of-200", _request(name((harmless,) * 200))
    yield "subject-users-200", _request(name(*(((user,),) * 200)))
    yield (
        "groups-1000",
        _request(name(*((utf8(names.ORGANIZATION, f"g{i}"),) for i in range(1000)))),
    )
    yield (
        "groups-5000",
        _request(name(*((utf8(names.ORGANIZATION, f"g{i}"),) for i in range(5000)))),
    )
    yield "subject-not-a-name", _request(der.encode(der.SEQUENCE, b"\x02\x01\x01"))
    yield "subject-string", _request(b"\x0c\x03abc")
    huge_oid = der.encode(der.OID, b"\x55" + b"\xff" * 400 + b"\x7f")
    yield "subject-huge-oid", _request(name((der.encode(der.SEQUENCE, huge_oid, b"\x0c\x01a"),)))
    open_oid = der.encode(der.OID, b"\x55\x84")
    yield "subject-open-oid", _request(name((der.encode(der.SEQUENCE, open_oid, b"\x0c\x01a"),)))
    no_oid = der.encode(der.OID)
    yield "subject-no-oid", _request(name((der.encode(der.SEQUENCE, no_oid, b"\x0c\x01a"),)))


def _alternative_names() -> Made:
    for label, host in {
        "wildcard": b"*.example.com",
        "bare-wildcard": b"*",
        "two-wildcards": b"*.*.example.com",
        "inner-wildcard": b"a*b.example.com",
        "idn": b"xn--mnchen-3ya.example",
        "bad-idn": b"xn--\x2d\x2d.example",
        "eight-bit": "münchen.example".encode(),
        "nul": b"a.example\x00.evil",
        "line": b"a.example\n.evil",
        "blank": b"a b.example",
        "empty": b"",
        "dot": b".",
        "leading-dot": b".example.com",
        "trailing-dot": b"example.com.",
        "underscore": b"_a.example.com",
        "address": b"10.0.0.1",
        "address6": b"::1",
        "long-label": b"a" * 64 + b".example",
        "long": b".".join([b"a" * 60] * 5),
        "very-long": b"a." * 20_000,
        "upper": b"EXAMPLE.COM",
        "url": b"https://example.com/",
    }.items():
        yield f"dns-{label}", _request(NODE, _san(der.encode(0x82, host)))
    for size in (0, 1, 3, 5, 8, 15, 17, 32):
        yield f"ip-of-{size}", _request(NODE, _san(der.encode(0x87, b"\x01" * size)))
    for label, uri in {
        "script": b"javascript:alert(1)",
        "bad-port": b"https://example.com:port/",
        "open-bracket": b"https://[::1/",
        "nul": b"spiffe://a/\x00",
        "eight-bit": b"spiffe://\xff/",
        "empty": b"",
        "long": b"spiffe://a/" + b"b" * 50_000,
    }.items():
        yield f"uri-{label}", _request(NODE, _san(der.encode(0x86, uri)))
    for label, mail in {"two-ats": b"a@b@c", "eight-bit": b"\xff@b", "nul": b"a@b\x00"}.items():
        yield f"email-{label}", _request(NODE, _san(der.encode(0x81, mail)))
    other = der.encode_oid("1.3.6.1.4.1.311.20.2.3")
    for label, entry in {
        "other": der.encode(0xA0, other, der.encode(0xA0, b"\x0c\x05admin")),
        "x400": der.encode(0xA3, b"\x30\x00"),
        "directory": der.encode(0xA4, NODE),
        "edi": der.encode(0xA5, b"\x81\x01a"),
        "registered": der.encode(0x88, b"\x2a\x03"),
        "unknown": der.encode(0x89, b"a"),
        "universal": b"\x0c\x01a",
        "constructed-dns": der.encode(0xA2, b"\x16\x01a"),
    }.items():
        yield f"name-{label}", _request(NODE, _san(entry))
    yield "names-none", _request(NODE, _san())
    yield "names-1000", _request(NODE, _san(*(der.encode(0x82, b"h%d" % i) for i in range(1000))))
    yield "names-10000", _request(NODE, _san(b"\x82\x00" * 10_000))
    yield "names-trailing", _request(NODE, extension(SAN, b"\x30\x03\x82\x01a\x00"))
    yield "names-cut", _request(NODE, extension(SAN, b"\x30\x05\x82\x03a"))
    yield "names-not-a-list", _request(NODE, extension(SAN, b"\x0c\x01a"))
    yield "names-twice", _request(NODE, _san(b"\x82\x01a"), _san(b"\x82\x01b"))


def _extensions() -> Made:
    number = der.encode(der.INTEGER, b"\x7f" * 2000)
    true = der.encode(der.BOOLEAN, b"\xff")
    for label, value in {
        "true": der.encode(der.SEQUENCE, true),
        "giant-path-length": der.encode(der.SEQUENCE, true, number),
        "negative-path-length": der.encode(der.SEQUENCE, true, b"\x02\x01\xff"),
        "loose-boolean": der.encode(der.SEQUENCE, b"\x01\x01\x01"),
        "garbage": b"\xff\xff",
        "empty": b"",
    }.items():
        yield f"ca-{label}", _request(NODE, extension(BASIC_CONSTRAINTS, value, critical=True))
    yield "ca-twice", _request(NODE, AUTHORITY, AUTHORITY)
    yield "usage-cert-sign", _request(NODE, extension(KEY_USAGE, b"\x03\x02\x01\x06"))
    yield "usage-bad-bits", _request(NODE, extension(KEY_USAGE, b"\x03\x02\x09\xff"))
    any_usage = der.encode(der.SEQUENCE, der.encode_oid("2.5.29.37.0"))
    yield "usage-any", _request(NODE, extension("2.5.29.37", any_usage))
    yield "name-constraints", _request(NODE, extension("2.5.29.30", b"\x30\x00"))
    yield "unknown-critical", _request(NODE, extension("1.2.3.4", NULL, critical=True))
    own_authority = extension("2.5.29.35", b"\x30\x06\x80\x04evil")
    yield "authority-key-id", _request(NODE, own_authority)
    yield "poison", _request(NODE, extension("1.3.6.1.4.1.11129.2.4.3", NULL, critical=True))
    many = (extension(f"1.2.3.{i}", NULL) for i in range(1000))
    yield "thousand", _request(NODE, *many)
    yield "giant", _request(NODE, extension("1.2.3.4", b"\x00" * 40_000))
    yield "too-giant", _request(NODE, extension("1.2.3.4", b"\x00" * 300_000))
    listed = der.encode(der.SEQUENCE, AUTHORITY)
    both = extension_request(listed) + extension_request(listed)
    yield "asked-twice", _request(NODE, attributes=both)
    two_values = der.encode(der.SEQUENCE, *_pair("1.2.840.113549.1.9.14", listed + listed))
    yield "two-lists", _request(NODE, attributes=two_values)
    yield "no-list", _request(NODE, attributes=extension_request(b""))
    yield "list-of-numbers", _request(NODE, attributes=extension_request(b"\x30\x03\x02\x01\x01"))
    password = der.encode(der.SEQUENCE, *_pair("1.2.840.113549.1.9.7", b"\x0c\x06secret"))
    yield "challenge-password", _request(NODE, attributes=password)
    yield "attributes-garbage", _request(NODE, attributes=b"\xff\xff\xff")
    yield "attributes-missing", _request(NODE, attributes=NULL)


def _pair(oid: str, values: bytes) -> tuple[bytes, bytes]:
    return der.encode_oid(oid), der.encode(der.SET, values)


def _keys() -> Made:
    """Keys that are weak, broken, or of no use for signing; nobody could sign for most of them."""
    for label, modulus, exponent in (
        ("512", 2**511 + 111, 65537),
        ("1023", 2**1022 + 111, 65537),
        ("16384", 2**16383 + 111, 65537),
        ("even-modulus", 2**2047, 65537),
        ("zero-modulus", 0, 65537),
        ("one-modulus", 1, 65537),
        ("exponent-0", 2**2047 + 111, 0),
        ("exponent-1", 2**2047 + 111, 1),
        ("exponent-2", 2**2047 + 111, 2),
        ("giant-exponent", 2**2047 + 111, 2**2040 + 1),
        ("exponent-above-modulus", 2**2047 + 111, 2**2048 + 1),
    ):
        yield f"rsa-{label}", _request(key_info=_rsa_info(modulus, exponent))
    negative = der.encode(der.SEQUENCE, b"\x02\x02\xff\x01", b"\x02\x03\x01\x00\x01")
    yield "rsa-negative", _request(key_info=_key_info("1.2.840.113549.1.1.1", NULL, negative))
    weak = rsa_key("rsa-1024-pkcs8.pem")
    rsa_sha256 = der.encode(der.SEQUENCE, der.encode_oid("1.2.840.113549.1.1.11"), NULL)
    body = _body_of(request_der(key_info=spki(weak.public_key())))
    signature = weak.sign(body, padding.PKCS1v15(), hashes.SHA256())
    whole = der.encode(der.SEQUENCE, body, rsa_sha256, der.encode_bits(signature))
    yield "rsa-1024-signed", pem.encode(pem.CERTIFICATE_REQUEST, whole)
    no_null = _rsa_info(2**2047 + 111, 65537, parameters=b"")
    yield "rsa-no-null", _request(key_info=no_null)
    for oid, label in (
        ("1.3.132.0.10", "secp256k1"),
        ("1.3.132.0.33", "secp224r1"),
        ("1.2.840.10045.3.1.1", "prime192v1"),
        ("1.3.36.3.3.2.8.1.1.7", "brainpool"),
        ("1.2.3.4", "unknown-curve"),
    ):
        point = b"\x04" + b"\x01" * 64
        yield f"ec-{label}", _request(key_info=_ec_info(der.encode_oid(oid), point))
    for label, point in {
        "infinity": b"\x00",
        "empty": b"",
        "not-on-curve": b"\x04" + b"\x01" * 64,
        "zero": b"\x04" + b"\x00" * 64,
        "short": b"\x04" + b"\x01" * 31,
        "compressed": b"\x02" + b"\x01" * 32,
        "hybrid": b"\x06" + b"\x01" * 64,
    }.items():
        yield f"ec-point-{label}", _request(key_info=_ec_info(PRIME256V1, point))
    compressed = P256.public_key().public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint
    )
    yield "ec-honest-compressed", _request(key_info=_ec_info(PRIME256V1, compressed))
    explicit = der.encode(der.SEQUENCE, b"\x02\x01\x01", b"\x30\x00")
    yield "ec-explicit-curve", _request(key_info=_ec_info(explicit, b"\x04" + b"\x01" * 64))
    exchange = x25519.X25519PrivateKey.from_private_bytes(b"\x05" * 32).public_key()
    yield (
        "x25519",
        _request(
            key_info=exchange.public_bytes(
                serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        ),
    )
    yield "ed25519-other-signature", _request(key_info=spki(ED25519.public_key()))
    yield "ed25519-short", _request(key_info=_key_info("1.3.101.112", b"", b"\x01" * 31))
    yield "ed448", _request(key_info=_key_info("1.3.101.113", b"", b"\x01" * 57))
    numbers = der.encode(der.SEQUENCE, *(der.encode_integer(n) for n in (23, 11, 4)))
    dsa = _key_info("1.2.840.10040.4.1", numbers, der.encode_integer(8))
    yield "dsa", _request(key_info=dsa)
    yield "unknown-key", _request(key_info=_key_info("1.2.3.4.5", b"", b"key"))
    yield (
        "post-quantum",
        _request(key_info=_key_info("2.16.840.1.101.3.4.3.17", b"", b"\x01" * 1312)),
    )
    yield "key-not-der", _request(key_info=der.encode(der.SEQUENCE, b"\xff\xff"))


def _rsa_info(modulus: int, exponent: int, parameters: bytes = NULL) -> bytes:
    numbers = der.encode(der.SEQUENCE, der.encode_integer(modulus), der.encode_integer(exponent))
    return _key_info("1.2.840.113549.1.1.1", parameters, numbers)


def _ec_info(parameters: bytes, point: bytes) -> bytes:
    return _key_info("1.2.840.10045.2.1", parameters, point)


def _key_info(oid: str, parameters: bytes, key: bytes) -> bytes:
    algorithm = der.encode(der.SEQUENCE, der.encode_oid(oid), parameters)
    return der.encode(der.SEQUENCE, algorithm, der.encode_bits(key))


def _body_of(request: bytes) -> bytes:
    outer = der.element(request, 0, len(request))
    body = der.element(request, outer.start, outer.stop)
    return request[body.begin : body.stop]


def _signatures() -> Made:
    zeros = der.encode(der.SEQUENCE, b"\x02\x01\x00", b"\x02\x01\x00")
    giants = der.encode(der.SEQUENCE, *(der.encode(der.INTEGER, b"\x7f" * 5000),) * 2)
    negatives = der.encode(der.SEQUENCE, b"\x02\x01\xff", b"\x02\x01\xff")
    good = _sign(_body_of(request_der()))
    for label, signature in {
        "empty": der.encode_bits(b""),
        "no-octets": der.encode(der.BIT_STRING),
        "zeros": der.encode_bits(zeros),
        "giants": der.encode_bits(giants),
        "negatives": der.encode_bits(negatives),
        "unused-bits": der.encode_bits(good, 7),
        "ten-unused-bits": der.encode_bits(good, 10),
        "trailing": der.encode_bits(good + b"\x00"),
        "not-bits": der.encode(der.OCTET_STRING, good),
        "of-another": der.encode_bits(_sign(b"another body")),
    }.items():
        yield f"signature-{label}", _request(signature=signature)
    for label, oid in {
        "md5-rsa": "1.2.840.113549.1.1.4",
        "md2-rsa": "1.2.840.113549.1.1.2",
        "sha1-ecdsa": "1.2.840.10045.4.1",
        "sha512-ecdsa": "1.2.840.10045.4.3.4",
        "rsa": "1.2.840.113549.1.1.11",
        "pss": "1.2.840.113549.1.1.10",
        "ed25519": "1.3.101.112",
        "dsa": "2.16.840.1.101.3.4.3.2",
        "unknown": "1.2.3.4",
    }.items():
        algorithm = der.encode(der.SEQUENCE, der.encode_oid(oid))
        yield f"algorithm-{label}", _request(algorithm=algorithm)
    yield (
        "algorithm-with-parameters",
        _request(algorithm=der.encode(der.SEQUENCE, der.encode_oid("1.2.840.10045.4.3.2"), NULL)),
    )
    yield "algorithm-missing", _request(algorithm=b"")


def _structures() -> Made:
    for label, version in {
        "one": b"\x02\x01\x01",
        "negative": b"\x02\x01\xff",
        "giant": der.encode(der.INTEGER, b"\x7f" * 5000),
        "missing": b"",
        "text": b"\x0c\x01v",
        "padded": b"\x02\x02\x00\x00",
    }.items():
        yield f"version-{label}", _request(version=version)


# --- certificates ---------------------------------------------------------------------------------


def _certificates() -> Made:
    good = certificate_der()
    yield "concatenated", pem.encode(pem.CERTIFICATE, good + certificate_der(AUTHORITY))
    yield "concatenated-thousand", pem.encode(pem.CERTIFICATE, good * 1000)
    yield "concatenated-garbage", pem.encode(pem.CERTIFICATE, good + b"\xff")
    yield from _odd_certificates()
    yield "thousand-blocks", pem.encode(pem.CERTIFICATE, good) * 1000
    yield "five-thousand-blocks", pem.encode(pem.CERTIFICATE, b"") * 5000
    yield "then-key", pem.encode(pem.CERTIFICATE, good) + pem.encode("PRIVATE KEY", b"key")
    yield "giant", _certificate(extension("1.2.3.4", b"\x00" * 300_000))


def _odd_certificates() -> Made:
    for label, serial in {
        "negative": b"\x02\x01\xff",
        "zero": b"\x02\x01\x00",
        "giant": der.encode(der.INTEGER, b"\x7f" * 10_000),
        "empty": b"\x02\x00",
        "padded": b"\x02\x02\x00\x01",
        "text": b"\x0c\x011",
    }.items():
        yield f"serial-{label}", _certificate(AUTHORITY, serial=serial)
    before, after = UTC_TIMES
    for label, times in {
        "reversed": (after, before),
        "month-13": (b"\x17\x0d261301000000Z", after),
        "no-zone": (b"\x17\x0c260101000000", after),
        "no-seconds": (b"\x17\x0b2601010000Z", after),
        "year-0": (b"\x18\x0f00000101000000Z", after),
        "year-9999": (before, b"\x18\x0f99991231235959Z"),
        "fraction": (before, b"\x18\x1120360101000000.5Z"),
        "offset": (b"\x17\x11260101000000+0100", after),
        "leap-second": (before, b"\x17\x0d351231235960Z"),
        "one-only": (before, b""),
        "number": (b"\x02\x01\x01", b"\x02\x01\x02"),
    }.items():
        yield f"times-{label}", pem.encode(pem.CERTIFICATE, certificate_der(AUTHORITY, times=times))
    for label, version in {
        "one": b"",
        "four": b"\xa0\x03\x02\x01\x03",
        "giant": der.encode(0xA0, der.encode(der.INTEGER, b"\x7f" * 2000)),
        "negative": b"\xa0\x03\x02\x01\xff",
    }.items():
        yield f"version-{label}", _certificate(AUTHORITY, version=version)
    for label, constraints in {
        "false": b"\x30\x00",
        "explicit-false": b"\x30\x03\x01\x01\x00",
        "loose-true": b"\x30\x03\x01\x01\x01",
        "negative-path": b"\x30\x06\x01\x01\xff\x02\x01\xff",
        "giant-path": der.encode(
            der.SEQUENCE, b"\x01\x01\xff", der.encode(der.INTEGER, b"\x7f" * 500)
        ),
        "path-without-ca": b"\x30\x03\x02\x01\x00",
        "trailing": b"\x30\x03\x01\x01\xff\x00",
        "garbage": b"\xff",
    }.items():
        yield f"constraints-{label}", _certificate(extension(BASIC_CONSTRAINTS, constraints))
    yield "constraints-none", _certificate()
    yield "constraints-twice", _certificate(AUTHORITY, AUTHORITY)
    yield (
        "other-algorithm",
        _certificate(
            AUTHORITY,
            algorithm=der.encode(der.SEQUENCE, der.encode_oid("1.2.840.113549.1.1.4"), NULL),
        ),
    )
    yield "empty-names", _certificate(AUTHORITY, subject=name(), issuer=name())
    yield "bad-subject", _certificate(AUTHORITY, subject=der.encode(der.SEQUENCE, b"\x02\x01\x01"))
    yield "nul-subject", _certificate(AUTHORITY, subject=name((utf8(names.COMMON_NAME, "a\x00b"),)))
    yield (
        "bad-utf8-subject",
        _certificate(AUTHORITY, subject=name((attribute(names.COMMON_NAME, 0x0C, b"\xff"),))),
    )
    yield "bad-names", _certificate(AUTHORITY, _san(der.encode(0x87, b"\x01")))
    yield "eight-bit-host", _certificate(AUTHORITY, _san(der.encode(0x82, b"\xff")))
    yield (
        "unknown-curve",
        _certificate(
            AUTHORITY, key_info=_ec_info(der.encode_oid("1.2.3.4"), b"\x04" + b"\x01" * 64)
        ),
    )
    yield "zero-modulus", _certificate(AUTHORITY, key_info=_rsa_info(0, 0))
    yield "unknown-critical", _certificate(AUTHORITY, extension("1.2.3.4", NULL, critical=True))
    yield (
        "thousand-extensions",
        _certificate(AUTHORITY, *(extension(f"1.2.3.{i}", NULL) for i in range(1000))),
    )


# --- bundles --------------------------------------------------------------------------------------


def _bundles() -> Made:
    anchor = _certificate(AUTHORITY)
    yield from _odd_certificates()
    yield "leaf-among-anchors", anchor + _certificate()
    yield "same-twice", anchor * 2
    yield "same-in-other-lines", anchor + anchor.replace(b"\n", b"\r\n")
    yield "same-thousand-times", anchor * 1000
    yield "headers", anchor.replace(b"-----\n", b"-----\nProc-Type: 4,ENCRYPTED\n\n", 1)
    yield "private-key", anchor + pem.encode("PRIVATE KEY", b"key")
    yield (
        "two-in-a-block",
        pem.encode(
            pem.CERTIFICATE, certificate_der(AUTHORITY) + certificate_der(AUTHORITY, subject=name())
        ),
    )
    yield "five-thousand-empty", pem.encode(pem.CERTIFICATE, b"") * 5000
    yield "four-thousand-labels", b"".join(pem.encode(f"X{i}", b"") for i in range(4000))
    yield "full-of-anchors", _many_anchors(MIB)
    yield "too-full", _many_anchors(MIB) + anchor * 4
    yield "text-between", anchor + b"x" * 100_000 + b"\n" + _certificate(AUTHORITY, subject=name())


def _many_anchors(size: int) -> bytes:
    made, used = [], 0
    for number in range(1, 10_000):
        block = _certificate(AUTHORITY, serial=der.encode_integer(number))
        if used + len(block) > size:
            break
        made.append(block)
        used += len(block)
    return b"".join(made)


# --- text that is almost PEM, and bytes that are almost right -------------------------------------


def _texts(kind: str) -> Made:
    label = pem.CERTIFICATE_REQUEST if kind == REQUEST else pem.CERTIFICATE
    good = pem.encode(label, _good(kind))
    begin, end = f"-----BEGIN {label}-----\n".encode(), f"-----END {label}-----\n".encode()
    room = MIB - 100
    yield from {
        "empty": b"",
        "blank": b" \n\t\r\n",
        "nul": b"\x00" * 100,
        "words": b"this is not PEM",
        "begins": begin * (room // len(begin)),
        "ends": end * (room // len(end)),
        "begins-and-good": begin * 1000 + good,
        "begin-end-begin": (begin + end) * 3000 + good,
        "never-ends": begin + b"QUJD\n" * (room // 5 - 20),
        "one-line": begin + b"A" * (room - 200) + b"\n" + end,
        "dashes": b"-" * room,
        "dashed-lines": b"-----\n" * (room // 6),
        "half-begins": b"-----BEGIN \n" * (room // 12),
        "label-of-dashes": b"-----BEGIN " + b"-" * (room - 50) + b"\n",
        "long-label": b"-----BEGIN " + b"A" * 500_000 + b"-----\n",
        "newlines": b"\n" * room,
        "begin-and-newlines": begin + b"\n" * (room - 100) + end,
        "headers": begin + b"a: b\n" * (room // 5 - 20) + b"\n" + end,
        "colons": begin + b":" * (room - 100) + b"\n" + end,
        "equal-signs": begin + b"=" * (room - 100) + b"\n" + end,
        "blanks-in-base64": begin + b"Q \t" * (room // 3 - 40) + b"\n" + end,
        "carriage-returns": begin + b"Q\r" * 10_000 + b"\n" + end,
        "wrong-padding": begin + b"QUI\n" + end,
        "url-alphabet": begin + b"QUI-_w==\n" + end,
        "other-end": begin + b"QUJD\n-----END X-----\n",
        "lower-case": good.lower(),
        "indented": b"\n".join(b" " + line for line in good.split(b"\n")),
        "windows": good.replace(b"\n", b"\r\n"),
        "old-mac": good.replace(b"\n", b"\r"),
        "byte-order-mark": b"\xef\xbb\xbf" + good,
        "utf-16": good.decode().encode("utf-16"),
        "other-label-first": pem.encode("NEW CERTIFICATE REQUEST", b"x") + good,
        "quoted-label": pem.encode('X" or "', b"x"),
        "no-label": b"-----BEGIN -----\n-----END -----\n",
        "der": _good(kind),
        "beyond-limit": good + b"x" * (MIB + 1),
    }.items()


def _damaged(kind: str) -> Made:
    label = pem.CERTIFICATE_REQUEST if kind == REQUEST else pem.CERTIFICATE
    good = _good(kind)
    chance = random.Random(2026)
    for size in sorted(chance.sample(range(len(good)), 12)):
        yield f"cut-{size}", pem.encode(label, good[:size])
    for place in sorted(chance.sample(range(len(good)), 24)):
        changed = bytearray(good)
        changed[place] ^= 1 << chance.randrange(8)
        yield f"changed-{place}", pem.encode(label, bytes(changed))
    yield "empty-block", pem.encode(label, b"")
    yield "trailing-octet", pem.encode(label, good + b"\x00")
    yield "indefinite-length", pem.encode(label, b"\x30\x80" + good[4:] + b"\x00\x00")
    yield "loose-length", pem.encode(label, b"\x30\x84\x00\x00" + good[2:])
    yield "giant-length", pem.encode(label, b"\x30\x88" + b"\xff" * 8)
    yield "nested-deep", pem.encode(label, _nested(2000))
    yield "nested-open", pem.encode(label, b"\x30\x80" * 20_000)
    yield "high-tag", pem.encode(label, b"\x3f\xff\xff\xff\x7f\x01\x00")
    yield "octet-string", pem.encode(label, der.encode(der.OCTET_STRING, good))
    yield "noise", pem.encode(label, chance.randbytes(5000))


def _good(kind: str) -> bytes:
    return request_der() if kind == REQUEST else certificate_der(AUTHORITY)


def _nested(levels: int) -> bytes:
    data = NULL
    for _ in range(levels):
        data = der.encode(der.SEQUENCE, data)
    return data
