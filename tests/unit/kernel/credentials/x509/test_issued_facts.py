"""The fields of the inventory equal what the X.509 library reads in the certificate."""

import hashlib
import itertools

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.credentials.authorities.authority_keys import ALGORITHMS, algorithm_name
from orchid.kernel.credentials.refusals import MalformedCertificate
from orchid.kernel.credentials.x509.issued_facts import IssuedFacts, read_issued
from tests.unit.kernel.credentials.own_authorities import own
from tests.unit.kernel.credentials.samples import DAY, ED25519, NOW, P256, rsa_key

SERVER_AUTH = ExtendedKeyUsageOID.SERVER_AUTH
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


def extended(
    key: ec.EllipticCurvePrivateKey, authority: bytes, usage: str, host: str
) -> x509.Certificate:
    """A certificate with the extensions that those of our signers have."""
    purpose = ExtendedKeyUsageOID.CLIENT_AUTH if usage == "client auth" else SERVER_AUTH
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(x509.Name([]))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + DAY)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier(authority, None, None), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if host:
        names = x509.SubjectAlternativeName([x509.DNSName(host)])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(P256, hashes.SHA256())


def test_certificates_with_much_in_common_are_not_mixed_up() -> None:
    """Each is read by itself, whatever others had."""
    other_key = ec.derive_private_key(0xBEEF, ec.SECP256R1())
    usages, hosts = ("client auth", "server auth"), ("", "a.example.com", "b.example.com")
    authorities = (b"a" * 20, b"b" * 20)
    combinations = list(itertools.product((P256, other_key), authorities, usages, hosts))

    for key, authority, usage, host in combinations:
        facts = facts_of(extended(key, authority, usage, host))
        assert facts.usages == (usage,)
        assert facts.authority_key == authority.hex()
        assert facts.names == ((host,) if host else ())


def test_the_facts_are_those_of_the_first_certificate_of_a_chain() -> None:
    """The other certificates of the chain are the authorities above."""
    first, second = (
        certificate(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        for name in ("first", "second")
    )

    facts = read_issued(first.public_bytes(Encoding.PEM) + second.public_bytes(Encoding.PEM))

    assert (facts.subject, facts.data) == ("CN=first", first.public_bytes(Encoding.DER))
    assert facts.sha256 == first.fingerprint(hashes.SHA256()).hex()
    assert (facts.serial, facts.not_before, facts.not_after) == ("abc", NOW, NOW + DAY)


def test_text_without_a_certificate_is_refused() -> None:
    """By the same rule as the status of a request."""
    with pytest.raises(MalformedCertificate, match="at least one CERTIFICATE"):
        read_issued(b"nothing")
