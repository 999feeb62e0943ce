"""Identity of a verified chain, which the holder of a certificate cannot change.

The bytes of a certificate do not identify it. An ECDSA signature (r, s) is also valid as (r, n-s),
and anybody can compute one from the other: other bytes, another SHA-256, the same certificate.
`refuse_other_encodings` refuses all other encodings, and `VerifiedChain` has the fingerprints of
both, so that a revocation of either applies to both.
"""

import datetime
import functools
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from orchid.kernel.credentials.refusals import CertificateRefused, library_errors_as
from orchid.kernel.credentials.x509 import der
from orchid.kernel.credentials.x509.certificates import (
    CertificateContents,
    encode,
    public_key_of,
    read,
    read_contents,
    read_parts,
    serial_name,
)


class VerifiedChain:
    """A certificate that was verified, and its issuers up to an authority of the pool."""

    def __init__(self, certificates: Sequence[x509.Certificate]) -> None:
        self.certificates = tuple(certificates)
        self.leaf, self.issuer = self.certificates[:2]
        data = encode(self.leaf)
        self.serial = serial_name(read_parts(data).serial)
        self.sha256 = _fingerprint(data)
        self.fingerprints = frozenset(_fingerprints(self.certificates))

    @property
    def end(self) -> datetime.datetime:
        """When the first certificate of the chain expires."""
        return min(certificate.not_valid_after_utc for certificate in self.certificates)

    @functools.cached_property
    def issuer_key(self) -> str:
        """SHA-256 of the public key that signed the leaf, in hex."""
        return key_fingerprint(self.issuer)

    @functools.cached_property
    def issuer_keys(self) -> frozenset[str]:
        """SHA-256 of the public keys that signed certificates of the chain, in hex."""
        return frozenset(map(key_fingerprint, self.certificates[1:]))

    @functools.cached_property
    def contents(self) -> CertificateContents:
        """The names in the leaf."""
        return read_contents(read(encode(self.leaf)))


def key_fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 of the public key of a certificate (SPKI), in hex."""
    return _fingerprint(read_parts(encode(certificate)).key)


def refuse_other_encodings(certificate: x509.Certificate, data: bytes) -> None:
    """Refuse bytes that encode the same certificate in another way than DER.

    The library verifies its own encoding of what it has parsed, not the received bytes.
    """
    if data != _with_signature(certificate, certificate.signature):
        raise CertificateRefused("x509: certificate is not in its distinguished encoding")


def has_issued(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
    """Whether a certificate names this issuer and has its signature."""
    if certificate.issuer != issuer.subject:
        return False
    try:
        with library_errors_as(CertificateRefused, "the signature cannot be verified"):
            certificate.verify_directly_issued_by(issuer)
    except CertificateRefused:
        return False
    return True


def has_ecdsa_key(issuer: x509.Certificate) -> bool:
    """Whether a certificate that it issues is valid in two encodings."""
    return isinstance(public_key_of(issuer), ec.EllipticCurvePublicKey)


def other_fingerprints(
    certificate: x509.Certificate, issuers: Iterable[x509.Certificate]
) -> tuple[str, ...]:
    """SHA-256 of a certificate in the other encoding, if one of these has issued it with ECDSA."""
    fingerprints = (
        _other_fingerprint(certificate, each) for each in issuers if has_issued(each, certificate)
    )
    return tuple({fingerprint: None for fingerprint in fingerprints if fingerprint})


def _fingerprints(certificates: Sequence[x509.Certificate]) -> Iterator[str]:
    """SHA-256 of each certificate, in every valid encoding."""
    for certificate, issuer in itertools.pairwise(certificates):
        yield _fingerprint(encode(certificate))
        if other := _other_fingerprint(certificate, issuer):
            yield other
    yield _fingerprint(encode(certificates[-1]))  # of the pool: nobody else chose its bytes


def _other_fingerprint(certificate: x509.Certificate, issuer: x509.Certificate) -> str:
    key = public_key_of(issuer)
    if not isinstance(key, ec.EllipticCurvePublicKey):
        return ""
    r, s = decode_dss_signature(certificate.signature)
    other = encode_dss_signature(r, key.curve.group_order - s)
    return _fingerprint(_with_signature(certificate, other))


def _with_signature(certificate: x509.Certificate, signature: bytes) -> bytes:
    return der.encode(
        der.SEQUENCE,
        certificate.tbs_certificate_bytes,
        read_parts(encode(certificate)).algorithm,
        der.encode_bits(signature),
    )


def _fingerprint(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
