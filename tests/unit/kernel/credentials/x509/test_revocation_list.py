"""Revocation lists: what they say, who may sign them, and what other programs make of them."""

import datetime
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from pkilint import loader, pkix
from pkilint.pkix import crl as linting
from pkilint.pkix import extension, name
from pkilint.validation import ValidationFindingSeverity

from orchid.kernel.credentials.authorities import authority as authority_module
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.authorities.authority_keys import ALGORITHMS
from orchid.kernel.credentials.refusals import BadRevocation, NotPermittedToSign, UnsoundCertificate
from orchid.kernel.credentials.x509 import (
    certificate_body,
    certificates,
    der,
    pem,
    revocation_list,
    signing_request,
)
from orchid.kernel.credentials.x509.revocation_list import REASONS, Edition, RevokedCertificates
from orchid.kernel.wire.struct import replace
from tests.linting import unexplained
from tests.system_packages import require_program
from tests.unit.kernel.credentials import unusual
from tests.unit.kernel.credentials.chains import authority
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
    P256,
    request,
)

NUMBER = 1_773_000_000_000_000_000  # nanoseconds, as the lists of a server are numbered
EDITION = Edition(NUMBER, NOW, NOW + 7 * DAY)
CA = own("ECDSA-P256")


def revoked(*serials: int, reason: str = "keyCompromise") -> RevokedCertificates:
    made = RevokedCertificates()
    for serial in serials:
        made.add(serial, NOW - HOUR, reason)
    return made


def read(data: bytes) -> x509.CertificateRevocationList:
    return x509.load_der_x509_crl(data)


def signed(entries: RevokedCertificates, ca: Authority = CA) -> x509.CertificateRevocationList:
    return read(ca.sign_revocation_list(entries, EDITION))


def test_a_list_says_who_when_which_number_and_what_is_revoked() -> None:
    """Two extensions, none critical, no distribution point; serial numbers of any size."""
    found = signed(revoked(7, 1 << 158, 0x80))

    assert found.issuer == CA.certificate.subject
    assert found.last_update_utc == NOW
    assert found.next_update_utc == NOW + 7 * DAY
    key_id = CA.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    assert [(entry.critical, entry.value) for entry in found.extensions] == [
        (False, x509.AuthorityKeyIdentifier(key_id.value.digest, None, None)),
        (False, x509.CRLNumber(NUMBER)),
    ]
    assert {entry.serial_number for entry in found} == {7, 1 << 158, 0x80}
    assert {entry.revocation_date_utc for entry in found} == {NOW - HOUR}


def test_an_empty_list_has_no_field_for_entries() -> None:
    """The field is absent, not empty (RFC 5280 section 5.1.2.6)."""
    empty = CA.sign_revocation_list(RevokedCertificates(), EDITION)
    times = empty.index(b"\x17\x0d")  # two UTC times, then the extensions at once

    assert list(read(empty)) == []
    assert empty[times + 30] == 0xA0


@pytest.mark.parametrize("reason", REASONS)
def test_reasons_are_written_except_the_unspecified_one(reason: str) -> None:
    """An unspecified reason is left out (RFC 5280 section 5.3.1)."""
    (entry,) = signed(revoked(7, reason=reason))

    if reason == "unspecified":
        assert list(entry.extensions) == []
    else:
        (extension,) = entry.extensions
        assert isinstance(extension.value, x509.CRLReason)
        assert extension.value.reason.value == reason
        assert not extension.critical


def test_an_entry_can_be_said_again_and_taken_out() -> None:
    """Each serial number is listed once; a lifted hold is removed."""
    entries = revoked(7, 8, reason="certificateHold")
    entries.add(8, NOW, "keyCompromise")
    entries.remove(7)
    entries.remove(99)

    (entry,) = signed(entries)

    assert entry.serial_number == 8
    assert entry.revocation_date_utc == NOW
    assert len(entries) == 1


def test_two_servers_write_the_same_list() -> None:
    """Whatever order they learned of the revocations in."""
    assert revoked(3, 1, 2).encode() == revoked(2, 3, 1).encode()


def test_times_after_2049_and_fractions_of_a_second_are_written_as_the_rfc_says() -> None:
    """The long form of a time from 2050 on; whole seconds always."""
    late = datetime.datetime(2050, 1, 1, tzinfo=datetime.UTC)
    edition = Edition(1, NOW + datetime.timedelta(microseconds=5), late)
    entries = RevokedCertificates()
    entries.add(7, NOW + datetime.timedelta(microseconds=5))

    found = read(CA.sign_revocation_list(entries, edition))

    assert found.last_update_utc == NOW
    assert found.next_update_utc == late
    assert [entry.revocation_date_utc for entry in found] == [NOW]


