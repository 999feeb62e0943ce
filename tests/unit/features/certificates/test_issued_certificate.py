"""IssuedCertificate: selected by whether it was revoked, and decoded only if it may have been."""

import pytest

from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    IssuedCertificateSpec,
    IssuedCertificateStatus,
    Revoked,
    declare,
)
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.x509 import pem
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.objects import stored_form
from orchid.kernel.engine.request import Options
from orchid.kernel.engine.verbs.listing import Selection
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from tests.unit.kernel.credentials import samples
from tests.unit.kernel.credentials.samples import NOW

KIND = declare(ORCH)
GOOD = IssuedCertificateStatus()
REVOKED = IssuedCertificateStatus(revoked=Revoked(reason="keyCompromise"))
# None of these is the field: two texts with its name in quotes, and a label of that name.
TEXTS = ('CN="revoked"', 'CN="revoked":{}', "CN=revoked")
JANE = pem.first(
    samples.certificate_for(Authority.create("test", now=NOW), samples.request("jane"), now=NOW)
).data
LABELLED = ObjectMeta(name="a1", uid="u", labels={"revoked": "true"})


def stored(
    status: IssuedCertificateStatus, subject: str = "CN=jane", meta: ObjectMeta | None = None
) -> Entry[IssuedCertificate]:
    one = IssuedCertificate(
        kind=KIND.name,
        api_version=KIND.api_version,
        metadata=meta or ObjectMeta(name="a1", uid="u"),
        spec=IssuedCertificateSpec(subject=subject),
        status=status,
    )
    return Entry.stored(KIND, KIND.key("", "a1"), stored_form(one), 7)


def selected(selector: str, entry: Entry[IssuedCertificate]) -> bool:
    return Selection(KIND, Options(field_selector=selector)).matches(entry)


@pytest.mark.parametrize(
    ("selector", "good", "revoked"),
    [
        ("status.revoked=true", False, True),
        ("status.revoked=false", True, False),
        ("status.revoked!=true", True, False),
        ("status.revoked!=false", False, True),
        ("status.revoked=other", False, False),
        ("status.revoked!=other", True, True),
        ("status.revoked=true,spec.request.name=", False, True),
    ],
)
@pytest.mark.parametrize("subject", ["CN=jane", *TEXTS])
def test_a_revoked_certificate_is_selected_as_such(
    selector: str, good: bool, revoked: bool, subject: str
) -> None:
    """A field that JSON omits counts as false, whatever other fields say."""
    assert selected(selector, stored(GOOD, subject)) is good
    assert selected(selector, stored(REVOKED, subject)) is revoked


def test_a_label_of_that_name_revokes_nothing() -> None:
    """The name of the field may occur elsewhere in an object."""
    assert not selected("status.revoked=true", stored(GOOD, meta=LABELLED))
    assert selected("status.revoked=true", stored(REVOKED, meta=LABELLED))


def test_a_certificate_that_is_good_is_not_decoded() -> None:
    """Each new certificate is matched by watches for revoked ones: that must be cheap."""
    entry = stored(GOOD)

    assert not selected("status.revoked=true", entry)

    assert entry._object is None


@pytest.mark.parametrize(
    ("subject", "names", "shown"),
    [
        ("CN=jane", ("a.example",), "CN=jane"),
        ("", ("a.example", "b.example"), "a.example"),
        ("", (), ""),
    ],
)
def test_the_subject_column_shows_the_first_name_of_a_certificate_without_a_subject(
    subject: str, names: tuple[str, ...], shown: str
) -> None:
    """Certificates of servers often have alternative names only."""
    spec = IssuedCertificateSpec(subject=subject, names=names)
    (column,) = (one for one in KIND.columns if one.name == "Subject")

    assert column.cell(IssuedCertificate(spec=spec), NOW) == shown


@pytest.mark.parametrize(
    ("recorded", "subject", "certificate", "username"),
    [
        ("jane", "CN=joe", b"", "jane"),
        ("", "serialNumber=1,CN=joe", JANE, "jane"),
        ("", "", JANE, ""),
        ("", "CN=joe", b"no certificate", ""),
        ("", "CN=joe", b"", ""),
    ],
)
def test_the_user_is_never_read_from_the_text_of_a_subject(
    recorded: str, subject: str, certificate: bytes, username: str
) -> None:
    """From the field or, for a record of an earlier version, from the certificate."""
    spec = IssuedCertificateSpec(username=recorded, subject=subject, certificate=certificate)

    assert IssuedCertificate(spec=spec).username == username
