"""Client certificates for tests: of the server's own authority, of others, and forged ones."""

import datetime
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.x509 import der
from orchid.kernel.http.messages import Peer

HOUR = datetime.timedelta(hours=1)
END = "-----END CERTIFICATE-----\n"


@dataclass(frozen=True)
class Certified:
    """A certificate with its key, as a client has them."""

    chain: bytes
    key: bytes

    @property
    def der(self) -> bytes:
        return ssl.PEM_cert_to_DER_cert(self.chain.decode().partition(END)[0] + END)

    @property
    def peer(self) -> Peer:
        """The other end of a connection on which this certificate was shown."""
        return Peer("127.0.0.1:1", self.der)

    def context(self, directory: Path, authority: Path) -> ssl.SSLContext:
        """The TLS context of a client that shows the certificate to a server of this authority."""
        chain, key = directory / "client.crt", directory / "client.key"
        chain.write_bytes(self.chain)
        key.touch(mode=0o600)
        key.write_bytes(self.key)
        context = ssl.create_default_context(cafile=str(authority))
        context.load_cert_chain(chain, key)
        return context


def cluster_authority(data: Path) -> Authority:
    """The authority whose client certificates the server of a data directory accepts."""
    return Authority.load_files(data / "ca.crt", data / "ca.key")


def other_authority(name: str = "other") -> Authority:
    return Authority.create(name, now=datetime.datetime.now(datetime.UTC))


def issued(
    authority: Authority,
    user: str,
    *groups: str,
    lifetime: datetime.timedelta = HOUR,
    now: datetime.datetime | None = None,
) -> Certified:
    moment = now or datetime.datetime.now(datetime.UTC)
    made = authority.issue_client(user, lifetime=lifetime, now=moment, groups=groups)
    return Certified(made.chain, made.key.reveal().encode())


def twin(
    original: x509.Certificate, signer: ec.EllipticCurvePrivateKey, subject: x509.Name | None = None
) -> bytes:
    """The same serial number, names, times, extensions and key ids; another key and signature."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject or original.subject)
        .issuer_name(original.issuer)
        .public_key(ec.generate_private_key(ec.SECP256R1()).public_key())
        .serial_number(original.serial_number)
        .not_valid_before(original.not_valid_before_utc)
        .not_valid_after(original.not_valid_after_utc)
    )
    for extension in original.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    made = builder.sign(signer, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.DER)


def mirrored(data: bytes, curve: ec.EllipticCurve | None = None) -> bytes:
    """The same certificate with its ECDSA signature (r, s) written as (r, n-s); needs no key."""
    r, s = decode_dss_signature(x509.load_der_x509_certificate(data).signature)
    order = (curve or ec.SECP256R1()).group_order
    return respelled(data, signature=encode_dss_signature(r, order - s))


def respelled(data: bytes, *, signature: bytes | None = None, unused: int = 0) -> bytes:
    """The same signed part with another signature, or another count of unused bits after it."""
    outer = der.element(data, 0, len(data))
    body, algorithm, _ = der.children(data, outer.start, outer.stop)
    if signature is None:
        signature = x509.load_der_x509_certificate(data).signature
    return der.encode(
        der.SEQUENCE,
        data[body.begin : body.stop],
        data[algorithm.begin : algorithm.stop],
        der.encode_bits(signature, unused),
    )
