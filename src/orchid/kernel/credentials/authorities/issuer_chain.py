"""Chains of authorities: checks that a certificate can issue, with its key (RFC 5280, 4.2.1).

`refuse_unfit` checks static properties, `refuse_out_of_time` the validity. In a chain that passes,
a verifier can build a path from an issued certificate to the last link: each link is a CA that may
sign, issued by the next, and no constraint above forbids what is below. Trust in the last link is
not checked here.
"""

import datetime
import itertools
from collections.abc import Sequence
from typing import TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from orchid.kernel.credentials.authorities.authority_keys import AuthorityKey, refuse_unsupported
from orchid.kernel.credentials.keys import spki
from orchid.kernel.credentials.refusals import (
    AuthorityExpired,
    AuthorityUnusable,
    BrokenChain,
    KeyMismatch,
    NoCommonPurpose,
    NotAnAuthority,
    NotPermittedToSign,
    NotYetAuthority,
    PathTooLong,
    Refusal,
    library_errors_as,
)
from orchid.kernel.credentials.x509 import pem
from orchid.kernel.credentials.x509.certificates import encode, is_authority, public_key_of

MAX_CHAIN = 8

Extension = TypeVar("Extension", bound=x509.ExtensionType)


def refuse_unfit(chain: Sequence[x509.Certificate], key: AuthorityKey) -> None:
    """Refuse a chain, issuing certificate first, that cannot issue with this key."""
    _refuse_length(chain)
    try:
        refuse_unsupported(key.public_key())
    except Refusal as refusal:
        raise AuthorityUnusable(str(refusal)) from None
    if spki_of(chain[0]) != spki(key.public_key()):
        raise KeyMismatch("tls: private key does not match public key")
    refuse_broken(chain)


def refuse_broken(chain: Sequence[x509.Certificate]) -> None:
    """Refuse a chain that is not one of authorities, each signed by the next."""
    _refuse_length(chain)
    for link in chain:
        _refuse_no_authority(link)
    for lower, upper in itertools.pairwise(chain):
        _refuse_unconnected(lower, upper)
    _refuse_long_path(chain)
    if purposes(chain) == frozenset():
        raise NoCommonPurpose("the certificates of the chain have no extended key usage in common")


def refuse_out_of_time(chain: Sequence[x509.Certificate], now: datetime.datetime) -> None:
    """Refuse a chain with a certificate that is not yet valid or has expired."""
    for link in chain:
        begin, end = link.not_valid_before_utc, link.not_valid_after_utc
        if now < begin:
            raise NotYetAuthority(f"a certificate of the chain is not yet valid: NotBefore={begin}")
        if now >= end:
            raise AuthorityExpired(f"a certificate of the chain has expired: NotAfter={end}")


def purposes(chain: Sequence[x509.Certificate]) -> frozenset[str] | None:
    """Extended key usages that the whole chain permits; None if unlimited."""
    common: frozenset[str] | None = None
    for link in chain:
        usages = _extension(link, x509.ExtendedKeyUsage)
        if usages is None or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in usages:
            continue
        permitted = frozenset(usage.dotted_string for usage in usages)
        common = permitted if common is None else common & permitted
    return common


def may_sign_lists(certificate: x509.Certificate) -> bool:
    """True unless key usage lacks cRLSign."""
    usage = _extension(certificate, x509.KeyUsage)
    return usage is None or usage.crl_sign


def may_certify(certificate: x509.Certificate) -> bool:
    """Whether its path length permits another authority below."""
    constraints = _extension(certificate, x509.BasicConstraints)
    return constraints is not None and constraints.path_length != 0


def subject_key_id(certificate: x509.Certificate) -> bytes:
    """The subject key identifier, or b""."""
    found = _extension(certificate, x509.SubjectKeyIdentifier)
    return b"" if found is None else found.digest


def issuer_key_id(certificate: x509.Certificate) -> bytes:
    """The authority key identifier, or b""."""
    found = _extension(certificate, x509.AuthorityKeyIdentifier)
    return (found.key_identifier or b"") if found else b""


def is_issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Whether the certificate names the issuer and is signed with its key."""
    try:
        _refuse_unconnected(certificate, issuer)
    except BrokenChain:
        return False
    return True


def spki_of(certificate: x509.Certificate) -> bytes:
    """The canonical encoding of a certificate's key, or b"" if it cannot be parsed."""
    key = public_key_of(certificate)
    if key is None:
        return b""
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _refuse_length(chain: Sequence[x509.Certificate]) -> None:
    if not 0 < len(chain) <= MAX_CHAIN:
        raise AuthorityUnusable(f"expected 1 to {MAX_CHAIN} certificates, found {len(chain)}")


def _refuse_no_authority(link: x509.Certificate) -> None:
    if not is_authority(link):
        raise NotAnAuthority("the certificate does not have the CA bit set")
    usage = _extension(link, x509.KeyUsage)
    if usage is not None and not usage.key_cert_sign:
        raise NotPermittedToSign("the key usage of the certificate does not permit to sign others")


def _refuse_unconnected(lower: x509.Certificate, upper: x509.Certificate) -> None:
    with library_errors_as(BrokenChain, "the certificates do not form a chain"):
        lower.verify_directly_issued_by(upper)


def _refuse_long_path(chain: Sequence[x509.Certificate]) -> None:
    below = 0  # CAs below the current one; self-issued ones do not count
    for link in chain:
        constraints = _extension(link, x509.BasicConstraints)
        longest = None if constraints is None else constraints.path_length
        if longest is not None and below > longest:
            raise PathTooLong(
                f"the chain has {below} authorities below one that permits {longest} (path length)"
            )
        below += link.subject != link.issuer


def _extension(certificate: x509.Certificate, kind: type[Extension]) -> Extension | None:
    for extension in certificate.extensions:
        if isinstance(extension.value, kind):
            return extension.value
    return None


def encode_intermediates(chain: tuple[x509.Certificate, ...]) -> bytes:
    """PEM of the certificates between a leaf and a root: each that has a parent, once."""
    return b"".join(
        pem.encode(pem.CERTIFICATE, encode(certificate))
        for certificate in dict.fromkeys(chain)
        if not _is_root(certificate)
    )


def _is_root(certificate: x509.Certificate) -> bool:
    """Whether it is its own issuer; one of another key may have the same name."""
    above = issuer_key_id(certificate)
    is_same_key = not above or above == subject_key_id(certificate)
    return certificate.issuer == certificate.subject and is_same_key
