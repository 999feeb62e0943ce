"""Java trust stores: PKCS#12 with CA certificates.

Java loads only one of two certificates with the same alias, so each alias begins with digits of the
certificate's SHA-256. Encoding takes a while for many certificates.
"""

from hashlib import sha256
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, NoEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
)

from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.credentials.x509.trust import trust_anchors

ALIAS_DIGITS: Final = 8
LONGEST_SUBJECT: Final = 200  # characters of an alias


def java_store(text: bytes, password: bytes) -> bytes:
    """A PKCS#12 trust store with the certificates of a PEM text; b"" for no password.

    A certificate without a subject is omitted: Java cannot read a store that has one.
    """
    entries = [
        PKCS12Certificate(certificate, alias(der, certificate).encode())
        for der, certificate in bundle_certificates(text)
        if certificate.subject.rdns
    ]
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    return serialize_java_truststore(entries, encryption)


def alias(der: bytes, certificate: x509.Certificate) -> str:
    """The name of a certificate in a Java trust store; it has no characters beyond the BMP."""
    subject = certificate.subject.rfc4514_string()[:LONGEST_SUBJECT]
    printable = "".join(one if one.isprintable() and one <= "\uffff" else "?" for one in subject)
    return f"{sha256(der).hexdigest()[:ALIAS_DIGITS]}|{printable}"


def bundle_certificates(text: bytes) -> list[tuple[bytes, x509.Certificate]]:
    return [(der, certificates.parse(der)) for der in trust_anchors.anchors(text.decode())]
