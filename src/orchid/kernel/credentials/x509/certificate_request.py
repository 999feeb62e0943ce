"""Certificate requests (PKCS #10) that a client creates: names, and a signature with its key.

signing_request.py is the other side: it parses the requests of others.
"""

import ipaddress
from collections.abc import Sequence
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509.oid import NameOID

from orchid.kernel.credentials.keys import PrivateKey


class AlternativeNames(NamedTuple):
    """Alternative names of the requested certificate."""

    hosts: Sequence[str] = ()
    addresses: Sequence[str] = ()
    uris: Sequence[str] = ()
    mailboxes: Sequence[str] = ()

    def encoded(self) -> list[x509.GeneralName]:
        return [
            *map(x509.DNSName, self.hosts),
            *(x509.IPAddress(ipaddress.ip_address(address)) for address in self.addresses),
            *map(x509.UniformResourceIdentifier, self.uris),
            *map(x509.RFC822Name, self.mailboxes),
        ]


def build_request(
    key: PrivateKey, user: str, groups: Sequence[str], names: AlternativeNames
) -> bytes:
    """The PEM of a request, signed with the key; ValueError for names that cannot be encoded."""
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject += [x509.NameAttribute(NameOID.COMMON_NAME, user)] if user else []
    others = names.encoded()
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    if others:
        builder = builder.add_extension(x509.SubjectAlternativeName(others), critical=False)
    digest = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, digest).public_bytes(serialization.Encoding.PEM)