def test_twenty_thousand_entries_are_all_found() -> None:
    """A large list is like a small one."""
    serials = range(1 << 126, (1 << 126) + 20_000)

    found = signed(revoked(*serials))

    assert len(found) == 20_000
    assert found.get_revoked_certificate_by_serial_number(serials[-1]) is not None
    assert found.get_revoked_certificate_by_serial_number(5) is None


@pytest.mark.parametrize(
    ("serial", "reason"),
    [(-1, "unspecified"), (1 << 159, "unspecified"), (7, "removeFromCRL"), (7, "bored"), (7, "")],
)
def test_what_no_list_can_say_is_refused(serial: int, reason: str) -> None:
    """Negative and endless numbers, and reasons that the RFC does not know or keeps for deltas."""
    entries = RevokedCertificates()

    with pytest.raises(BadRevocation):
        entries.add(serial, NOW, reason)
    assert len(entries) == 0


@pytest.mark.parametrize("number", [-1, 1 << 159])
def test_the_number_of_a_list_has_its_limits(number: int) -> None:
    """At most twenty octets, never negative (RFC 5280 section 5.2.3)."""
    with pytest.raises(BadRevocation):
        CA.sign_revocation_list(revoked(7), replace(EDITION, number=number))


def outside(*extra: tuple[x509.ExtensionType, bool]) -> Authority:
    """Give an authority that was made elsewhere."""
    return Authority([authority(extra=extra, end=NOW + 30 * DAY)], P256)


def test_an_authority_that_may_not_sign_lists_does_not() -> None:
    """A list by it would be trusted by nobody."""
    certificates_only = x509.KeyUsage(False, False, False, False, False, True, False, False, False)

    with pytest.raises(NotPermittedToSign, match="revocation lists"):
        outside((certificates_only, True)).sign_revocation_list(revoked(7), EDITION)


def test_an_older_authority_without_key_usage_and_key_id_signs_lists() -> None:
    """A certificate without these extensions may sign; the key is named by its own digest."""
    found = signed(revoked(7), outside())

    named = found.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert named.key_identifier is not None
    assert len(named.key_identifier) == 20
    assert found.is_signature_valid(P256.public_key())


