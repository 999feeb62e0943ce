"""Requests and certificates for tests, good and hostile, each built from its parts.

`request` makes an honest one with the X.509 library; `raw_request` writes any bytes as a request
and signs it, so that nothing a library refuses to write is out of reach.
"""

import base64
import datetime
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.x509.oid import NameOID

from orchid.kernel.credentials.authorities import profiles
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.keys import spki
from orchid.kernel.credentials.x509 import der, names, pem, signing_request

DATA = Path(__file__).parents[3] / "data"
NOW = datetime.datetime(2026, 3, 1, 12, 0, 0, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)
DAY = datetime.timedelta(days=1)

DER = serialization.Encoding.DER
P256 = ec.derive_private_key(0xC0FFEE, ec.SECP256R1())
OTHER_P256 = ec.derive_private_key(0xBEEF, ec.SECP256R1())
ED25519 = ed25519.Ed25519PrivateKey.from_private_bytes(b"\x07" * 32)

NODE_CLIENT = profiles.node_client(
    "example.com/node-client", nodes_group="nodes", node_user_prefix="node:"
)
NODE_SERVING = profiles.node_serving(
    "example.com/node-serving", nodes_group="nodes", node_user_prefix="node:"
)
CLIENT = profiles.client("example.com/client", ["masters"])
LEGACY = profiles.legacy("example.com/legacy", ["masters"])

CLIENT_USAGES = ("digital signature", "client auth")
SERVING_USAGES = ("digital signature", "server auth")

_EXTENSION_REQUEST = "1.2.840.113549.1.9.14"
_ECDSA_SHA256 = der.encode(der.SEQUENCE, der.encode_oid("1.2.840.10045.4.3.2"))

STRING_TYPES = {
    "utf8": (0x0C, "utf-8"),
    "printable": (0x13, "utf-8"),
    "teletex": (0x14, "utf-8"),
    "ia5": (0x16, "utf-8"),
    "visible": (0x1A, "utf-8"),
    "universal": (0x1C, "utf-32-be"),
    "bmp": (0x1E, "utf-16-be"),
}


def rsa_key(name: str = "rsa-2048-pkcs8.pem") -> rsa.RSAPrivateKey:
    """Read one of the stored RSA keys; making or checking one takes too long for a test."""
    data = (DATA / "keys" / name).read_bytes()
    key = serialization.load_pem_private_key(data, None, unsafe_skip_rsa_key_validation=True)
    assert isinstance(key, rsa.RSAPrivateKey)
    return key


def request(
    common_name: str = "node:n1",
    organizations: tuple[str, ...] = ("nodes",),
    *,
    alternative_names: tuple[x509.GeneralName, ...] = (),
    key: CertificateIssuerPrivateKeyTypes = P256,
    digest: hashes.HashAlgorithm | None = None,
) -> bytes:
    """Make an honest request in PEM."""
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
    user = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else []
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([*groups, *user]))
    if alternative_names:
        names_extension = x509.SubjectAlternativeName(alternative_names)
        builder = builder.add_extension(names_extension, critical=False)
    if digest is None and isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        digest = hashes.SHA256()
    return builder.sign(key, digest).public_bytes(serialization.Encoding.PEM)


def stub(key: CertificateIssuerPrivateKeyTypes = P256) -> bytes:
    """An empty request in DER, as a node sends it for a Pod."""
    (block,) = pem.split(request("", (), key=key))
    return block.data


def stub_text(key: CertificateIssuerPrivateKeyTypes = P256) -> str:
    """The same as JSON carries it."""
    return base64.b64encode(stub(key)).decode()


def certificate_for(
    authority: Authority,
    asked: bytes,
    lifetime: datetime.timedelta = HOUR,
    now: datetime.datetime | None = None,
) -> bytes:
    """Have an authority sign a request, as its signer would; the PEM chain."""
    return authority.sign(
        signing_request.parse(asked),
        CLIENT_USAGES,
        lifetime,
        profile=LEGACY,
        now=now or datetime.datetime.now(datetime.UTC),
    )


