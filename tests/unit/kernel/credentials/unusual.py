"""Certificates that no library writes, built by hand: every extension, name and time.

`certificate` writes one from its parts; `UNREADABLE` has those for which the X.509 library raises
an exception of its own, `any_extensions` one for each extension that it knows, with values that
are right, wrong and cut off.
"""

import itertools
from collections.abc import Iterator
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID

from orchid.kernel.credentials.keys import spki
from orchid.kernel.credentials.x509 import der
from tests.unit.kernel.credentials import samples

ALTERNATIVE_NAMES: Final = ExtensionOID.SUBJECT_ALTERNATIVE_NAME.dotted_string
TLS_FEATURE: Final = ExtensionOID.TLS_FEATURE.dotted_string
BASIC_CONSTRAINTS: Final = ExtensionOID.BASIC_CONSTRAINTS.dotted_string
CLIENT_AUTH: Final = "1.3.6.1.5.5.7.3.2"
_ECDSA: Final = der.encode(der.SEQUENCE, der.encode_oid("1.2.840.10045.4.3.2"))
_TIME: Final = 0x18
FIRST, LAST = b"20200101000000Z", b"99991231235959Z"


def sequence(*parts: bytes) -> bytes:
    return der.encode(der.SEQUENCE, *parts)


def extension(oid: str, value: bytes, *, critical: bool = False) -> bytes:
    flag = der.encode(der.BOOLEAN, b"\xff") if critical else b""
    return sequence(der.encode_oid(oid), flag, der.encode(der.OCTET_STRING, value))


def name(*values: bytes, oid: str = "2.5.4.3") -> bytes:
    """A name with one attribute for each value, which is encoded already."""
    return sequence(
        *(der.encode(der.SET, sequence(der.encode_oid(oid), value)) for value in values)
    )


def text(value: str) -> bytes:
    return der.encode(0x0C, value.encode())


CLIENT: Final = extension(
    ExtensionOID.EXTENDED_KEY_USAGE.dotted_string, sequence(der.encode_oid(CLIENT_AUTH))
)
AUTHORITY: Final = extension(
    BASIC_CONSTRAINTS, sequence(der.encode(der.BOOLEAN, b"\xff")), critical=True
)


def certificate(
    *extensions: bytes,
    subject: bytes = name(text("alice")),
    issuer: bytes = name(text("ca")),
    begin: bytes = FIRST,
    end: bytes = LAST,
    key: bytes | None = None,
    signer: ec.EllipticCurvePrivateKey | None = None,
) -> bytes:
    """A certificate in DER; without a signer, its signature is nonsense."""
    body = sequence(
        der.encode(0xA0, der.encode_integer(2)),
        der.encode_integer(7),
        _ECDSA,
        issuer,
        sequence(der.encode(_TIME, begin), der.encode(_TIME, end)),
        subject,
        key or spki(samples.P256.public_key()),
        der.encode(0xA3, sequence(*extensions)) if extensions else b"",
    )
    signature = signer.sign(body, ec.ECDSA(hashes.SHA256())) if signer else b"none"
    return sequence(body, _ECDSA, der.encode_bits(signature))


# Alternative names by their tags: other name to registered id, two unknown tags.
X400_ADDRESS: Final = der.encode(0xA3, b"")
GENERAL_NAMES: Final = {
    "other name": der.encode(0xA0, der.encode_oid("1.2.3"), der.encode(0xA0, text("x"))),
    "empty other name": der.encode(0xA0),
    "e-mail": der.encode(0x81, b"a@example.com"),
    "e-mail that is not ASCII": der.encode(0x81, b"\xff"),
    "host": der.encode(0x82, b"example.com"),
    "host that is not ASCII": der.encode(0x82, b"\xff"),
    "x400Address": X400_ADDRESS,
    "full x400Address": der.encode(0xA3, sequence()),
    "directory name": der.encode(0xA4, name(text("x"))),
    "directory name with a bit string": der.encode(0xA4, name(der.encode_bits(b"x"))),
    "EDI party": der.encode(0xA5, der.encode(0xA1, text("p"))),
    "URI": der.encode(0x86, b"https://example.com"),
    "URI that is not ASCII": der.encode(0x86, b"\xff"),
    "address": der.encode(0x87, b"\1\2\3\4"),
    "network": der.encode(0x87, b"\1\2\3\4\xff\xff\xff\0"),
    "network with holes": der.encode(0x87, b"\1\2\3\4\xff\0\xff\0"),
    "short address": der.encode(0x87, b"\1\2"),
    "registered id": der.encode(0x88, b"\x2a\x03"),
    "empty registered id": der.encode(0x88),
    "unknown tag": der.encode(0x89),
    "no tag of a name": text("x"),
}

