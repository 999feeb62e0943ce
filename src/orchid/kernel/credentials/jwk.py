"""Public keys as JWK (RFC 7517): the keys of ACME accounts.

`read_jwk` takes the JWK of a client and returns an `AccountKey`: the key with its only algorithm,
its canonical text and its thumbprint (RFC 7638). The size of each member is limited before it is
decoded, so that a large number costs nothing. Keys: P-256, P-384, P-521, Ed25519 and RSA with 2048
to 4096 bits.
"""

import hashlib
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric import rsa

from orchid.kernel.credentials.keys import VerificationKey, b64url_encode, jwk_public
from orchid.kernel.credentials.refusals import UnreadableKey, UnsupportedKey

ALGORITHMS: Final = ("ES256", "ES384", "ES512", "EdDSA", "RS256")
LARGEST_RSA: Final = 4096  # bits
LONGEST_MEMBER: Final = -(-LARGEST_RSA // 6)  # characters of base64url
_MEMBERS: Final = {
    "EC": ("crv", "kty", "x", "y"),
    "OKP": ("crv", "kty", "x"),
    "RSA": ("e", "kty", "n"),
}


class Jwk(msgspec.Struct, frozen=True, omit_defaults=True):
    """The members of a public key; others are ignored."""

    kty: str
    crv: str = ""
    e: str = ""
    n: str = ""
    x: str = ""
    y: str = ""


class AccountKey(msgspec.Struct, frozen=True):
    """A public key with its only algorithm."""

    key: VerificationKey
    text: str  # its JWK, in canonical form
    thumbprint: str

    @property
    def algorithm(self) -> str:
        return self.key.algorithm


def read_jwk(jwk: Jwk) -> AccountKey:
    """The key of a JWK; raises UnreadableKey or UnsupportedKey."""
    texts = {name: text for name, text in msgspec.structs.asdict(jwk).items() if text}
    if any(len(text) > LONGEST_MEMBER for text in texts.values()):
        raise UnsupportedKey(f"RSA keys must have 2048 to {LARGEST_RSA} bits")
    public = jwk_public(texts)
    key = VerificationKey.of(public)
    if isinstance(public, rsa.RSAPublicKey) and public.key_size > LARGEST_RSA:
        raise UnsupportedKey(f"RSA keys must have 2048 to {LARGEST_RSA} bits")
    members = key.jwk()
    # The order of the names is part of the thumbprint.
    text = msgspec.json.encode({name: members[name] for name in _MEMBERS[members["kty"]]})
    thumbprint = b64url_encode(hashlib.sha256(text).digest()).decode()
    return AccountKey(key, text.decode(), thumbprint)


def read_jwk_text(text: str | bytes) -> AccountKey:
    """The same for a JWK as JSON text."""
    try:
        jwk = msgspec.json.decode(text, type=Jwk)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise UnreadableKey("the JWK is not a JSON object with the members of a key") from None
    return read_jwk(jwk)
