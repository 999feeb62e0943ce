"""Certificates as they are read: whom they name, and what is not one."""

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from orchid.kernel.credentials.refusals import CertificateRefused, MalformedCertificate
from orchid.kernel.credentials.x509 import certificates, der, names, pem
from orchid.kernel.credentials.x509.certificate_body import BEFORE_KEY_ID
from tests.unit.kernel.credentials import samples
from tests.unit.kernel.credentials.chains import ROOT, authority, make


def test_identity_is_the_common_name_the_organizations_and_the_uid() -> None:
    """User, groups in order with duplicates kept, uid, and an id of the whole certificate."""
    data = with_subject(
        samples.utf8(names.ORGANIZATION, "b"),
        samples.utf8(names.ORGANIZATION, "a"),
        samples.utf8(names.ORGANIZATION, "b"),
        samples.utf8(names.COMMON_NAME, "first"),
        samples.utf8(names.COMMON_NAME, "alice"),
        samples.utf8(names.USER_UID, "1234"),
    )

    identity = certificates.identify(data)

    assert identity.user == "alice"
    assert identity.groups == ("b", "a", "b")
    assert identity.uid == "1234"
    digest = x509.load_der_x509_certificate(data).fingerprint(hashes.SHA256()).hex()
    assert identity.credential_id == f"X509SHA256={digest}"


def with_subject(*attributes: bytes) -> bytes:
    """Put any subject into a certificate; its signature does not matter for reading."""
    data = certificates.encode(make())
    old = certificates.read_parts(data).subject
    outer = der.element(data, 0, len(data))
    body = der.element(data, outer.start, outer.stop)
    subject = samples.name(*((each,) for each in attributes))
    new_body = der.encode(der.SEQUENCE, data[body.start : body.stop].replace(old, subject, 1))
    return der.encode(der.SEQUENCE, new_body, data[body.stop :])


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ([samples.utf8(names.USER_UID, "")], "UID cannot be an empty string"),
        ([samples.utf8(names.USER_UID, "1")] * 2, "expected 1 UID, but found multiple: 2"),
        (
            [samples.attribute(names.USER_UID, 0x02, b"\x05")],
            "unable to parse UID into a string",
        ),
    ],
)
def test_a_bad_uid_is_refused(attributes: list[bytes], text: str) -> None:
    """A uid is one string that is not empty, or there is none."""
    with pytest.raises(CertificateRefused) as caught:
        certificates.identify(with_subject(*attributes))

    assert str(caught.value) == text


def test_a_certificate_without_common_name_names_nobody() -> None:
    """An empty user means that another way to authenticate must be tried."""
    assert certificates.identify(with_subject(samples.utf8(names.ORGANIZATION, "a"))).user == ""


@pytest.mark.parametrize("text", ["admin\x00", "admin\n", "ad\u200bmin"])
@pytest.mark.parametrize("oid", [names.COMMON_NAME, names.ORGANIZATION])
def test_names_with_control_characters_name_nobody(oid: str, text: str) -> None:
    """A name that only looks like another is refused at the front door."""
    with pytest.raises(CertificateRefused, match="control characters"):
        certificates.identify(with_subject(samples.utf8(oid, text)))


def test_a_very_long_name_is_read() -> None:
    """A node's name may have 253 characters, far more than X.520 foresaw."""
    long = "node:" + "n" * 253

    assert certificates.identify(with_subject(samples.utf8(names.COMMON_NAME, long))).user == long


K256 = ec.generate_private_key(ec.SECP256K1())
GOOD = pem.encode(pem.CERTIFICATE, certificates.encode(ROOT))


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        (pem.encode("X", b"x"), 'only CERTIFICATE PEM blocks are allowed, found "X"'),
        (
            GOOD.replace(b"CERTIFICATE-----\n", b"CERTIFICATE-----\na: b\n\n", 1),
            "no PEM block headers are permitted",
        ),
        (pem.encode(pem.CERTIFICATE, b"\x02\x00"), "x509: malformed certificate"),
        (pem.encode(pem.CERTIFICATE, b"\x30\x00"), "x509: malformed tbs certificate"),
        (pem.encode(pem.CERTIFICATE, b"\x30\x02\x30\x00"), "x509: malformed serial number"),
        (
            samples.request().replace(b"CERTIFICATE REQUEST", b"CERTIFICATE"),
            "x509: inner and outer signature algorithm identifiers don't match",
        ),
        (
            pem.encode(pem.CERTIFICATE, certificates.encode(ROOT).replace(b"\x02ca", b"\x02c\xff")),
            "x509: invalid RDNSequence: invalid attribute value: invalid UTF-8 string",
        ),
        (
            pem.encode(pem.CERTIFICATE, certificates.encode(authority(key=K256))),
            "x509: unsupported elliptic curve",
        ),
        (
            pem.encode(pem.CERTIFICATE, b""),
            "found CERTIFICATE PEM block containing 0 certificates",
        ),
        (b"text", "must contain at least one CERTIFICATE PEM block"),
        (GOOD + pem.encode("X", b"x"), 'only CERTIFICATE PEM blocks are allowed, found "X"'),
    ],
)
def test_issued_certificates_are_checked_in_the_reference_words(text: bytes, detail: str) -> None:
    """The first problem is the one reported."""
    with pytest.raises(MalformedCertificate) as caught:
        certificates.parse_blocks(text)

    assert str(caught.value) == detail


def test_one_block_may_hold_several_certificates() -> None:
    """Concatenated DER and text between blocks are accepted in an issued chain."""
    data = certificates.encode(ROOT)

    found = certificates.parse_blocks(pem.encode(pem.CERTIFICATE, data + data) + b"text\n" + GOOD)

    assert found == [ROOT] * 3


def test_serial_numbers_of_zero_pass_and_negative_ones_do_not() -> None:
    """Some old roots have the number zero; a negative one is refused as in the reference."""
    data = certificates.encode(make(serial=7))
    zero, negative = (data.replace(b"\x02\x01\x07", b"\x02\x01" + n, 1) for n in (b"\0", b"\xff"))

    assert certificates.describe(certificates.parse(zero)).startswith("SN=0, ")
    with pytest.raises(MalformedCertificate, match=r"^x509: negative serial number$"):
        certificates.parse(negative)


class PanicException(BaseException):
    """Named like the one of the X.509 library, which cannot be imported."""


def test_a_panic_while_reading_a_certificate_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hostile certificate ends the request, not the worker."""

    def panic(_: bytes) -> None:
        raise PanicException

    monkeypatch.setattr(x509, "load_der_x509_certificate", panic)

    with pytest.raises(MalformedCertificate):
        certificates.parse(b"\x30\x00")


def test_extensions_are_read_although_others_like_them_were_good() -> None:
    """An extension that looks like a key identifier hides nothing that follows it."""
    looks = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3"), BEFORE_KEY_ID)
    none = x509.BasicConstraints(ca=False, path_length=None)
    data = certificates.encode(make(ca=None, usages=None, extra=((looks, False), (none, True))))
    certificates.parse(data)
    no_sequence = data.replace(bytes.fromhex("04023000"), bytes.fromhex("04023100"))

    with pytest.raises(MalformedCertificate):
        certificates.parse(no_sequence)
