"""Which changes of revocations and records reach the revocation lists."""

from datetime import timedelta
from typing import Any, cast

import pytest

from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    IssuedCertificateSpec,
)
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
    CredentialRevocationStatus,
)
from orchid.features.revoking.controllers.publish_revocation_lists import (
    AuthorityWide,
    PublishRevocationLists,
)
from orchid.kernel.client.client import DELETED, MODIFIED, WatchedChange
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import RevokedCertificate
from tests.unit.kernel.access.presenting import FakeClock

CLOCK = FakeClock()
NOW = CLOCK.now()
HOUR = timedelta(hours=1)
SIGNER = "example.com/web"


@pytest.fixture
def publisher() -> PublishRevocationLists:
    return PublishRevocationLists(cast(Any, None), {}, ORCH, CLOCK)


def event(one: Object, type_: str = MODIFIED) -> WatchedChange[Any]:
    return WatchedChange(type_, b"", None, _object=one)


@pytest.mark.parametrize(
    ("cluster", "type_", "issued", "is_listed"),
    [
        ("", MODIFIED, NOW - HOUR, True),
        ("", MODIFIED, NOW, True),
        ("", MODIFIED, NOW + HOUR, False),
        ("", MODIFIED, None, False),
        ("", DELETED, NOW - HOUR, False),
        ("prod", MODIFIED, NOW - HOUR, False),
    ],
)
def test_the_revocation_of_a_signer_lists_its_own_certificates(
    publisher: PublishRevocationLists, cluster: str, type_: str, issued: Any, *, is_listed: bool
) -> None:
    """Those that it issued until then; not those that a cluster issued for a signer of the name."""
    publisher._wide[SIGNER] = {"all": AuthorityWide("all", NOW, NOW, "superseded")}
    found = IssuedCertificate(
        metadata=ObjectMeta(name="7", creation_timestamp=issued),
        spec=IssuedCertificateSpec(
            signer_name=SIGNER, serial_number="7", authority_key="ab", cluster=cluster
        ),
    )

    assert publisher._take_issued(event(found, type_)) == (["ab"] if is_listed else [])
    assert len(publisher._revoked.of(["ab"])) == is_listed


@pytest.mark.parametrize(("expires", "stays"), [(NOW, True), (NOW + HOUR, False), (None, False)])
def test_an_entry_stays_when_its_revocation_expires(
    publisher: PublishRevocationLists, expires: Any, *, stays: bool
) -> None:
    """Lists name it for a week more; that of a hold that is lifted goes immediately."""
    named = RevokedCertificate(
        sha256="aa", serial_number="7", signer_name=SIGNER, authority_key="ab"
    )
    found = CredentialRevocation(
        metadata=ObjectMeta(name="r", creation_timestamp=NOW - HOUR),
        spec=CredentialRevocationSpec(certificate=named, reason="superseded"),
        status=CredentialRevocationStatus(expires=expires),
    )
    publisher._take(event(found))

    assert publisher._take(event(found, DELETED)) == ([] if stays else ["ab"])
    assert len(publisher._revoked.of(["ab"])) == stays