YEAR_0: Final = b"00000101000000Z"
UNREADABLE: Final = {
    "x400Address": certificate(CLIENT, extension(ALTERNATIVE_NAMES, sequence(X400_ADDRESS))),
    "TLS feature 7": certificate(CLIENT, extension(TLS_FEATURE, sequence(der.encode_integer(7)))),
    "begin in year 0": certificate(CLIENT, begin=YEAR_0),
    "end in year 0": certificate(CLIENT, begin=YEAR_0, end=YEAR_0),
    "subject with a bit string": certificate(CLIENT, subject=name(der.encode_bits(b"x"))),
    "issuer with a number": certificate(CLIENT, issuer=name(der.encode_integer(1))),
    "issuer with Latin-1": certificate(CLIENT, issuer=name(der.encode(0x14, b"\xff"))),
    "subject with an empty set": certificate(CLIENT, subject=sequence(der.encode(der.SET))),
    "two of one kind": certificate(CLIENT, CLIENT),
}


def any_extensions() -> Iterator[bytes]:
    """A certificate for each extension that the library knows and each value below."""
    oids = sorted(value.dotted_string for key, value in vars(ExtensionOID).items() if key.isupper())
    for oid, value in itertools.product((*oids, "1.2.3.4"), _values()):
        yield certificate(extension(oid, value))


def _values() -> Iterator[bytes]:
    number, oid = der.encode_integer, der.encode_oid("1.2.3")
    true = der.encode(der.BOOLEAN, b"\xff")
    yield from (b"", b"\0", sequence(), der.encode(5), true, sequence(true))
    yield from (number(0), number(1 << 200), der.encode(10, b"\6"), der.encode(10, b"\x7f"))
    yield from (sequence(number(value)) for value in (0, 5, 7, 17, 1 << 80))
    yield from (sequence(true, number(1 << 80)), sequence(oid), sequence(sequence(oid)))
    yield from (der.encode(der.OCTET_STRING, value) for value in (b"", b"a", b"\0\0", b"\0\1\0"))
    yield from (der.encode(der.BIT_STRING, value) for value in (b"", b"\0\1", b"\7\x80"))
    yield from (der.encode(_TIME, value) for value in (YEAR_0, FIRST, b"20261301000000Z"))
    yield sequence(der.encode(0x80, YEAR_0), der.encode(0x81, LAST))
    for qualifier in (der.encode(22, b"\xff"), sequence(sequence(text("o"), sequence(number(1))))):
        for kind in ("1.3.6.1.5.5.7.2.1", "1.3.6.1.5.5.7.2.2", "1.2.3"):
            policy = sequence(oid, sequence(sequence(der.encode_oid(kind), qualifier)))
            yield sequence(policy)
    for general in GENERAL_NAMES.values():
        yield sequence(general)
        yield sequence(general, sequence())
        yield sequence(sequence(der.encode_oid("1.3.6.1.5.5.7.48.1"), general))
        yield sequence(sequence(der.encode(0xA0, der.encode(0xA0, general))))
        yield sequence(sequence(der.encode(0xA2, general)))
        yield sequence(der.encode(0xA0, sequence(general)))
        yield sequence(der.encode(0xA0, der.encode(0xA0, general)))
        yield sequence(der.encode(0xA1, general))
