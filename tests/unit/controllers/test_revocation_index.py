"""Revocations of a certificate, in whichever order they were read."""

from datetime import UTC, datetime, timedelta

import pytest

from orchid.controllers.revocation_index import RevocationIndex
from orchid.kinds.credential_revocation import CredentialRevocation, CredentialRevocationSpec
from orchid.kinds.issued_certificate import IssuedCertificate, IssuedCertificateSpec, Revoked
from orchid.wire.meta import ObjectMeta
from orchid.wire.revoked_credentials import RevokedCertificate

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINE, OTHER = "a" * 64, "b" * 64
RECORD = IssuedCertificate(
    metadata=ObjectMeta(name="1"), spec=IssuedCertificateSpec(sha256=MINE, signer_name="a/b")
)


def revocation(name: str, reason: str, hour: int, sha256: str = MINE) -> CredentialRevocation:
    return CredentialRevocation(
        metadata=ObjectMeta(name=name, creation_timestamp=NOON + timedelta(hours=hour)),
        spec=CredentialRevocationSpec(certificate=RevokedCertificate(sha256=sha256), reason=reason),
    )


@pytest.mark.parametrize("order", [1, -1])
def test_the_time_is_that_of_the_first_final_revocation(order: int) -> None:
    """A hold before it says nothing of when the certificate was revoked for good."""
    index = RevocationIndex()
    made = [
        revocation("hold", "certificateHold", 0),
        revocation("first", "superseded", 1),
        revocation("second", "keyCompromise", 2),
    ]
    for one in made[::order]:
        index.put(one)

    found = index.revoked(RECORD)

    assert found == Revoked(time=NOON + timedelta(hours=1), reason="keyCompromise")


def test_a_name_that_is_used_again_revokes_only_the_new_target() -> None:
    """As when one revocation was deleted and another made while nobody looked."""
    index = RevocationIndex()
    index.put(revocation("one", "superseded", 0))

    index.put(revocation("one", "superseded", 1, OTHER))

    assert index.revoked(RECORD) is None
