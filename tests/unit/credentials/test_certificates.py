"""Client certificates: whom they name, and every way in which they do not prove it."""

import datetime
from collections.abc import Iterable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from orchid.credentials import certificates, der, names, pem
from orchid.credentials.authority import Authority
from orchid.credentials.certificates import ClientVerifier
from orchid.credentials.refusals import CertificateRefused, MalformedCertificate
from tests.unit.credentials import samples
from tests.unit.credentials.samples import DAY, HOUR, NOW, OTHER_P256, P256

CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
SERVER = ExtendedKeyUsageOID.SERVER_AUTH
ANY = ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey


def make(
    subject: str = "alice",
    issuer: str = "ca",
    *,
    key: Key = OTHER_P256,
    signer: Key = P256,
    ca: bool | None = False,
    usages: Iterable[x509.ObjectIdentifier] | None = (CLIENT,),
    serial: int = 7,
    start: datetime.datetime = NOW - HOUR,
    end: datetime.datetime = NOW + HOUR,
    extra: Iterable[tuple[x509.ExtensionType, bool]] = (),
    path_length: int | None = None,
) -> x509.Certificate:
    """Make a certificate with the X.509 library, not with our own writer."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(start)
        .not_valid_after(end)
    )
    if ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca, path_length), critical=True)
    if usages is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage(list(usages)), critical=False)
    for extension, critical in extra:
        builder = builder.add_extension(extension, critical)
    digest = None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(signer, digest)


def authority(subject: str = "ca", *, key: Key = P256, **options: object) -> x509.Certificate:
    given = {"key": key, "signer": key, "ca": True, "usages": None, "issuer": subject}
    return make(subject, **(given | options))  # type: ignore[arg-type]


ROOT = authority()


def verify(
    leaf: x509.Certificate,
    *intermediates: x509.Certificate,
    pool: tuple[x509.Certificate, ...] = (ROOT,),
    lenient: bool = False,
) -> x509.Certificate:
    verifier = ClientVerifier(pool, lenient_usage=lenient)
    chain = [certificates.encode(link) for link in intermediates]
    return verifier.verify(certificates.encode(leaf), chain, NOW)


@pytest.mark.parametrize(
    "leaf",
    [
        make(),
        make(usages=(SERVER, CLIENT)),
        make(usages=(ANY,)),
        make(ca=None),
        make(key=samples.rsa_key()),
        make(key=samples.ED25519),
        make("x" * 64),
        make(start=NOW, end=NOW),
    ],
    ids=["plain", "both", "any", "no-constraints", "rsa", "ed25519", "long-name", "one-second"],
)
def test_client_certificates_of_the_pool_are_accepted(leaf: x509.Certificate) -> None:
    """Without alternative names, with any key we use, for client auth or any use."""
    assert verify(leaf) == leaf


WEAK = samples.rsa_key("rsa-1024-pkcs8.pem")


@pytest.mark.parametrize(
    "leaf",
    [
        make(usages=(SERVER,)),
        make(usages=None),
        make(usages=None, extra=[(x509.SubjectAlternativeName([x509.DNSName("a")]), False)]),
        make(ca=True),
        make(key=WEAK),
        make(key=ec.derive_private_key(3, ec.SECP224R1())),
        make(start=NOW + HOUR, end=NOW + DAY),
        make(start=NOW - DAY, end=NOW - HOUR),
        make(issuer="other"),
        make(signer=OTHER_P256),
        make(
            extra=[(x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3"), b"\x05\x00"), True)]
        ),
        authority("alice", usages=(CLIENT,)),
        make("alice", "alice", key=OTHER_P256, signer=OTHER_P256),
        ROOT,
    ],
    ids=[
        "server-only",
        "no-usage",
        "no-usage-with-names",
        "authority",
        "rsa-1024",
        "p224",
        "future",
        "expired",
        "other-issuer",
        "forged",
        "unknown-critical",
        "own-authority",
        "self-signed",
        "the-root-itself",
    ],
)
def test_certificates_that_prove_no_client_are_refused(leaf: x509.Certificate) -> None:
    """Each of these passes some verifier somewhere; none passes here."""
    with pytest.raises(CertificateRefused, match=r"^verifying certificate SN=\d+, SKID=.* failed:"):
        verify(leaf)


def test_a_leaf_without_usages_passes_only_on_request() -> None:
    """The reference's leniency is an option; it does not extend to other usages."""
    assert verify(make(usages=None), lenient=True)
    with pytest.raises(CertificateRefused):
        verify(make(usages=(SERVER,)), lenient=True)


