"""Whatever a certificate contains, it is read completely or refused: nothing raises later."""

import warnings

import pytest
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from orchid.kernel.credentials.refusals import (
    CertificateRefused,
    MalformedCertificate,
    Refusal,
    is_library_error,
    library_errors_as,
)
from orchid.kernel.credentials.x509 import certificates, der, pem
from orchid.kernel.credentials.x509.issued_facts import read_issued
from orchid.kernel.credentials.x509.trust.verified_chain import has_issued
from tests.unit.kernel.credentials import unusual
from tests.unit.kernel.credentials.samples import P256

ISSUER = certificates.parse(unusual.certificate(unusual.AUTHORITY))


def use(data: bytes) -> bool:
    """Whether a certificate is accepted; then all that is ever read of it can be read."""
    try:
        found = certificates.read(data)
    except MalformedCertificate:
        return False
    certificate = found.certificate
    certificates.read_contents(found)
    certificates.describe(certificate)
    certificates.is_authority(certificate)
    certificates.uris_of(certificate)
    certificates.public_key_of(certificate)
    read_issued(pem.encode(pem.CERTIFICATE, data))
    has_issued(ISSUER, certificate)
    has_issued(certificate, ISSUER)
    for name in certificate.subject, certificate.issuer:
        name.rfc4514_string()
    assert certificate.not_valid_before_utc.year * certificate.not_valid_after_utc.year > 0
    return True


@pytest.mark.parametrize("data", unusual.UNREADABLE.values(), ids=unusual.UNREADABLE)
def test_what_the_library_cannot_read_is_refused(data: bytes) -> None:
    """With the refusal of every other certificate that is malformed."""
    with pytest.raises(MalformedCertificate):
        certificates.parse(data)


def test_an_ordinary_certificate_of_the_same_parts_is_read() -> None:
    """The samples above are refused for their one difference."""
    assert use(unusual.certificate(unusual.CLIENT))


def test_every_extension_of_the_library_is_read_or_refused() -> None:
    """Of each kind, with values of each kind; some of both are accepted and refused."""
    accepted = {use(data) for data in unusual.any_extensions()}

    assert accepted == {True, False}


@pytest.mark.parametrize("general", unusual.GENERAL_NAMES.values(), ids=unusual.GENERAL_NAMES)
def test_every_general_name_is_read_or_refused(general: bytes) -> None:
    """The library has one exception for x400Address and EDI party, and others for the rest."""
    names = unusual.sequence(general)

    use(unusual.certificate(unusual.extension(unusual.ALTERNATIVE_NAMES, names)))


@pytest.mark.parametrize("begin", [unusual.YEAR_0, unusual.FIRST, unusual.LAST])
@pytest.mark.parametrize("end", [unusual.YEAR_0, unusual.FIRST, unusual.LAST])
def test_times_are_read_or_refused(begin: bytes, end: bytes) -> None:
    """Python has no year 0."""
    assert use(unusual.certificate(begin=begin, end=end)) is (unusual.YEAR_0 not in (begin, end))


@pytest.mark.parametrize("part", ["subject", "issuer"])
@pytest.mark.parametrize("tag", [1, 2, 3, 4, 5, 6, 10, 12, 18, 19, 20, 22, 23, 26, 28, 30, 48, 49])
@pytest.mark.parametrize("content", [b"", b"a", b"\xff", b"\xd8\0", b"\0\0\0a"])
def test_attributes_of_every_type_are_read_or_refused(part: str, tag: int, content: bytes) -> None:
    """In both names: an issuer is compared whenever a signature is looked at."""
    value = unusual.name(der.encode(tag, content))

    with warnings.catch_warnings(action="ignore"):  # of the library, about the length
        if part == "subject":
            use(unusual.certificate(subject=value))
        else:
            use(unusual.certificate(issuer=value))


def test_names_with_rare_strings_are_accepted() -> None:
    """Only what cannot be read is refused: Teletex of ASCII, and values that are long."""
    for value in (der.encode(0x14, b"ca"), unusual.text("a" * 300), unusual.text("a" * 20)):
        certificates.parse(unusual.certificate(issuer=unusual.name(value)))


def test_a_key_that_cannot_be_read_is_none() -> None:
    """Its certificate is accepted: trust bundles may have keys of unknown kinds."""
    algorithm = unusual.sequence(der.encode_oid("1.2.3"))
    key = unusual.sequence(algorithm, der.encode_bits(b"x"))
    certificate = certificates.parse(unusual.certificate(key=key))

    assert certificates.public_key_of(certificate) is None
    public = certificates.public_key_of(ISSUER)
    assert public is not None
    spki = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert spki == P256.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


class PanicException(BaseException):
    """Named like the one of the X.509 library, which cannot be imported."""


@pytest.mark.parametrize(
    "problem",
    [
        KeyError(7),
        ValueError(),
        OverflowError(),
        UnsupportedAlgorithm(""),
        x509.UnsupportedGeneralNameType("x400Address"),
        UserWarning(),
        PanicException(),
    ],
    ids=repr,
)
def test_every_exception_of_the_library_becomes_the_refusal(problem: BaseException) -> None:
    """Whatever its type."""
    assert is_library_error(problem)
    refusal = library_errors_as(CertificateRefused, "unreadable")
    with pytest.raises(CertificateRefused, match=r"^unreadable$"), refusal:
        raise problem


@pytest.mark.parametrize(
    "problem", [Refusal("mine"), KeyboardInterrupt(), SystemExit(), GeneratorExit()], ids=repr
)
def test_refusals_and_ends_pass_through(problem: BaseException) -> None:
    """A refusal has its own words, and a task that is cancelled ends."""
    assert not is_library_error(problem)
    refusal = library_errors_as(CertificateRefused, "unreadable")
    with pytest.raises(type(problem)) as caught, refusal:
        raise problem
    assert caught.value is problem
