"""The formats of a published bundle besides PEM: Java trust stores and SPIFFE bundles.

`java_trust_store` creates PKCS#12 that Java reads (kernel/credentials/x509/trust/java_store.py).
`spiffe_bundle` creates the JSON of a SPIFFE trust domain (SPIFFE Trust Domain and Bundle, section
4): X.509 authorities only, because the tokens of service accounts are not JWT-SVIDs. Both take a
while for many certificates: call them in a thread.
"""

import base64
from typing import Any, Final

import msgspec
from cryptography import x509

from orchid.kernel.credentials.keys import VerificationKey
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509.certificates import public_key_of
from orchid.kernel.credentials.x509.trust.java_store import bundle_certificates, java_store

PASSWORD: Final = b"changeit"  # of Java's own trust store; the content is public
_KEY_MEMBERS: Final[tuple[str, ...]] = ("kty", "crv", "n", "e", "x", "y")


def java_trust_store(text: bytes, *, password: bool) -> bytes:
    """A Java trust store, with the usual password or without one."""
    return java_store(text, PASSWORD if password else b"")


def spiffe_bundle(text: bytes, *, sequence: int, refresh_seconds: int) -> bytes:
    """The SPIFFE bundle with the certificates of a PEM text.

    A certificate whose key has no JWK is omitted: a client would refuse the whole bundle.
    """
    keys = [
        key
        for der, certificate in bundle_certificates(text)
        if (key := _jwk(der, certificate)) is not None
    ]
    return msgspec.json.encode(
        {"keys": keys, "spiffe_sequence": sequence, "spiffe_refresh_hint": refresh_seconds}
    )


def _jwk(der: bytes, certificate: x509.Certificate) -> dict[str, Any] | None:
    public = public_key_of(certificate)
    if public is None:
        return None
    try:
        key = VerificationKey.of(public).jwk()  # type: ignore[arg-type]  # refused
    except (Refusal, ValueError):
        return None
    members = {name: key[name] for name in _KEY_MEMBERS if name in key}
    return {**members, "use": "x509-svid", "x5c": [base64.b64encode(der).decode()]}
