"""Authorities of every key algorithm, made once each, and readers of their signatures not ours."""

from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import mldsa

from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.authorities.authority_keys import ALGORITHMS
from tests.unit.kernel.credentials.samples import NOW

ML_DSA = "ML-DSA-65"
KNOWN_TO_OPENSSL = tuple(algorithm for algorithm in ALGORITHMS if algorithm != ML_DSA)


@cache
def own(algorithm: str) -> Authority:
    """Give the authority with a key of this algorithm."""
    return Authority.create(f"own {algorithm}", now=NOW, algorithm=algorithm)


def is_ml_dsa_signature(authority: x509.Certificate, body: bytes, signature: bytes) -> bool:
    """Verify with an implementation in Python, which shares nothing with the one that signed."""
    from dilithium_py.ml_dsa import ML_DSA_65  # not before it is needed: it is slow to load

    key = authority.public_key()
    assert isinstance(key, mldsa.MLDSA65PublicKey)
    return bool(ML_DSA_65.verify(key.public_bytes_raw(), body, signature))


def write(directory: Path, **contents: bytes) -> list[Path]:
    """Write files for a program, each named as its argument."""
    written = [directory / f"{name}.pem" for name in contents]
    for path, content in zip(written, contents.values(), strict=True):
        path.write_bytes(content)
    return written
