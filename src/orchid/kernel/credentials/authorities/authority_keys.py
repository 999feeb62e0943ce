"""Keys of authorities: generate, parse, sign, and name the algorithm.

Start with `generate(algorithm)` or `read(pem_text)`; `signer(key)` returns the X.509 signature
algorithm and the signing function. `algorithm_name` names a public key as settings and profiles do:
ECDSA-P256, RSA-3072, Ed25519, ML-DSA-65. Generating an RSA key takes seconds: run it in a thread.
Keys for tokens are in kernel/credentials/keys.py; ML-DSA signs no tokens.

`read_untrusted` is for keys from requests: it is never slow. The library proves the factors of an
RSA key prime, which takes 0.4 s for 4,096 bits and 6 s for 8,192, with the interpreter lock
held. Checking that the numbers of a key are consistent takes no time.
"""

from collections.abc import Callable
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, mldsa, padding, rsa

from orchid.kernel.credentials.authorities import rsa_process
from orchid.kernel.credentials.keys import (
    PrivateKey,
    PublicKey,
    algorithm_of,
    find_private_key,
)
from orchid.kernel.credentials.refusals import UnreadableKey, UnsupportedKey
from orchid.kernel.credentials.x509 import der

AuthorityKey = PrivateKey | mldsa.MLDSA65PrivateKey
CertifiedKey = PublicKey | mldsa.MLDSA65PublicKey

ECDSA_P256: Final = "ECDSA-P256"
ML_DSA_65: Final = "ML-DSA-65"
MAX_UNTRUSTED_RSA_BITS: Final = 4096  # signing with 8,192 bits takes 60 ms

# Generators of keys, by the algorithm name in settings.
_GENERATORS: dict[str, Callable[[], AuthorityKey]] = {
    ECDSA_P256: lambda: ec.generate_private_key(ec.SECP256R1()),
    "ECDSA-P384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "RSA-3072": lambda: rsa_process.generate(3072),
    "RSA-4096": lambda: rsa_process.generate(4096),
    "Ed25519": ed25519.Ed25519PrivateKey.generate,
    ML_DSA_65: mldsa.MLDSA65PrivateKey.generate,
}
ALGORITHMS: Final = tuple(_GENERATORS)

_CURVES = {"secp256r1": ECDSA_P256, "secp384r1": "ECDSA-P384", "secp521r1": "ECDSA-P521"}


def _identifier(oid: str, parameters: bytes = b"") -> bytes:
    return der.encode(der.SEQUENCE, der.encode_oid(oid), parameters)


_RSA_SHA256 = _identifier("1.2.840.113549.1.1.11", der.encode(0x05))
_ED25519 = _identifier("1.3.101.112")
_ML_DSA = _identifier("2.16.840.1.101.3.4.3.18")  # RFC 9881 section 2: no parameters
_ECDSA: dict[str, tuple[bytes, ec.ECDSA]] = {
    "secp256r1": (_identifier("1.2.840.10045.4.3.2"), ec.ECDSA(hashes.SHA256())),
    "secp384r1": (_identifier("1.2.840.10045.4.3.3"), ec.ECDSA(hashes.SHA384())),
    "secp521r1": (_identifier("1.2.840.10045.4.3.4"), ec.ECDSA(hashes.SHA512())),
}


def _prefix(identifier: bytes, octets: int) -> bytes:
    """The DER before the key bits of this length in a SubjectPublicKeyInfo (RFC 5280)."""
    return der.encode(der.SEQUENCE, identifier, der.encode_bits(bytes(octets)))[:-octets]


def _ec_prefix(curve: str, octets: int) -> bytes:
    """The same, with the octet for an uncompressed point (RFC 5480, 2.2)."""
    return _prefix(_identifier("1.2.840.10045.2.1", der.encode_oid(curve)), octets) + b"\x04"


# Algorithms of fixed key size, by the prefix of their canonical encoding.
_PREFIXES = {
    _ec_prefix("1.2.840.10045.3.1.7", 65): ECDSA_P256,
    _ec_prefix("1.3.132.0.34", 97): "ECDSA-P384",
    _ec_prefix("1.3.132.0.35", 133): "ECDSA-P521",
    _prefix(_ED25519, 32): "Ed25519",
    _prefix(_ML_DSA, 1952): ML_DSA_65,
}


