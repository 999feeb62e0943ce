"""Keys that sign and verify tokens: load, generate, identify and publish them.

Start with `load_signing_key(path)` and `load_verification_keys(path)`. The algorithm follows from
the key, so nothing in a token can choose it; the key id is the hash of the public key, so nobody
can choose that either. HMAC and "none" do not exist here. Private keys never print.
"""

import binascii
import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, mldsa, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from orchid.kernel.credentials import files
from orchid.kernel.credentials.refusals import (
    BadSignature,
    Refusal,
    UnreadableKey,
    UnsupportedKey,
    library_errors_as,
)
from orchid.kernel.credentials.secret import SecretValue
from orchid.kernel.credentials.x509 import pem

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey

MIN_RSA_BITS = 2048
MAX_RSA_BITS = 8192
_MIN_RSA_EXPONENT, _MAX_RSA_EXPONENT = 3, (1 << 32) + 1

# The message of Kubernetes, known to users and tools; it does not reveal which part failed.
SIGNATURE_FAILED = "go-jose/go-jose: error in cryptographic primitive"

_PRIVATE_LABELS = ("RSA PRIVATE KEY", "EC PRIVATE KEY", "PRIVATE KEY")
_CURVES: dict[str, tuple[str, str, int, ec.ECDSA]] = {
    "secp256r1": ("ES256", "P-256", 32, ec.ECDSA(hashes.SHA256())),
    "secp384r1": ("ES384", "P-384", 48, ec.ECDSA(hashes.SHA384())),
    "secp521r1": ("ES512", "P-521", 66, ec.ECDSA(hashes.SHA512())),
}
_JWK_CURVES: dict[str, ec.EllipticCurve] = {
    "P-256": ec.SECP256R1(),
    "P-384": ec.SECP384R1(),
    "P-521": ec.SECP521R1(),
}
MADE_ALGORITHMS = ("ES256", "ES384", "RS256", "EdDSA")  # of token keys that the server creates
MADE_RSA_BITS = 3072
_MADE_CURVES: dict[str, ec.EllipticCurve] = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1()}
_HASHES = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
_RSA_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_MAX_JWKS_KEYS = 256
LONGEST_SHORT_FORM = 127  # a DER length above it takes another byte, up to 255

_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
_FROM_STANDARD = bytes.maketrans(b"+/", b"-_")
_URL_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
# The unused bits in the last character of a canonical encoding are zero.
_LAST_OF_TWO = frozenset(b"AQgw")
_LAST_OF_THREE = frozenset(b"AEIMQUYcgkosw048")


def b64url_encode(data: bytes) -> bytes:
    """Encode without padding (RFC 7515 section 2)."""
    return binascii.b2a_base64(data, newline=False).translate(_FROM_STANDARD).rstrip(b"=")


def b64url_decode(text: bytes) -> bytes:
    """Decode strictly: no padding, no foreign characters, one encoding per value."""
    if text.translate(None, _URL_ALPHABET):
        raise ValueError("not base64url")
    over = len(text) % 4
    if (
        over == 1
        or (over == 2 and text[-1] not in _LAST_OF_TWO)  # noqa: PLR2004 - characters in the last group
        or (over == 3 and text[-1] not in _LAST_OF_THREE)  # noqa: PLR2004 - as above
    ):
        raise ValueError("not canonical base64url")
    return binascii.a2b_base64(text.translate(_TO_STANDARD) + b"=" * (-len(text) % 4))


def key_id(public: PublicKey) -> str:
    """The id of a key: SHA-256 of its SubjectPublicKeyInfo, in base64url."""
    return b64url_encode(hashlib.sha256(spki(public)).digest()).decode()


def spki(public: PublicKey | mldsa.MLDSA65PublicKey) -> bytes:
    """Encode a public key as DER SubjectPublicKeyInfo."""
    return public.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def pem_sha256(public: str) -> str:
    """SHA-256 of a public key (SPKI) in PEM, in hex; raises Refusal."""
    block = pem.first(public)
    if block is None:
        raise UnreadableKey("there is no public key")
    return hashlib.sha256(block.data).hexdigest()