@pytest.mark.parametrize(
    "change",
    [
        {"number": NUMBER + 1},
        {"this_update": NOW + HOUR},
        {"next_update": NOW + 8 * DAY},
    ],
)
def test_a_list_that_differs_from_what_was_meant_is_not_signed(
    change: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault in the writer is found by the reader, before the key is used."""
    honest = revocation_list.encode_list_body

    def dishonest(entries: RevokedCertificates, edition: Edition, **rest: bytes) -> bytes:
        return honest(entries, replace(edition, **change), **rest)

    monkeypatch.setattr(authority_module, "encode_list_body", dishonest)

    with pytest.raises(UnsoundCertificate):
        CA.sign_revocation_list(revoked(7), EDITION)


def test_a_list_that_loses_an_entry_or_ends_before_it_begins_is_not_signed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The entries are counted, and time goes forward."""
    with pytest.raises(UnsoundCertificate):
        CA.sign_revocation_list(revoked(7), Edition(1, NOW, NOW))
    entries = revoked(7, 8)
    monkeypatch.setattr(entries, "encode", revoked(7).encode)

    with pytest.raises(UnsoundCertificate):
        CA.sign_revocation_list(entries, EDITION)


URL = "http://pki.example.com/crl/web.crl"


def pointing(url: str) -> x509.Certificate:
    parsed = signing_request.parse(request())
    chain = CA.sign(parsed, CLIENT_USAGES, DAY, profile=NODE_CLIENT, now=NOW, crl_url=url)
    return certificates.parse_blocks(chain)[0]


def test_a_certificate_says_where_its_list_is_if_that_is_wanted() -> None:
    """One address, not critical; without one, nothing is said, as in the reference."""
    found = pointing(URL).extensions.get_extension_for_class(x509.CRLDistributionPoints)

    (point,) = found.value
    assert not found.critical
    assert point.full_name == [x509.UniformResourceIdentifier(URL)]
    assert (point.reasons, point.crl_issuer) == (None, None)
    assert unexplained(pointing(URL)) == set()
    kinds = {type(entry.value) for entry in pointing("").extensions}
    assert x509.CRLDistributionPoints not in kinds


@pytest.mark.parametrize("written", ["", "http://evil.example/"])
def test_a_certificate_that_points_elsewhere_is_not_signed(
    written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address in the bytes is compared too."""
    honest = certificate_body.encode_body

    def dishonest(template: certificate_body.Template, *rest: Any) -> bytes:
        return honest(replace(template, crl_url=written), *rest)

    monkeypatch.setattr(authority_module, "encode_body", dishonest)

    with pytest.raises(UnsoundCertificate):
        pointing(URL)


# --- other readers ------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_lists_of_every_algorithm_verify_in_the_library(algorithm: str) -> None:
    """Signed by the key of the authority, and by no other."""
    found = signed(revoked(7), own(algorithm))

    public = own(algorithm).certificate.public_key()
    assert found.is_signature_valid(public)
    other = Authority.create("other", now=NOW).certificate.public_key()
    if algorithm.startswith("ECDSA"):
        assert isinstance(other, ec.EllipticCurvePublicKey)
        assert not found.is_signature_valid(other)


def test_a_list_of_an_ml_dsa_authority_verifies_elsewhere() -> None:
    """By an implementation that is not the one that signed."""
    found = signed(revoked(7), own(ML_DSA))
    certificate = own(ML_DSA).certificate

    assert is_ml_dsa_signature(certificate, found.tbs_certlist_bytes, found.signature)
    changed = found.tbs_certlist_bytes.replace(b"\x02\x01\x07", b"\x02\x01\x08")
    assert not is_ml_dsa_signature(certificate, changed, found.signature)


@pytest.mark.parametrize("algorithm", KNOWN_TO_OPENSSL)
def test_openssl_verifies_lists_and_refuses_what_is_on_them(algorithm: str, tmp_path: Path) -> None:
    """`openssl crl`, and `openssl verify` with and without looking at the whole chain."""
    openssl = require_program("openssl")
    ca = own(algorithm)
    good, bad = (ca.issue_client(user, lifetime=DAY, now=NOW).chain for user in ("good", "bad"))
    serial = x509.load_pem_x509_certificate(bad).serial_number
    data = pem.encode(pem.REVOCATION_LIST, ca.sign_revocation_list(revoked(serial), EDITION))
    paths = write(tmp_path, ca=ca.certificate_pem, crl=data, good=good, bad=bad)

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([openssl, *arguments], capture_output=True, check=False)

    shown = run("crl", "-in", paths[1], "-CAfile", paths[0], "-noout", "-verify")
    assert shown.returncode == 0
    assert b"verify OK" in shown.stderr
    at = str(int(NOW.timestamp()))
    for checking in ("-crl_check", "-crl_check_all"):
        command = ("verify", "-attime", at, checking, "-CAfile", paths[0], "-CRLfile", paths[1])
        assert run(*command, paths[2]).returncode == 0
        refused = run(*command, paths[3])
        assert refused.returncode != 0
        assert b"certificate revoked" in refused.stderr + refused.stdout


def test_lists_have_no_lint() -> None:
    """No error, warning or notice of pkilint, for an empty list and a full one."""
    linter = linting.create_pkix_crl_validator_container(
        [
            pkix.create_attribute_decoder(name.ATTRIBUTE_TYPE_MAPPINGS),
            pkix.create_extension_decoder(extension.EXTENSION_MAPPINGS),
        ],
        [
            linting.create_issuer_validator_container([]),
            linting.create_validity_validator_container([]),
            linting.create_extensions_validator_container([]),
        ],
    )
    full = RevokedCertificates()
    for serial, reason in enumerate(REASONS, start=1):
        full.add(serial, NOW - HOUR, reason)

    for entries in (RevokedCertificates(), full):
        data = CA.sign_revocation_list(entries, EDITION)
        document = loader.RFC5280CertificateListDocumentLoader().load_der_document(data, "crl")
        assert [
            found.finding.code
            for result in linter.validate(document.root)
            for found in result.finding_descriptions
            if found.finding.severity <= ValidationFindingSeverity.NOTICE
        ] == []


@pytest.mark.parametrize("begin", [b"20260101000000Z", b"00000101000000Z", None])
def test_a_list_that_others_wrote_is_read_or_refused(begin: bytes | None) -> None:
    """Its times are read at once: Python has no year 0."""
    algorithm = unusual.sequence(der.encode_oid("1.2.840.10045.4.3.2"))
    time = der.encode(0x18, begin or b"")
    issuer = unusual.name(unusual.text("ca"))
    body = unusual.sequence(der.encode_integer(1), algorithm, issuer, time, time)
    data = unusual.sequence(body, algorithm, der.encode_bits(b"none")) if begin else b"none"

    if begin and begin.startswith(b"2026"):
        assert len(revocation_list.read_list(data)) == 0
    else:
        with pytest.raises(BadRevocation):
            revocation_list.read_list(data)