def generate(algorithm: str) -> AuthorityKey:
    """Generate a key; raises UnsupportedKey for a name outside of `ALGORITHMS`."""
    if algorithm not in _GENERATORS:
        raise UnsupportedKey(f"key algorithm {algorithm} is not one of {', '.join(ALGORITHMS)}")
    return _GENERATORS[algorithm]()


def read(data: bytes, source: str = "key data") -> AuthorityKey:
    """The first private key in PEM text; refuses weak keys, and types that do not sign."""
    return _fit(find_private_key(data, source), source)


def read_untrusted(data: bytes, source: str = "key data") -> AuthorityKey:
    """`read` for a key from a request: refuses large RSA keys and skips the primality proof."""
    key = _fit(find_private_key(data, source, proves_primes=False), source)
    if isinstance(key, rsa.RSAPrivateKey):
        if key.key_size > MAX_UNTRUSTED_RSA_BITS:
            text = f"the RSA key of an authority has at most {MAX_UNTRUSTED_RSA_BITS} bits"
            raise UnsupportedKey(f"{text}, not {key.key_size}")
        if not _fits_together(key.private_numbers()):
            raise UnreadableKey(f"{source} does not contain a readable private key")
    return key


def _fits_together(numbers: rsa.RSAPrivateNumbers) -> bool:
    """Whether the numbers of an RSA key are consistent (RFC 8017 section 3.2)."""
    p, q, d, e = numbers.p, numbers.q, numbers.d, numbers.public_numbers.e
    return (
        p % 2 == q % 2 == 1
        and min(p, q) > 1
        and p * q == numbers.public_numbers.n
        and e * d % (p - 1) == e * d % (q - 1) == 1
        and (numbers.dmp1, numbers.dmq1) == (d % (p - 1), d % (q - 1))
        and numbers.iqmp * q % p == 1
    )


def _fit(key: object, source: str) -> AuthorityKey:
    if not isinstance(key, AuthorityKey):
        raise UnsupportedKey(f"{source}: only RSA, ECDSA, Ed25519 and ML-DSA-65 keys are supported")
    refuse_unsupported(key.public_key())
    return key


def refuse_unsupported(public: CertifiedKey) -> None:
    """Refuse weak keys and unsupported curves."""
    if not isinstance(public, mldsa.MLDSA65PublicKey):
        algorithm_of(public)


def algorithm_name(public: CertifiedKey) -> str:
    """Algorithm and size of a public key; an unknown curve by its own name."""
    if isinstance(public, rsa.RSAPublicKey):
        return f"RSA-{public.key_size}"
    if isinstance(public, ec.EllipticCurvePublicKey):
        return _CURVES.get(public.curve.name, f"ECDSA-{public.curve.name}")
    return "Ed25519" if isinstance(public, ed25519.Ed25519PublicKey) else ML_DSA_65


def algorithm_by_prefix(spki: bytes) -> str:
    """`algorithm_name` of a DER public key, without parsing it; empty for RSA and others.

    A key with such a name that can be parsed is in its canonical encoding: the prefix is unique.
    """
    for start, name in _PREFIXES.items():
        if spki.startswith(start):
            return name
    return ""


def signer(key: AuthorityKey) -> tuple[bytes, Callable[[bytes], bytes]]:
    """The algorithm identifier in DER, and the signing function."""
    if isinstance(key, rsa.RSAPrivateKey):
        return _RSA_SHA256, lambda body: key.sign(body, padding.PKCS1v15(), hashes.SHA256())
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return _ED25519, key.sign
    if isinstance(key, mldsa.MLDSA65PrivateKey):
        return _ML_DSA, key.sign
    if key.curve.name not in _ECDSA:
        raise UnsupportedKey(f"elliptic curve {key.curve.name} is not supported")
    identifier, method = _ECDSA[key.curve.name]
    return identifier, lambda body: key.sign(body, method)


def verify(key: object, signature: bytes, body: bytes) -> None:
    """Verify a signature of `signer`; raises InvalidSignature, also for a key of another type."""
    if isinstance(key, rsa.RSAPublicKey):
        key.verify(signature, body, padding.PKCS1v15(), hashes.SHA256())
    elif isinstance(key, ed25519.Ed25519PublicKey | mldsa.MLDSA65PublicKey):
        key.verify(signature, body)
    elif isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _ECDSA:
        key.verify(signature, body, _ECDSA[key.curve.name][1])
    else:
        raise InvalidSignature