def algorithm_of(public: PublicKey) -> str:
    """The only algorithm of a key; raises UnsupportedKey for other keys."""
    if isinstance(public, rsa.RSAPublicKey):
        refuse_weak_rsa(public)
        return "RS256"
    if isinstance(public, ec.EllipticCurvePublicKey):
        if public.curve.name not in _CURVES:
            raise UnsupportedKey(f"elliptic curve {public.curve.name} is not supported")
        return _CURVES[public.curve.name][0]
    if isinstance(public, ed25519.Ed25519PublicKey):
        return "EdDSA"
    raise UnsupportedKey("only RSA, ECDSA and Ed25519 keys are supported")


def refuse_weak_rsa(public: rsa.RSAPublicKey) -> None:
    """Refuse RSA keys that are too small, too slow to verify with, or malformed."""
    if not MIN_RSA_BITS <= public.key_size <= MAX_RSA_BITS:
        raise UnsupportedKey(
            f"RSA keys must have {MIN_RSA_BITS} to {MAX_RSA_BITS} bits, not {public.key_size}"
        )
    exponent = public.public_numbers().e
    if exponent % 2 == 0 or not _MIN_RSA_EXPONENT <= exponent <= _MAX_RSA_EXPONENT:
        raise UnsupportedKey("the public exponent of the RSA key is not acceptable")


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key with its only algorithm."""

    public: PublicKey
    algorithm: str
    kid: str
    _check: Callable[[bytes, bytes], None] = field(repr=False, compare=False)

    @classmethod
    def of(cls, public: PublicKey) -> "VerificationKey":
        """A key of this server; id and algorithm follow from it."""
        algorithm = algorithm_of(public)
        return cls(public, algorithm, key_id(public), _checker(public, algorithm))

    def verify(self, signature: bytes, message: bytes) -> None:
        """Return if the signature was made with this key; raise BadSignature otherwise."""
        try:
            self._check(signature, message)
        except InvalidSignature:
            raise BadSignature(SIGNATURE_FAILED) from None

    def pem(self) -> str:
        """The public key as PEM text."""
        return self.public.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        ).decode("ascii")

    def jwk(self) -> dict[str, str]:
        """The key for a JWKS document, members in the order of Kubernetes."""
        head = {"use": "sig", "kty": "", "kid": self.kid}
        public = self.public
        if isinstance(public, rsa.RSAPublicKey):
            numbers = public.public_numbers()
            n, e = _uint(numbers.n), _uint(numbers.e)
            return head | {"kty": "RSA", "alg": self.algorithm, "n": n, "e": e}
        if isinstance(public, ec.EllipticCurvePublicKey):
            _, curve, size, _ = _CURVES[public.curve.name]
            point = public.public_numbers()
            x, y = _uint(point.x, size), _uint(point.y, size)
            return head | {"kty": "EC", "crv": curve, "alg": self.algorithm, "x": x, "y": y}
        raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        x = b64url_encode(raw).decode()
        return head | {"kty": "OKP", "crv": "Ed25519", "alg": self.algorithm, "x": x}


class TokenKey:
    """A private key with its only algorithm; `public` verifies its signatures."""

    __slots__ = ("_private", "public", "sign")

    def __init__(self, private: PrivateKey) -> None:
        self._private = private
        self.public = VerificationKey.of(private.public_key())
        self.sign: Callable[[bytes], bytes] = _signer(private)

    @property
    def algorithm(self) -> str:
        """The algorithm in the header of a token."""
        return self.public.algorithm

    @property
    def kid(self) -> str:
        """The key id in the header of a token."""
        return self.public.kid

    @property
    def slow(self) -> bool:
        """Whether signing takes milliseconds and belongs in a thread (RSA)."""
        return isinstance(self._private, rsa.RSAPrivateKey)

    def pem(self) -> SecretValue:
        """The private key as PKCS#8 PEM."""
        return SecretValue(encode_private(self._private))

    def __repr__(self) -> str:
        return f"TokenKey({self.algorithm}, kid={self.kid})"

    def __reduce__(self) -> str:
        raise TypeError("a signing key is not pickled")


def generate(algorithm: str = "ES256") -> TokenKey:
    """Create a key for ES256, ES384 or EdDSA. RSA keys:
    kernel/credentials/authorities/rsa_process.py.
    """
    if algorithm == "EdDSA":
        return TokenKey(ed25519.Ed25519PrivateKey.generate())
    return TokenKey(ec.generate_private_key(_MADE_CURVES[algorithm]))


def encode_private(private: PrivateKey | mldsa.MLDSA65PrivateKey) -> str:
    """A private key as unencrypted PKCS#8 PEM."""
    return private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode("ascii")


