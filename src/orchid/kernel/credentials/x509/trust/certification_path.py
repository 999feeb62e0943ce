"""Verification of client certificates by certification path (RFC 5280 section 6).

Start with `ClientVerifier`: it verifies a chain up to a pool of CAs at a given time. The identity
is read afterwards (`certificates.identify`).

The X.509 library builds the path and verifies signatures and name constraints. For certificates
without alternative names its only policy is "permit everything", so the rest is checked here: CAs
that are none or are limited to other purposes, a leaf of the wrong usage, weak keys. Revocation is
not checked here.

The library tries intermediates of the same name in every order, and verifies up to two hundred
signatures for eight certificates that anybody may send. So it only gets those that were issued by
the pool, directly or indirectly (`_issued_below`).
"""

import datetime
from collections.abc import Iterable, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID

from orchid.kernel.credentials import files
from orchid.kernel.credentials.keys import refuse_weak_rsa
from orchid.kernel.credentials.refusals import (
    CertificateRefused,
    Refusal,
    UnsupportedKey,
    library_errors_as,
)
from orchid.kernel.credentials.x509.certificates import (
    describe,
    encode,
    is_authority,
    parse,
    parse_blocks,
    public_key_of,
)
from orchid.kernel.credentials.x509.trust.verified_chain import (
    VerifiedChain,
    has_issued,
    refuse_other_encodings,
)

MAX_CHAIN = 8

_CURVES = ("secp256r1", "secp384r1", "secp521r1")
_FOR_CLIENTS = frozenset(
    (ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE)
)


class ClientVerifier:
    """Verify client certificates against a pool of CAs.

    Immutable; use `files.Reloading` to follow a file. A leaf must have the extended key usage
    "client auth" (or "any"); Kubernetes also accepts a leaf without any.
    """

    def __init__(self, authorities: Iterable[x509.Certificate]) -> None:
        self.authorities = tuple(authorities)
        if not self.authorities:
            raise CertificateRefused("the pool of client authorities is empty")
        for authority in self.authorities:
            _refuse_unfit_authority(authority)
        self._encoded = frozenset(encode(authority) for authority in self.authorities)
        self._store = verification.Store(list(self.authorities))
        self._leaf_policy = verification.ExtensionPolicy.permit_all()
        # Every issuer needs basic constraints, also one in the pool. Without the key usage
        # extension a CA may sign (many older ones lack it), with it only if it has keyCertSign; and
        # one with extended key usages needs client auth.
        self._issuer_policy = (
            verification.ExtensionPolicy.permit_all()
            .require_present(
                x509.BasicConstraints, verification.Criticality.AGNOSTIC, _require_authority
            )
            .may_be_present(
                x509.KeyUsage, verification.Criticality.AGNOSTIC, _require_certificate_signing
            )
            .may_be_present(
                x509.ExtendedKeyUsage, verification.Criticality.AGNOSTIC, _require_client_purpose
            )
            .may_be_present(
                x509.NameConstraints, verification.Criticality.AGNOSTIC, _refuse_subject_limits
            )
        )

    @property
    def end(self) -> datetime.datetime:
        """When the last CA expires; from then on none of their certificates is accepted."""
        return max(authority.not_valid_after_utc for authority in self.authorities)

    @classmethod
    def load(cls, path: Path) -> "ClientVerifier":
        """Load the pool from a PEM file."""
        return cls(parse_blocks(files.read_bounded(path)))

    def verify(
        self, leaf: bytes, intermediates: Sequence[bytes], now: datetime.datetime
    ) -> VerifiedChain:
        """Return the verified chain of a leaf; raise CertificateRefused otherwise."""
        certificate = parse(leaf)
        try:
            # The library parses keys on access: force all of it.
            with library_errors_as(CertificateRefused, "x509: certificate cannot be verified"):
                refuse_other_encodings(certificate, leaf)
                # OpenSSL sends the root, too, if the client trusts it: it is in the pool already.
                sent = (data for data in intermediates[:MAX_CHAIN] if data not in self._encoded)
                others = [_parse_strictly(data) for data in sent]
                return VerifiedChain(self._verify(certificate, others, now))
        except Refusal as refusal:
            raise CertificateRefused(
                f"verifying certificate {describe(certificate)} failed: {refusal}"
            ) from None

    def _verify(
        self,
        leaf: x509.Certificate,
        intermediates: list[x509.Certificate],
        now: datetime.datetime,
    ) -> Sequence[x509.Certificate]:
        _refuse_out_of_time(leaf, now)
        _refuse_wrong_usage(leaf)
        for certificate in (leaf, *intermediates):
            _refuse_weak_key(certificate)
        verifier = (
            verification.PolicyBuilder()
            .store(self._store)
            .time(now)
            .max_chain_depth(MAX_CHAIN)
            .extension_policies(ca_policy=self._issuer_policy, ee_policy=self._leaf_policy)
            .build_client_verifier()
        )
        try:
            return verifier.verify(leaf, _issued_below(self.authorities, intermediates)).chain
        except (verification.VerificationError, ValueError, UnsupportedAlgorithm):
            # The library's message names its internals.
            raise CertificateRefused("x509: certificate signed by unknown authority") from None