def intermediate_authority(
    now: datetime.datetime,
) -> tuple[bytes, bytes, x509.Certificate]:
    """Make an authority under another: the PEM of both, its key's PEM, and the one above."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    made: list[x509.Certificate] = []
    for label, key in zip(("root", "between"), keys, strict=True):
        own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, label)])
        key_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = (
            x509.CertificateBuilder()
            .subject_name(own)
            .issuer_name(made[0].subject if made else own)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + 100 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(key_id, critical=False)
        )
        made.append(builder.sign(keys[0], hashes.SHA256()))
    root, between = made
    encoding = serialization.Encoding.PEM
    written = keys[1].private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return between.public_bytes(encoding) + root.public_bytes(encoding), written, root


def attribute(oid: str, tag: int, content: bytes) -> bytes:
    """Write one attribute of a name with any string type."""
    return der.encode(der.SEQUENCE, der.encode_oid(oid), der.encode(tag, content))


def name(*relative_names: tuple[bytes, ...]) -> bytes:
    """Write a name from relative names, each of one or more attributes, sorted as DER wants."""
    sets = (der.encode(der.SET, *sorted(parts)) for parts in relative_names)
    return der.encode(der.SEQUENCE, *sets)


def utf8(oid: str, value: str) -> bytes:
    """Write one attribute as a UTF-8 string."""
    return attribute(oid, 0x0C, value.encode())


def extension(oid: str, value: bytes, *, critical: bool = False) -> bytes:
    """Write one extension."""
    flag = der.encode(der.BOOLEAN, b"\xff") if critical else b""
    return der.encode(der.SEQUENCE, der.encode_oid(oid), flag, der.encode(0x04, value))


def raw_request(
    subject: bytes,
    *extensions: bytes,
    key_info: bytes | None = None,
    key: ec.EllipticCurvePrivateKey = P256,
    attributes: bytes | None = None,
) -> bytes:
    """Write a request from raw parts and sign it with a P-256 key; DER."""
    if attributes is None:
        attributes = b""
        if extensions:
            value = der.encode(der.SET, der.encode(der.SEQUENCE, *extensions))
            oid = der.encode_oid(_EXTENSION_REQUEST)
            attributes = der.encode(der.SEQUENCE, oid, value)
    body = der.encode(
        der.SEQUENCE,
        der.encode_integer(0),
        subject,
        key_info or spki(key.public_key()),
        der.encode(0xA0, attributes),
    )
    signature = key.sign(body, ec.ECDSA(hashes.SHA256()))
    return der.encode(der.SEQUENCE, body, _ECDSA_SHA256, der.encode_bits(signature))


def as_pem(data: bytes) -> bytes:
    """Wrap DER as a certificate request."""
    return pem.encode(pem.CERTIFICATE_REQUEST, data)


def reserved_group_requests() -> Iterator[tuple[str, bytes]]:
    """Yield requests for the group `masters` in every spelling that we can think of."""
    spellings = {
        "plain": "masters",
        "trailing-nul": "masters\x00",
        "leading-blank": " masters",
        "zero-width": "mas\u200bters",
        "wide": "\uff4dasters",
        "upper": "MASTERS",
    }
    user = utf8(names.COMMON_NAME, "eve")
    for spelling, text in spellings.items():
        for kind, (tag, codec) in STRING_TYPES.items():
            group = attribute(names.ORGANIZATION, tag, text.encode(codec))
            harmless = utf8(names.ORGANIZATION, "dev")
            shapes = {
                "alone": name((group,), (user,)),
                "second": name((harmless,), (group,), (user,)),
                "multi-valued": name((harmless, group), (user,)),
                "beside-user": name((user, group)),
                "after-user": name((user,), (group,)),
            }
            for shape, subject in shapes.items():
                yield f"{spelling}-{kind}-{shape}", as_pem(raw_request(subject))


def broken_requests() -> Iterator[tuple[str, bytes]]:
    """Yield requests whose bytes are cut, changed or padded somewhere."""
    good = raw_request(name((utf8(names.COMMON_NAME, "node:n1"),)))
    for size in range(0, len(good), 5):
        yield f"cut-{size}", as_pem(good[:size])
    for place in range(0, len(good), 3):
        changed = bytearray(good)
        changed[place] ^= 0x21
        yield f"changed-{place}", as_pem(bytes(changed))
    yield "trailing", as_pem(good + b"\x00")
    yield "nested", as_pem(b"\x30\x84\x00\x00\x00\x05" * 2000)
    yield "deep", as_pem(_deep(1500))
    yield "huge-length", as_pem(b"\x30\x88" + b"\xff" * 8)
    yield "indefinite", as_pem(b"\x30\x80" + good[2:] + b"\x00\x00")


def odd_requests() -> Iterator[tuple[str, bytes]]:
    """Yield well-formed requests with content that no certificate of ours may repeat."""
    subject = name((utf8(names.ORGANIZATION, "nodes"),), (utf8(names.COMMON_NAME, "node:n1"),))
    constraints = der.encode(der.SEQUENCE, der.encode(der.BOOLEAN, b"\xff"))
    yield "ca-true", as_pem(raw_request(subject, extension("2.5.29.19", constraints)))
    yield "own-key-usage", as_pem(raw_request(subject, extension("2.5.29.15", b"\x03\x02\x01\x06")))
    yield (
        "unknown-critical",
        as_pem(raw_request(subject, extension("1.2.3.4", b"\x05\x00", critical=True))),
    )
    twice = extension("2.5.29.19", constraints)
    yield "duplicate-extension", as_pem(raw_request(subject, twice, twice))
    for label, host in {
        "nul": b"a.example\x00.evil",
        "wildcard": b"*.example.com",
        "bare-wildcard": b"*",
        "address": b"10.0.0.1",
        "not-ascii": "münchen.example".encode(),
        "bad-idn": b"xn--\x2d\x2d.example",
        "blank": b"a b.example",
        "empty": b"",
        "long-label": b"a" * 64 + b".example",
        "long": b".".join([b"a" * 60] * 5),
    }.items():
        entry = extension("2.5.29.17", der.encode(der.SEQUENCE, der.encode(0x82, host)))
        yield f"dns-{label}", as_pem(raw_request(subject, entry))
    for size in (0, 3, 5, 8, 17, 32):
        entry = extension("2.5.29.17", der.encode(der.SEQUENCE, der.encode(0x87, b"\x01" * size)))
        yield f"ip-of-{size}", as_pem(raw_request(subject, entry))
    yield "giant-names", as_pem(raw_request(name((utf8(names.COMMON_NAME, "x" * 200_000),))))
    for count in (1000, 3000):
        many = tuple((utf8(names.ORGANIZATION, f"g{i}"),) for i in range(count))
        yield f"groups-{count}", as_pem(raw_request(name(*many)))
    hosts = extension("2.5.29.17", der.encode(der.SEQUENCE, b"\x82\x00" * 30_000))
    yield "hosts-30000", as_pem(raw_request(subject, hosts))
    bad = attribute(names.COMMON_NAME, 0x0C, b"\xff\xfe")
    yield "bad-utf8", as_pem(raw_request(name((bad,))))
    odd = attribute(names.COMMON_NAME, 0x1E, b"\x00a\x00")
    yield "odd-bmp", as_pem(raw_request(name((odd,))))


def _deep(levels: int) -> bytes:
    data = b"\x05\x00"
    for _ in range(levels):
        data = der.encode(der.SEQUENCE, data)
    return data