def load_signing_key(path: Path) -> TokenKey:
    """The first private key of a file, which others must not be able to read."""
    return TokenKey(read_private_key(files.read_private(path), str(path)))


def load_verification_keys(path: Path) -> tuple[VerificationKey, ...]:
    """All keys of a file: public keys, certificates, or the public half of private keys."""
    data, status = files.read_with_status(path)
    if any(block.label in _PRIVATE_LABELS for block in pem.split(data)):
        files.refuse_exposed(path, status)
    return read_verification_keys(data, str(path))


def read_private_key(data: bytes, source: str = "key data") -> PrivateKey:
    """The first private key in PEM text, of a type that signs tokens."""
    return _supported(find_private_key(data, source), source)


def find_private_key(data: bytes, source: str, *, proves_primes: bool = True) -> object:
    """The first private key in PEM text (PKCS#8, SEC 1 or PKCS#1), of any type."""
    for block in pem.split(data):
        if block.label in _PRIVATE_LABELS:
            return _private_from(block, source, proves_primes=proves_primes)
    raise UnreadableKey(f"{source} does not contain a private key in PEM form")


def read_verification_keys(data: bytes, source: str = "key data") -> tuple[VerificationKey, ...]:
    """All keys in PEM text, in order, without duplicates."""
    keys: dict[str, VerificationKey] = {}
    for block in pem.split(data):
        public = _public_from(block, source)
        if public is not None:
            key = VerificationKey.of(public)
            keys.setdefault(key.kid, key)
    if not keys:
        raise UnreadableKey(f"{source} does not contain a usable key or certificate in PEM form")
    return tuple(keys.values())


def read_jwks(document: object, algorithms: Collection[str]) -> tuple[VerificationKey, ...]:
    """The published keys of another issuer, without unusable ones (RFC 7517 section 5).

    A key without `alg` yields one record for each permitted algorithm that fits it, so that the
    record decides on the algorithm, never the token.
    """
    entries = document.get("keys") if isinstance(document, Mapping) else None
    if not isinstance(entries, list):
        raise UnreadableKey("the key set has no list of keys")
    if len(entries) > _MAX_JWKS_KEYS:
        raise UnreadableKey(f"the key set has more than {_MAX_JWKS_KEYS} keys")
    keys: list[VerificationKey] = []
    for entry in entries:
        if isinstance(entry, Mapping) and entry.get("use", "sig") == "sig":
            keys.extend(_from_jwk(entry, algorithms))
    return tuple(keys)


def _from_jwk(entry: Mapping[str, Any], permitted: Collection[str]) -> list[VerificationKey]:
    try:
        public = jwk_public(entry)
        fixed = algorithm_of(public)
    except Refusal:
        return []
    fitting = _RSA_ALGORITHMS if isinstance(public, rsa.RSAPublicKey) else (fixed,)
    named = entry.get("alg")
    kid = entry.get("kid", "")
    if not isinstance(kid, str):
        return []
    return [
        VerificationKey(public, algorithm, kid, _checker(public, algorithm))
        for algorithm in fitting
        if algorithm in permitted and named in (None, algorithm)
    ]


def jwk_public(entry: Mapping[str, Any]) -> PublicKey:
    """The key of a JWK; raises UnreadableKey or UnsupportedKey."""
    with library_errors_as(UnreadableKey, "the JWK is not a public key"):
        return _jwk_public(entry)


def _jwk_public(entry: Mapping[str, Any]) -> PublicKey:
    kind = entry.get("kty")
    if kind == "RSA":
        numbers = rsa.RSAPublicNumbers(_int(entry["e"]), _int(entry["n"]))
        return numbers.public_key()
    if kind == "EC":
        curve = _JWK_CURVES[entry["crv"]]
        x, y = _coordinate(entry["x"], curve), _coordinate(entry["y"], curve)
        return ec.EllipticCurvePublicNumbers(x, y, curve).public_key()
    if kind == "OKP" and entry.get("crv") == "Ed25519":
        raw = b64url_decode(entry["x"].encode("ascii"))
        return ed25519.Ed25519PublicKey.from_public_bytes(raw)
    raise UnsupportedKey("only RSA, ECDSA and Ed25519 keys are supported")


