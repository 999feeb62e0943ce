"""Keys and certificates that users make themselves; the checkers know who made which.

A key or root of the pool has a label (`alice's root 1`), so that a history can be replayed with
other keys under the same labels. All certificates are built with `cryptography` alone.
"""

import datetime
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)
PARTS = {
    "CN": NameOID.COMMON_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "serialNumber": NameOID.SERIAL_NUMBER,
    "L": NameOID.LOCALITY_NAME,
}


def digest(key: Any) -> str:
    """The SHA-256 of a public key: how keys are compared everywhere here."""
    der = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(der).hexdigest()


def certificates_in(text: str | bytes) -> list[x509.Certificate]:
    """The certificates of a PEM text; none if it has none."""
    data = text.encode() if isinstance(text, str) else text
    return x509.load_pem_x509_certificates(data) if b"-----BEGIN CERT" in data else []


def pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def subject(parts: Sequence[Sequence[str]]) -> x509.Name:
    return x509.Name([x509.NameAttribute(PARTS[name], value) for name, value in parts])


@dataclass(frozen=True)
class Pair:
    """A private key of a user, with a self-signed root of it."""

    label: str
    key: ec.EllipticCurvePrivateKey

    @cached_property
    def digest(self) -> str:
        return digest(self.key.public_key())

    @cached_property
    def key_pem(self) -> str:
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode()

    @cached_property
    def public_pem(self) -> str:
        return (
            self.key.public_key()
            .public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            .decode()
        )

    @cached_property
    def root(self) -> str:
        name = subject([("CN", self.label[:60])])
        return pem(self.certify(self.key.public_key(), name, name))

    def certify(
        self,
        public: Any,
        name: x509.Name,
        issuer: x509.Name | None = None,
        *,
        identifier: bytes | None = None,
        is_authority: bool = True,
    ) -> x509.Certificate:
        """Sign a certificate for a key with this one."""
        now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
        named = x509.SubjectKeyIdentifier(identifier) if identifier else None
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer or subject([("CN", self.label[:60])]))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + 3000 * DAY)
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(
                named or x509.SubjectKeyIdentifier.from_public_key(public),
                critical=False,
            )
            .add_extension(_usage(is_authority), critical=True)
        )
        return builder.sign(self.key, hashes.SHA256())

    def like(self, original: x509.Certificate) -> str:
        """A root of this key with the name and the key identifier of another."""
        found = original.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
        identifier = found.value.digest
        return pem(
            self.certify(
                self.key.public_key(), original.subject, original.subject, identifier=identifier
            )
        )

    def request(self, parts: Sequence[Sequence[str]], names: Sequence[Sequence[str]]) -> str:
        """A certificate request, with alternative names like (`DNS`, `a.example`)."""
        builder = x509.CertificateSigningRequestBuilder().subject_name(subject(parts))
        if names:
            general = [_general(kind, value) for kind, value in names]
            builder = builder.add_extension(x509.SubjectAlternativeName(general), critical=False)
        made = builder.sign(self.key, hashes.SHA256())
        return made.public_bytes(serialization.Encoding.PEM).decode()


def _usage(is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _general(kind: str, value: str) -> x509.GeneralName:
    if kind == "URI":
        return x509.UniformResourceIdentifier(value)
    return x509.DNSName(value)


class Pool:
    """All pairs that users made, by label and by key."""

    def __init__(self) -> None:
        self._pairs: dict[str, Pair] = {}
        self._owners: dict[str, str] = {}

    def pair(self, label: str) -> Pair:
        """The pair of a label; it is made when it is needed."""
        if label not in self._pairs:
            pair = Pair(label, ec.generate_private_key(ec.SECP256R1()))
            self._pairs[label] = pair
            self._owners[pair.digest] = label
        return self._pairs[label]

    def secret(self, label: str) -> bytes:
        """A shared secret, as of an external account key."""
        return hashlib.sha256(label.encode()).digest()

    def label_of(self, digest: str) -> str:
        """The label of a key by its digest; empty if no user made it."""
        return self._owners.get(digest, "")
