"""Verified chains: by what their certificates are recognized, and when the first of them ends."""

import hashlib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from orchid.kernel.credentials.refusals import CertificateRefused
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.credentials.x509.trust.certification_path import ClientVerifier
from orchid.kernel.credentials.x509.trust.verified_chain import (
    VerifiedChain,
    refuse_other_encodings,
)
from tests.security.certified import mirrored, respelled
from tests.unit.kernel.credentials import samples
from tests.unit.kernel.credentials.chains import Key, authority, make
from tests.unit.kernel.credentials.samples import HOUR, NOW

CURVES = [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()]


def verified(leaf: bytes, root: x509.Certificate, *others: bytes) -> VerifiedChain:
    return ClientVerifier([root]).verify(leaf, others, NOW)


def chain(key: Key) -> tuple[bytes, x509.Certificate]:
    return certificates.encode(make(signer=key)), authority(key=key)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)
def test_both_encodings_of_an_ecdsa_signature_have_the_same_fingerprints(
    curve: ec.EllipticCurve,
) -> None:
    """Whichever of the two is presented, both are looked up, and the number is the same."""
    leaf, root = chain(ec.generate_private_key(curve))
    other = mirrored(leaf, curve)

    one, two = verified(leaf, root), verified(other, root)

    assert leaf != other
    assert one.fingerprints == two.fingerprints >= {sha256(leaf), sha256(other)}
    assert (one.serial, one.issuer_key) == (two.serial, two.issuer_key)
    assert (one.sha256, two.sha256) == (sha256(leaf), sha256(other))


def test_an_rsa_signature_has_one_encoding() -> None:
    """The fingerprints are those of the certificate and of its authority."""
    leaf, root = chain(samples.rsa_key())

    found = verified(leaf, root)

    assert found.fingerprints == {sha256(leaf), sha256(certificates.encode(root))}


@pytest.mark.parametrize("at", ["leaf", "intermediate"])
def test_bytes_that_are_no_distinguished_encoding_are_refused(at: str) -> None:
    """Unused bits after the signature change nothing that is verified, only the fingerprint."""
    key, root = ec.generate_private_key(ec.SECP256R1()), authority()
    made = [
        (make(issuer="middle", signer=key), make("middle", key=key, ca=True, usages=None))
        for _ in range(64)
    ]
    place = ("leaf", "intermediate").index(at)
    leaf, middle = next(
        (certificates.encode(one[0]), certificates.encode(one[1]))
        for one in made
        if not one[place].signature[-1] & 1
    )
    sent = [leaf, middle]
    sent[place] = respelled(sent[place], unused=1)

    assert verified(leaf, root, middle)
    with pytest.raises(CertificateRefused, match="distinguished encoding"):
        verified(sent[0], root, sent[1])


def test_a_certificate_in_its_own_bytes_is_not_refused() -> None:
    """Whatever the key of its issuer."""
    for key in (samples.P256, samples.rsa_key(), samples.ED25519):
        data, _ = chain(key)
        refuse_other_encodings(certificates.parse(data), data)


@pytest.mark.parametrize("first", [0, 1, 2], ids=["leaf", "intermediate", "root"])
def test_a_chain_ends_with_the_first_of_its_certificates(first: int) -> None:
    """Whichever that is: afterwards nobody accepts the leaf."""
    ends = [NOW + (HOUR if index == first else 2 * HOUR) for index in range(3)]
    leaf, middle, root = ends

    found = VerifiedChain([make(end=leaf), make(ca=True, end=middle), authority(end=root)])

    assert found.end == NOW + HOUR
