"""Authorities of every key algorithm: made, kept, read again, and believed by other programs."""

import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed448

from orchid.kernel.credentials.authorities import authority_keys
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.authorities.authority_keys import ALGORITHMS, algorithm_name
from orchid.kernel.credentials.keys import encode_private
from orchid.kernel.credentials.refusals import AuthorityUnusable, UnreadableKey, UnsupportedKey
from orchid.kernel.credentials.x509 import certificates, names, signing_request
from tests.linting import unexplained
from tests.system_packages import require_program
from tests.unit.kernel.credentials import samples
from tests.unit.kernel.credentials.own_authorities import (
    KNOWN_TO_OPENSSL,
    ML_DSA,
    is_ml_dsa_signature,
    own,
    write,
)
from tests.unit.kernel.credentials.samples import (
    CLIENT_USAGES,
    DAY,
    HOUR,
    NODE_CLIENT,
    NOW,
    request,
)

# It cannot verify ML-DSA, and so cannot see that the root is signed by itself.
UNKNOWN_TO_THE_LINTER = {ML_DSA: {"pkix.aki_absent_self_issued_and_unsupported_algorithm"}}


def issued(ca: Authority) -> bytes:
    parsed = signing_request.parse(request())
    return ca.sign(parsed, CLIENT_USAGES, HOUR, profile=NODE_CLIENT, now=NOW)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_new_authority_is_a_root_that_signs_certificates_and_lists(algorithm: str) -> None:
    """Its key is of the algorithm that was asked for, and it says what it is for."""
    ca = own(algorithm).certificate

    found = {type(entry.value): entry for entry in ca.extensions}
    assert algorithm_name(ca.public_key()) == algorithm
    ca.verify_directly_issued_by(ca)
    assert ca.issuer == ca.subject
    assert found[x509.BasicConstraints].critical
    assert found[x509.BasicConstraints].value == x509.BasicConstraints(ca=True, path_length=None)
    usage = found[x509.KeyUsage].value
    assert usage == x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    assert found[x509.KeyUsage].critical
    assert found.keys() == {x509.BasicConstraints, x509.KeyUsage, x509.SubjectKeyIdentifier}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_authority_read_again_signs_as_before(algorithm: str) -> None:
    """Its PEM is all there is to it."""
    ca = own(algorithm)
    again = Authority.load(ca.chain_pem, ca.key_pem().reveal().encode(), now=NOW)

    leaf = certificates.parse_blocks(issued(again))[0]

    leaf.verify_directly_issued_by(ca.certificate)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_authorities_of_every_algorithm_issue_has_no_lint(algorithm: str) -> None:
    """The root and a certificate by it, read by pkilint."""
    assert unexplained(own(algorithm).certificate) <= UNKNOWN_TO_THE_LINTER.get(algorithm, set())
    assert unexplained(certificates.parse_blocks(issued(own(algorithm)))[0]) == set()


@pytest.mark.parametrize("algorithm", KNOWN_TO_OPENSSL)
def test_openssl_believes_authorities_of_every_algorithm_it_knows(
    algorithm: str, tmp_path: Path
) -> None:
    """The chain and the purpose, strictly."""
    openssl = require_program("openssl")
    ca = own(algorithm)
    paths = write(tmp_path, ca=ca.certificate_pem, leaf=issued(ca))
    at = str(int(NOW.timestamp()))
    strict = ["-x509_strict", "-check_ss_sig", "-purpose", "sslclient", "-attime", at]

    shown = subprocess.run(
        [openssl, "verify", *strict, "-CAfile", *paths], capture_output=True, check=False
    )

    assert shown.returncode == 0, shown.stderr


def test_an_ml_dsa_chain_is_believed_by_another_implementation() -> None:
    """Root and leaf are verified by a program that did not sign them."""
    ca = own(ML_DSA).certificate
    leaf = certificates.parse_blocks(issued(own(ML_DSA)))[0]

    for link in (ca, leaf):
        assert is_ml_dsa_signature(ca, link.tbs_certificate_bytes, link.signature)
    assert not is_ml_dsa_signature(ca, leaf.tbs_certificate_bytes + b"\0", leaf.signature)


def test_a_subject_and_a_life_can_be_given() -> None:
    """Several attributes, written as in every certificate of ours."""
    subject = names.subject("Example Web CA", ["Example"])

    ca = Authority.create(subject, now=NOW, lifetime=90 * DAY).certificate

    assert ca.subject.rfc4514_string() == "CN=Example Web CA,O=Example"
    assert ca.not_valid_after_utc == NOW + 90 * DAY


def test_an_authority_without_a_name_is_not_made() -> None:
    """Nobody could say who issued a certificate (RFC 5280 section 4.1.2.4)."""
    with pytest.raises(AuthorityUnusable, match="subject"):
        Authority.create("", now=NOW)


@pytest.mark.parametrize("algorithm", ["", "RSA-1024", "ecdsa-p256", "ML-DSA-44", "Ed448"])
def test_an_unknown_algorithm_is_refused(algorithm: str) -> None:
    """The refusal lists those that there are."""
    with pytest.raises(UnsupportedKey, match=r"ECDSA-P256, .*ML-DSA-65"):
        authority_keys.generate(algorithm)


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        (b"nothing", UnreadableKey),
        (samples.DATA.joinpath("keys", "p256-encrypted-pkcs8.pem").read_bytes(), UnreadableKey),
        (samples.DATA.joinpath("keys", "rsa-1024-pkcs8.pem").read_bytes(), UnsupportedKey),
        (samples.DATA.joinpath("keys", "secp256k1-sec1.pem").read_bytes(), UnsupportedKey),
        (encode_private(ed448.Ed448PrivateKey.generate()).encode(), UnsupportedKey),
    ],
    ids=["none", "encrypted", "rsa-1024", "secp256k1", "ed448"],
)
def test_keys_that_no_authority_has_are_refused(text: bytes, refusal: type[Exception]) -> None:
    """Encrypted, weak, on an odd curve, or of a type that we do not sign with."""
    with pytest.raises(refusal):
        authority_keys.read(text)


def test_keys_are_named_as_settings_name_them() -> None:
    """By algorithm and size; a curve that we do not use by its own name."""
    assert algorithm_name(samples.rsa_key().public_key()) == "RSA-2048"
    assert algorithm_name(samples.ED25519.public_key()) == "Ed25519"
    p521, odd = (ec.derive_private_key(9, curve) for curve in (ec.SECP521R1(), ec.SECP224R1()))
    assert algorithm_name(p521.public_key()) == "ECDSA-P521"
    assert algorithm_name(odd.public_key()) == "ECDSA-secp224r1"
