"""Entries of revocation lists, computed from revocations."""

from datetime import UTC, datetime, timedelta

from cryptography import x509

from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
    CredentialRevocationStatus,
)
from orchid.features.revoking.controllers.publish_revocation_lists import PublishedList
from orchid.features.revoking.controllers.revoked_serials import (
    ListEntry,
    RevokedSerials,
    SerialOfKey,
    group_of,
    named_certificate,
)
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.x509.revocation_list import Edition, RevokedCertificates
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.revoked_credentials import RevokedCertificate, RevokedToken

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
END = NOW + timedelta(days=30)
CERTIFICATE = SerialOfKey("aa", 7)


def reason_of(found: RevokedCertificates, serial: int) -> x509.ReasonFlags | None:
    """The reason with which a list names a serial number; None if it does not."""
    authority = Authority.create("Test CA", now=NOW)
    data = authority.sign_revocation_list(found, Edition(1, NOW, NOW + timedelta(days=7)))
    entry = x509.load_der_x509_crl(data).get_revoked_certificate_by_serial_number(serial)
    if entry is None:
        return None
    return entry.extensions.get_extension_for_class(x509.CRLReason).value.reason


def test_an_entry_stays_for_a_week_after_the_end_of_its_certificate() -> None:
    """Verifiers find it in a list that was issued after the end; then it goes."""
    revoked = RevokedSerials()
    revoked.put("a", CERTIFICATE, ListEntry(NOW, "keyCompromise", END))

    revoked.forget_ended(END + timedelta(days=7))
    kept = len(revoked.of(["aa"]))
    revoked.forget_ended(END + timedelta(days=7, seconds=1))

    assert (kept, len(revoked.of(["aa"]))) == (1, 0)


def test_a_list_has_the_certificates_of_its_key_only() -> None:
    """Certificates of another key are in another group, even with the same number and signer."""
    authority = Authority.create("Test CA", now=NOW)
    key = authority.key_id.hex()
    revoked = RevokedSerials()
    revoked.put("a", SerialOfKey(group_of(key, "example.com/web"), 1), entry("superseded"))
    revoked.put("b", SerialOfKey(group_of("00ff", "example.com/web"), 2), entry("superseded"))
    one = PublishedList(lambda: authority, frozenset(("example.com/web",)), "web")

    found = revoked.of(one.groups())

    assert (reason_of(found, 1), reason_of(found, 2)) == (x509.ReasonFlags.superseded, None)


def test_certificates_without_a_key_identifier_are_found_by_their_signer() -> None:
    """Those of authorities without one, and revocations stored before they had the field."""
    authority = Authority.create("Test CA", now=NOW)
    revoked = RevokedSerials()
    revoked.put("a", SerialOfKey(group_of("", "example.com/web"), 1), entry("superseded"))
    lists = {
        signer: PublishedList(lambda: authority, frozenset((signer,)), signer)
        for signer in ("example.com/web", "example.com/mail")
    }

    counts = {signer: len(revoked.of(one.groups())) for signer, one in lists.items()}

    assert counts == {"example.com/web": 1, "example.com/mail": 0}


def test_the_first_revocation_that_is_no_hold_gives_the_reason() -> None:
    """Lifting the hold, or a later revocation, does not change it."""
    revoked = RevokedSerials()
    revoked.put("hold", CERTIFICATE, entry("certificateHold"))
    revoked.put("later", CERTIFICATE, ListEntry(NOW + timedelta(hours=2), "superseded", END))
    revoked.put("first", CERTIFICATE, ListEntry(NOW + timedelta(hours=1), "keyCompromise", END))
    before = reason_of(revoked.of(["aa"]), 7)

    revoked.drop("hold", CERTIFICATE)
    after = reason_of(revoked.of(["aa"]), 7)
    revoked.drop("first", CERTIFICATE)
    revoked.drop("later", CERTIFICATE)

    assert before == after == x509.ReasonFlags.key_compromise
    assert len(revoked.of(["aa"])) == 0


def test_a_revocation_put_again_changes_nothing() -> None:
    """A change of its status is no reason to sign a list."""
    revoked = RevokedSerials()

    changed = [revoked.put("a", CERTIFICATE, entry("superseded")) for _ in range(2)]

    assert changed == [True, False]


def test_a_revocation_carries_all_that_its_entry_needs() -> None:
    """No other object is read: it may be missing after a restore."""
    named = RevokedCertificate(
        sha256="f" * 64, signer_name="example.com/web", serial_number="1f", authority_key="aa"
    )
    found = named_certificate(revocation(CredentialRevocationSpec(certificate=named)))
    token = revocation(CredentialRevocationSpec(token=RevokedToken(jti="x")))
    unseen = revocation(CredentialRevocationSpec(certificate=RevokedCertificate(sha256="f" * 64)))

    assert found == (SerialOfKey("aa", 31), ListEntry(NOW, "unspecified", END))
    assert (named_certificate(token), named_certificate(unseen)) == (None, None)


def revocation(spec: CredentialRevocationSpec) -> CredentialRevocation:
    return CredentialRevocation(
        metadata=ObjectMeta(name="x", creation_timestamp=NOW),
        spec=spec,
        status=CredentialRevocationStatus(expires=END),
    )


def entry(reason: str) -> ListEntry:
    return ListEntry(NOW, reason, END)


def test_a_more_serious_reason_counts_at_once_with_the_date_of_the_first() -> None:
    """Of several final revocations; a hold has no part in it while there is another."""
    revoked = RevokedSerials()
    for name, hours, reason in (
        ("hold", -3, "certificateHold"),
        ("first", -2, "superseded"),
        ("second", -1, "keyCompromise"),
    ):
        revoked.put(name, CERTIFICATE, ListEntry(NOW + timedelta(hours=hours), reason, END))

    authority = Authority.create("Test CA", now=NOW)
    edition = Edition(1, NOW, NOW + timedelta(days=7))
    data = authority.sign_revocation_list(revoked.of(["aa"]), edition)
    found = x509.load_der_x509_crl(data).get_revoked_certificate_by_serial_number(7)

    assert reason_of(revoked.of(["aa"]), 7) == x509.ReasonFlags.key_compromise
    assert found is not None
    assert found.revocation_date_utc == NOW - timedelta(hours=2)