def test_chains_over_intermediates_are_followed_and_checked() -> None:
    """An intermediate must be an authority, permitted to sign, in time and strong."""
    middle_key = ec.derive_private_key(99, ec.SECP256R1())
    leaf = make(issuer="middle", signer=middle_key)

    def middle(**options: object) -> x509.Certificate:
        given = {"key": middle_key, "ca": True, "usages": None}
        return make("middle", "ca", **(given | options))  # type: ignore[arg-type]

    no_signing = x509.KeyUsage(True, False, False, False, False, False, True, False, False)
    bad = {
        "not-an-authority": middle(ca=False),
        "no-constraints": middle(ca=None),
        "expired": middle(start=NOW - DAY, end=NOW - HOUR),
        "may-not-sign": middle(extra=[(no_signing, True)]),
        "foreign": middle(signer=OTHER_P256),
    }

    assert verify(leaf, middle())
    assert verify(leaf, make("noise"), middle())
    with pytest.raises(CertificateRefused):
        verify(leaf)
    for link in bad.values():
        with pytest.raises(CertificateRefused):
            verify(leaf, link)
    with pytest.raises(CertificateRefused):
        verify(leaf, middle(), pool=(authority(path_length=0, serial=9),))


def test_a_twin_of_a_trusted_certificate_is_refused() -> None:
    """Same names, serial number and key ids, another key: not the same certificate."""
    key_id = x509.SubjectKeyIdentifier(b"\x01" * 20)
    real = authority(serial=5, extra=[(key_id, False)])
    twin = authority(serial=5, extra=[(key_id, False)], key=OTHER_P256)
    of_twin = make(signer=OTHER_P256, key=P256)

    assert not certificates.same(certificates.encode(real), certificates.encode(twin))
    for chain in ((), (twin,)):
        with pytest.raises(CertificateRefused):
            verify(of_twin, *chain, pool=(real,))


@pytest.mark.parametrize(
    "pool",
    [
        (),
        (make(),),
        (ROOT, make("alice", "alice", key=P256)),
        (authority(key=WEAK),),
        (authority(key=samples.ED25519),),
        (authority(ca=None),),
    ],
    ids=["empty", "leaf", "leaf-beside-root", "weak", "ed25519", "no-constraints"],
)
def test_a_pool_holds_authorities_only(pool: tuple[x509.Certificate, ...]) -> None:
    """A directly trusted leaf would skip the checks that authorities make; refused at start."""
    with pytest.raises(CertificateRefused):
        ClientVerifier(pool)


def test_the_pool_is_read_from_a_file_and_followed(tmp_path: object) -> None:
    """A pool file is PEM with any number of authorities."""
    from pathlib import Path

    from orchid.credentials import files

    path = Path(str(tmp_path)) / "ca.pem"
    path.write_bytes(pem.encode(pem.CERTIFICATE, certificates.encode(ROOT)))
    followed = files.Reloading((path,), lambda: ClientVerifier.load(path))
    leaf = certificates.encode(make(issuer="new", signer=OTHER_P256, key=P256))
    with pytest.raises(CertificateRefused):
        followed.current().verify(leaf, [], NOW)

    new = authority("new", key=OTHER_P256)
    path.write_bytes(path.read_bytes() + pem.encode(pem.CERTIFICATE, certificates.encode(new)))

    assert followed.current().verify(leaf, [], NOW)


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
    old = certificates.subject_bytes(data)
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


def test_our_own_issue_passes_our_own_door() -> None:
    """What the authority issues to a client, the verifier accepts and reads."""
    own = Authority.create("own", now=NOW)
    issued = own.issue_client("admin", lifetime=HOUR, now=NOW, groups=["g1", "g2"])
    block = pem.first(issued.chain)
    assert block is not None

    ClientVerifier([own.certificate]).verify(block.data, [], NOW)

    assert certificates.identify(block.data).groups == ("g1", "g2")
    key = serialization.load_pem_private_key(issued.key.reveal().encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
