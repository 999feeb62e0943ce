"""Revocations of a certificate, in whichever order they were read."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    IssuedCertificateSpec,
    IssuedFor,
    Revoked,
)
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.revoking.controllers.revocation_index import RevocationIndex
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.revoked_credentials import RevokedAccount, RevokedCertificate, RevokedUser

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
JANE = RevokedUser(username="jane", issued_before=NOON)
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


@pytest.mark.parametrize(
    ("user", "hours", "is_marked"),
    [
        ("system:serviceaccount:ci:robot", 0, True),
        ("system:serviceaccount:ci:robot", 1, False),
        ("system:serviceaccount:ci:other", 0, False),
        ("jane", 0, True),
        ("jane", 1, False),
        ("", 0, False),
    ],
)
def test_a_certificate_is_marked_with_its_user_or_account(
    user: str, hours: int, is_marked: bool
) -> None:
    """If it was issued before the end of the revocation."""
    account = RevokedAccount(namespace="ci", name="robot", issued_before=NOON)
    index = RevocationIndex()
    for name, spec in (
        ("account", CredentialRevocationSpec(account=account)),
        ("user", CredentialRevocationSpec(user=RevokedUser(username="jane", issued_before=NOON))),
    ):
        meta = ObjectMeta(name=name, creation_timestamp=NOON)
        index.put(CredentialRevocation(metadata=meta, spec=spec))
    meta = ObjectMeta(name="1", creation_timestamp=NOON + timedelta(hours=hours))
    spec = IssuedCertificateSpec(sha256=MINE, username=user)

    marked = index.revoked(IssuedCertificate(metadata=meta, spec=spec))

    assert (marked is not None) is is_marked
    assert index.clusters == {""}


@pytest.mark.parametrize(
    ("cluster", "uid", "is_marked"),
    [
        ("prod", "u1", True),
        ("prod", "u2", False),
        ("prod", "", True),  # stored by an earlier version, which knew the name only
        ("test", "u1", False),
        ("", "", False),
    ],
)
def test_a_certificate_is_marked_by_revocations_of_its_cluster(
    cluster: str, uid: str, is_marked: bool
) -> None:
    """Not by those of an earlier cluster of the name, whatever they name."""
    marks = []
    targets: list[Any] = [{"certificate": RevokedCertificate(sha256=MINE)}, {"user": JANE}]
    for target in targets:
        index, meta = RevocationIndex(), ObjectMeta(name="1", creation_timestamp=NOON)
        revoked = CredentialRevocationSpec(cluster="prod", cluster_uid="u1", **target)
        index.put(CredentialRevocation(metadata=meta, spec=revoked))
        request = IssuedFor(created=NOON)
        named: Any = {"cluster": cluster, "cluster_uid": uid, "request": request}
        spec = IssuedCertificateSpec(sha256=MINE, username="jane", **named)
        marks.append(index.revoked(IssuedCertificate(metadata=meta, spec=spec)) is not None)

    assert marks == [is_marked, is_marked]
