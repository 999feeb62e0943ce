"""Chains for tests: leaves and authorities made by the X.509 library, not by our own writer."""

import datetime
from collections.abc import Iterable

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.unit.kernel.credentials.samples import HOUR, NOW, OTHER_P256, P256

CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
SERVER = ExtendedKeyUsageOID.SERVER_AUTH
ANY = ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey


def make(
    subject: str = "alice",
    issuer: str | x509.Name = "ca",
    *,
    key: Key = OTHER_P256,
    signer: Key = P256,
    ca: bool | None = False,
    usages: Iterable[x509.ObjectIdentifier] | None = (CLIENT,),
    serial: int = 7,
    start: datetime.datetime = NOW - HOUR,
    end: datetime.datetime = NOW + HOUR,
    extra: Iterable[tuple[x509.ExtensionType, bool]] = (),
    path_length: int | None = None,
) -> x509.Certificate:
    """Make a certificate, by default one that proves a client of `ROOT`."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(named(subject))
        .issuer_name(named(issuer) if isinstance(issuer, str) else issuer)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(start)
        .not_valid_after(end)
    )
    if ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca, path_length), critical=True)
    if usages is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage(list(usages)), critical=False)
    for extension, critical in extra:
        builder = builder.add_extension(extension, critical)
    digest = None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(signer, digest)


def named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def authority(subject: str = "ca", *, key: Key = P256, **options: object) -> x509.Certificate:
    """Create the certificate of an authority, self-signed by default."""
    given = {"key": key, "signer": key, "ca": True, "usages": None, "issuer": subject}
    return make(subject, **(given | options))


ROOT = authority()