def _issued_below(
    authorities: Sequence[x509.Certificate], intermediates: Iterable[x509.Certificate]
) -> list[x509.Certificate]:
    """The intermediates with a path to a CA of the pool, without duplicates."""
    below: list[x509.Certificate] = []
    issuers, rest = authorities, list(dict.fromkeys(intermediates))
    while issuers:
        issuers = [
            certificate
            for certificate in rest
            if any(has_issued(issuer, certificate) for issuer in issuers)
        ]
        rest = [certificate for certificate in rest if certificate not in issuers]
        below += issuers
    return below


def _parse_strictly(data: bytes) -> x509.Certificate:
    certificate = parse(data)
    refuse_other_encodings(certificate, data)
    return certificate


def _refuse_out_of_time(leaf: x509.Certificate, now: datetime.datetime) -> None:
    if now < leaf.not_valid_before_utc:
        raise CertificateRefused("x509: certificate is not yet valid")
    # The last second is included (RFC 5280 section 4.1.2.5).
    if now.replace(microsecond=0) > leaf.not_valid_after_utc:
        raise CertificateRefused("x509: certificate has expired")


def _refuse_wrong_usage(leaf: x509.Certificate) -> None:
    if is_authority(leaf):
        raise CertificateRefused("x509: an authority's certificate does not prove a client")
    try:
        usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        raise CertificateRefused("x509: certificate does not permit client auth") from None
    if _FOR_CLIENTS.isdisjoint(usages):
        raise CertificateRefused("x509: certificate specifies an incompatible key usage")


def _refuse_unfit_authority(certificate: x509.Certificate) -> None:
    if not is_authority(certificate):
        raise CertificateRefused(
            f"certificate {describe(certificate)} in the pool is not an authority's"
        )
    _refuse_weak_key(certificate)
    if isinstance(public_key_of(certificate), ed25519.Ed25519PublicKey):
        # The path builder of the X.509 library does not support Ed25519 issuers: fail at the start,
        # not with the first client.
        raise CertificateRefused("client authorities with Ed25519 keys are not supported")


def _refuse_weak_key(certificate: x509.Certificate) -> None:
    key = public_key_of(certificate)
    if isinstance(key, rsa.RSAPublicKey):
        try:
            refuse_weak_rsa(key)
        except UnsupportedKey:
            raise CertificateRefused("x509: the certificate's key is not acceptable") from None
        return
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _CURVES:
        return
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise CertificateRefused("x509: the certificate's key is not acceptable")


def _require_authority(
    _policy: verification.Policy, _certificate: x509.Certificate, value: x509.BasicConstraints
) -> None:
    if not value.ca:
        raise ValueError("not an authority")


def _require_certificate_signing(
    _policy: verification.Policy, _certificate: x509.Certificate, value: x509.KeyUsage | None
) -> None:
    if value is not None and not value.key_cert_sign:
        raise ValueError("not permitted to sign certificates")


def _require_client_purpose(
    _policy: verification.Policy,
    _certificate: x509.Certificate,
    value: x509.ExtendedKeyUsage | None,
) -> None:
    if value is not None and _FOR_CLIENTS.isdisjoint(value):
        raise ValueError("limited to other purposes than client auth")


def _refuse_subject_limits(
    _policy: verification.Policy,
    _certificate: x509.Certificate,
    value: x509.NameConstraints | None,
) -> None:
    """Refuse name constraints on subjects, which the library ignores if they are not critical.

    It refuses critical ones itself. Here the subject is the identity of the client.
    """
    if value is None:
        return
    limits = (*(value.permitted_subtrees or ()), *(value.excluded_subtrees or ()))
    if any(isinstance(limit, x509.DirectoryName) for limit in limits):
        raise ValueError("limits on subjects are not supported")
