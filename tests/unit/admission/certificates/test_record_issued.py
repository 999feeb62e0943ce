"""Records of issued certificates: a serial number identifies one certificate."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from orchid.admission.certificates.record_issued import Issuers, RecordIssued
from orchid.engine.request import Target
from orchid.kinds.certificate_signing_request import (
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
)
from orchid.wire.errors import Invalid
from orchid.wire.meta import ObjectMeta
from orchid.wire.naming import ORCH
from tests.unit.admission.asking import SIGNING_REQUESTS, a_request
from tests.unit.credentials import chains

OLD = CertificateSigningRequest(
    metadata=ObjectMeta(name="r"), spec=CertificateSigningRequestSpec(signer_name="a.com/b")
)
PEM = chains.make().public_bytes(serialization.Encoding.PEM)
TARGET = Target(
    verb="update",
    is_resource=True,
    group=ORCH.certificates,
    resource="certificatesigningrequests",
    subresource="status",
    name="r",
)


CREATED = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
ISSUED = CREATED + timedelta(seconds=10)


class OtherRecord:
    """An inventory that has another certificate with every number."""

    def get(self, _namespace: str, _serial: str) -> Any:
        return SimpleNamespace(object=SimpleNamespace(spec=SimpleNamespace(sha256="0" * 64)))


async def test_a_number_that_another_certificate_has_is_refused() -> None:
    """Also of a signer for which another program may sign: who revokes by number must hit one."""
    other: Any = OtherRecord()
    none: Any = None
    issuers = Issuers((), True)
    pods = {"pod_requests": none, "account_until": none, "names": ORCH}
    policy = RecordIssued(other, none, lambda _signer: issuers, none, none, **pods)

    with pytest.raises(Invalid, match="another certificate has the serial number 7"):
        await policy.companions(a_request(TARGET), SIGNING_REQUESTS, OLD.with_certificate(PEM), OLD)


@pytest.mark.parametrize(
    ("requester", "revoked_until", "issued"),
    [
        # Requested with a credential that was revoked before the certificate was issued.
        ("jane", CREATED, CREATED),
        ("jane", CREATED + timedelta(seconds=5), CREATED + timedelta(seconds=5)),
        ("jane", ISSUED, ISSUED),
        # Locked out for some time: the time of issue is still not in the future.
        ("jane", ISSUED + timedelta(days=1), ISSUED),
        # Requested after the revocation.
        ("jane", CREATED - timedelta(seconds=1), ISSUED),
        ("jane", None, ISSUED),
        # Requested by others, as with a join token: after the second of the revocation.
        ("token", CREATED, ISSUED),
        ("token", ISSUED, ISSUED + timedelta(seconds=1)),
        ("token", ISSUED + timedelta(days=1), ISSUED),
        ("token", None, ISSUED),
    ],
)
def test_the_time_of_issue_respects_revocations_of_the_user(
    requester: str, revoked_until: datetime | None, issued: datetime
) -> None:
    """A renewal under way ends with the credential that requested it; a later one is valid."""
    none: Any = None
    policy = RecordIssued(
        none,
        none,
        none,
        lambda _signer, _user: (None, int(revoked_until.timestamp()) if revoked_until else -1),
        none,
        pod_requests=none,
        account_until=none,
        names=ORCH,
    )
    csr = CertificateSigningRequest(
        metadata=ObjectMeta(name="r", creation_timestamp=CREATED),
        spec=CertificateSigningRequestSpec(signer_name="a.com/b", username=requester),
    )
    facts: Any = SimpleNamespace(username="jane")

    assert policy._issued_to_user(csr, facts, ISSUED) == issued