def _private_from(block: pem.Block, source: str, *, proves_primes: bool = True) -> object:
    if block.headers:
        raise UnreadableKey(f"{source}: encrypted private keys are not supported")
    # The library's message may quote the input: never passed on.
    with library_errors_as(UnreadableKey, f"{source} does not contain a readable private key"):
        return serialization.load_der_private_key(
            block.data, None, unsafe_skip_rsa_key_validation=not proves_primes
        )


def _supported(key: object, source: str) -> PrivateKey:
    if not isinstance(key, PrivateKey):
        raise UnsupportedKey(f"{source}: only RSA, ECDSA and Ed25519 keys are supported")
    return key


def _public_from(block: pem.Block, source: str) -> PublicKey | None:
    if block.label in _PRIVATE_LABELS:
        return _supported(_private_from(block, source), source).public_key()
    with library_errors_as(UnreadableKey, f"{source} holds a {block.label} that cannot be read"):
        if block.label in ("PUBLIC KEY", "RSA PUBLIC KEY"):
            key: object = serialization.load_der_public_key(block.data)
        elif block.label == pem.CERTIFICATE:
            key = x509.load_der_x509_certificate(block.data).public_key()
        else:
            return None
    if not isinstance(key, PublicKey):
        raise UnsupportedKey(f"{source}: only RSA, ECDSA and Ed25519 keys are supported")
    return key


def _signer(private: PrivateKey) -> Callable[[bytes], bytes]:
    if isinstance(private, rsa.RSAPrivateKey):
        scheme = padding.PKCS1v15()
        digest = hashes.SHA256()
        return lambda message: private.sign(message, scheme, digest)
    if isinstance(private, ed25519.Ed25519PrivateKey):
        return private.sign
    _, _, size, method = _CURVES[private.curve.name]

    def sign(message: bytes) -> bytes:
        return two_numbers(private.sign(message, method), size)

    return sign


def two_numbers(signature: bytes, size: int) -> bytes:
    """An ECDSA signature as in RFC 7518 section 3.4: two numbers of `size` bytes, not DER.

    Only for our own signatures: the format is that of the library and is not checked.
    """
    first = 4 + (signature[1] > LONGEST_SHORT_FORM)  # after two tags and their lengths
    end = first + signature[first - 1]
    r, s = signature[first:end], signature[end + 2 :]
    # A number has a leading zero byte if its first bit is set, and is shorter if it is small.
    return r[-size:].rjust(size, b"\0") + s[-size:].rjust(size, b"\0")


def _checker(public: PublicKey, algorithm: str) -> Callable[[bytes, bytes], None]:
    if isinstance(public, rsa.RSAPublicKey):
        return _rsa_checker(public, algorithm)
    if isinstance(public, ed25519.Ed25519PublicKey):
        return public.verify
    return _ecdsa_checker(public)


def _rsa_checker(public: rsa.RSAPublicKey, algorithm: str) -> Callable[[bytes, bytes], None]:
    digest = _HASHES[algorithm[2:]]
    scheme: padding.AsymmetricPadding = padding.PKCS1v15()
    if algorithm.startswith("PS"):
        scheme = padding.PSS(padding.MGF1(digest), padding.PSS.DIGEST_LENGTH)
    return lambda signature, message: public.verify(signature, message, scheme, digest)


def _ecdsa_checker(public: ec.EllipticCurvePublicKey) -> Callable[[bytes, bytes], None]:
    _, _, size, method = _CURVES[public.curve.name]

    def verify(signature: bytes, message: bytes) -> None:
        # RFC 7518 section 3.4: two numbers of fixed size, nothing else.
        if len(signature) != 2 * size:
            raise InvalidSignature
        r = int.from_bytes(signature[:size], "big")
        s = int.from_bytes(signature[size:], "big")
        # Zero made some implementations accept anything (CVE-2022-21449).
        if r == 0 or s == 0:
            raise InvalidSignature
        public.verify(encode_dss_signature(r, s), message, method)

    return verify


def _uint(value: int, size: int = 0) -> str:
    length = size or (value.bit_length() + 7) // 8
    return b64url_encode(value.to_bytes(length, "big")).decode()


def _coordinate(text: str, curve: ec.EllipticCurve) -> int:
    """A number no larger than the curve has: the library takes seconds for a huge one."""
    number = _int(text)
    if number.bit_length() > curve.key_size:
        raise UnsupportedKey("a coordinate of the key is larger than its curve")
    return number


def _int(text: str) -> int:
    return int.from_bytes(b64url_decode(text.encode("ascii")), "big")
