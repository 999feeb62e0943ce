"""What the inventory tells of a certificate is what the X.509 library reads in it."""

import hashlib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from orchid.credentials.authority_keys import ALGORITHMS, algorithm_name
from orchid.credentials.issued_facts import IssuedFacts, read_issued
from orchid.credentials.refusals import MalformedCertificate
from tests.unit.credentials.own_authorities import own
from tests.unit.credentials.samples import DAY, ED25519, NOW, P256, rsa_key

P521 = ec.derive_private_key(0xF00D, ec.SECP521R1())
KEYS = {"P-256": P256, "P-521": P521, "RSA": rsa_key(), "Ed25519": ED25519}
PARTS = (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.POSTAL_CODE, NameOID.USER_ID)
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
ATTRIBUTES = st.builds(x509.NameAttribute, st.sampled_from(PARTS), TEXTS)
RELATIVE = st.lists(ATTRIBUTES, min_size=1, max_size=3, unique_by=lambda one: one.oid)
SUBJECTS = st.lists(RELATIVE.map(x509.RelativeDistinguishedName), max_size=4).map(x509.Name)
TROUBLE = (" a", "#a", "a ", "a,b", "a+b", 'a"b', "a\\b", "a;b", "<a>", "a=b", "\x00", "é")


def certificate(subject: x509.Name, public_key: object = P256.public_key()) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")]))
        .public_key(public_key)  # type: ignore[arg-type]  # any of those above
        .serial_number(0xABC)
        .not_valid_before(NOW)
        .not_valid_after(NOW + DAY)
    )
    return builder.sign(P256, hashes.SHA256())


def facts_of(made: x509.Certificate) -> IssuedFacts:
    return read_issued(made.public_bytes(Encoding.PEM))


@given(SUBJECTS)
def test_a_subject_is_written_as_the_library_writes_it(subject: x509.Name) -> None:
    """Several values in one relative name, and whatever characters they have."""
    made = certificate(subject)

    assert facts_of(made).subject == made.subject.rfc4514_string()


@pytest.mark.parametrize("value", TROUBLE)
def test_a_subject_with_special_characters_is_escaped(value: str) -> None:
    """Nobody can make one attribute look like two."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, value)])

    assert facts_of(certificate(subject)).subject == subject.rfc4514_string()


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_a_key_is_named_by_its_algorithm_and_hash(key: object) -> None:
    """Whether or not the library had to be asked."""
    public = key.public_key()  # type: ignore[attr-defined]  # every key has one
    spki = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    facts = facts_of(certificate(x509.Name([]), public))

    assert facts.key_algorithm == algorithm_name(public)
    assert facts.key_sha256 == hashlib.sha256(spki).hexdigest()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_keys_of_every_algorithm_that_authorities_have_are_named(algorithm: str) -> None:
    """The two of them with RSA by the library, the others by how their encoding begins."""
    assert read_issued(own(algorithm).certificate_pem).key_algorithm == algorithm


def test_the_first_certificate_of_a_chain_is_told_of() -> None:
    """What follows it are the authorities above."""
    first, second = (
        certificate(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        for name in ("first", "second")
    )

    facts = read_issued(first.public_bytes(Encoding.PEM) + second.public_bytes(Encoding.PEM))

    assert (facts.subject, facts.data) == ("CN=first", first.public_bytes(Encoding.DER))
    assert facts.sha256 == first.fingerprint(hashes.SHA256()).hex()
    assert (facts.serial, facts.not_before, facts.not_after) == ("abc", NOW, NOW + DAY)


def test_text_without_a_certificate_is_refused() -> None:
    """By the rule by which the status of a request is judged."""
    with pytest.raises(MalformedCertificate, match="at least one CERTIFICATE"):
        read_issued(b"nothing")
