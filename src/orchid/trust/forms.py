"""The formats of a published bundle besides PEM: Java trust stores and SPIFFE bundles.

`java_store` creates PKCS#12 that Java reads as a trust store. Java loads only one of two
certificates with the same alias, so each alias begins with digits of the certificate's SHA-256.
`spiffe_bundle` creates the JSON of a SPIFFE trust domain (SPIFFE Trust Domain and Bundle, section
4): X.509 authorities only, because the tokens of service accounts are not JWT-SVIDs. Both take a
while for many certificates: call them in a thread.
"""

import base64
from hashlib import sha256
from typing import Any, Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, NoEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
)

from orchid.credentials.keys import VerificationKey
from orchid.credentials.refusals import Refusal
from orchid.credentials.x509 import certificates, trust_anchors

PASSWORD: Final = b"changeit"  # of Java's own trust store; the content is public
ALIAS_DIGITS: Final = 8
LONGEST_SUBJECT: Final = 200  # characters of an alias
_KEY_MEMBERS: Final[tuple[str, ...]] = ("kty", "crv", "n", "e", "x", "y")


def java_store(text: bytes, *, password: bool) -> bytes:
    """A PKCS#12 trust store with the certificates of a PEM text.

    A certificate without a subject is omitted: Java cannot read a store that has one.
    """
    entries = [
        PKCS12Certificate(certificate, alias(der, certificate).encode())
        for der, certificate in _certificates(text)
        if certificate.subject.rdns
    ]
    encryption = BestAvailableEncryption(PASSWORD) if password else NoEncryption()
    return serialize_java_truststore(entries, encryption)


def alias(der: bytes, certificate: x509.Certificate) -> str:
    """The name of a certificate in a Java trust store; it has no characters beyond the BMP."""
    subject = certificate.subject.rfc4514_string()[:LONGEST_SUBJECT]
    printable = "".join(one if one.isprintable() and one <= "\uffff" else "?" for one in subject)
    return f"{sha256(der).hexdigest()[:ALIAS_DIGITS]}|{printable}"


def spiffe_bundle(text: bytes, *, sequence: int, refresh_seconds: int) -> bytes:
    """The SPIFFE bundle with the certificates of a PEM text.

    A certificate whose key has no JWK is omitted: a client would refuse the whole bundle.
    """
    keys = [key for der, one in _certificates(text) if (key := _jwk(der, one)) is not None]
    return msgspec.json.encode(
        {"keys": keys, "spiffe_sequence": sequence, "spiffe_refresh_hint": refresh_seconds}
    )


def _jwk(der: bytes, certificate: x509.Certificate) -> dict[str, Any] | None:
    try:
        key = VerificationKey.of(certificate.public_key()).jwk()  # type: ignore[arg-type]  # refused
    except (Refusal, ValueError):
        return None
    members = {name: key[name] for name in _KEY_MEMBERS if name in key}
    return {**members, "use": "x509-svid", "x5c": [base64.b64encode(der).decode()]}


def _certificates(text: bytes) -> list[tuple[bytes, x509.Certificate]]:
    return [(der, certificates.parse(der)) for der in trust_anchors.anchors(text.decode())]
