"""Records of issued certificates: a serial number identifies one certificate."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from orchid.features.certificates.kinds import issued_certificate
from orchid.features.certificates.kinds.certificate_signing_request import (
    APPROVED_AT,
    APPROVED_BY,
    APPROVER,
    IMPERSONATOR,
    POLICY,
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
)
from orchid.features.certificates.kinds.issued_certificate import (
    Approval,
    Approver,
    IssuedCertificate,
    IssuedCertificateSpec,
    IssuedPod,
)
from orchid.features.certificates.kinds.pod_certificate_request import (
    REQUESTER,
    PodCertificateRequest,
    PodCertificateRequestSpec,
)
from orchid.features.certificates.policies.record_issued import Issuers, RecordIssued
from orchid.kernel.credentials.x509.issued_facts import read_issued
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.errors import Forbidden, Invalid, Unavailable
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from tests.unit.features.asking import NOW, SIGNING_REQUESTS, a_request
from tests.unit.kernel.credentials import chains, samples

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
    pods = {"pod_requests": none, "account_until": none, "key_problem": none, "naming": ORCH}
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
        key_problem=none,
        naming=ORCH,
    )
    csr = CertificateSigningRequest(
        metadata=ObjectMeta(name="r", creation_timestamp=CREATED),
        spec=CertificateSigningRequestSpec(signer_name="a.com/b", username=requester),
    )
    facts: Any = SimpleNamespace(username="jane")

    assert policy._issued_to_user(csr, facts, ISSUED) == issued


class Records:
    """An empty inventory."""

    kind = issued_certificate.declare(ORCH)

    def get(self, _namespace: str, _serial: str) -> None:
        return None


def recording(
    notes: dict[str, str] | None = None,
    *,
    signer_until: datetime | None = None,
    account_until: int = -1,
    issuers: Issuers | None = None,
) -> RecordIssued:
    entry = SimpleNamespace(notes=lambda: notes or {})
    requests = SimpleNamespace(get=lambda _namespace, _name: entry)
    parts: Any = Records(), requests, lambda _signer: issuers, lambda *_: (signer_until, -1)
    random: Any = SimpleNamespace(uid=lambda: "uid")
    pods: Any = requests
    return RecordIssued(
        *parts,
        random,
        pod_requests=pods,
        account_until=lambda _account: account_until,
        key_problem=lambda _sha256: "",
        naming=ORCH,
    )


FACTS = read_issued(PEM)


def test_the_record_of_a_request_has_its_requester_and_node() -> None:
    asked = CertificateSigningRequestSpec(
        signer_name="a.com/b",
        username="system:serviceaccount:web:a",
        uid="u1",
        groups=("g",),
        extra={ORCH.node_name_extra: ("node-1", "node-2")},
    )
    csr = CertificateSigningRequest(metadata=ObjectMeta(name="r", uid="r1"), spec=asked)

    record = recording()._record(csr, FACTS, a_request(TARGET))

    found = record.spec.requester
    assert (found.username, found.uid, found.groups) == (asked.username, "u1", ("g",))
    assert found.node_name == "node-1"
    assert (record.spec.request.name, record.spec.request.uid) == ("r", "r1")
    assert record.spec.approver == Approver()
    assert record.spec.approval == Approval()


def test_the_record_of_a_request_has_its_approver() -> None:
    """As the server noted it, whatever the condition says."""
    user = {"username": "bob", "uid": "u2", "groups": ["g"], "extra": {ORCH.credential_id: ["X=1"]}}
    notes = {
        APPROVER: "bob",
        POLICY: "web",
        IMPERSONATOR: "carol",
        APPROVED_AT: ISSUED.isoformat(),
        APPROVED_BY: json.dumps(user),
    }
    csr = OLD.with_condition("Approved", "ByBob", "fine")

    record = recording(notes)._record(csr, FACTS, a_request(TARGET))

    assert record.spec.approver == Approver(
        username="bob",
        policy="web",
        impersonator="carol",
        uid="u2",
        groups=("g",),
        credential_ids=("X=1",),
    )
    assert record.spec.approval == Approval(reason="ByBob", message="fine", time=ISSUED)


@pytest.mark.parametrize(
    ("account_until", "signer_until", "seconds"),
    [
        (-1, None, 0),
        (int(NOW.timestamp()) - 1, None, 0),
        (int(NOW.timestamp()), None, 1),
        (int(NOW.timestamp()) + 5, None, 6),
        (-1, NOW - timedelta(seconds=1), 0),
        (-1, NOW, 1),
        (-1, NOW + timedelta(seconds=5), 6),
    ],
)
def test_the_certificate_of_a_pod_is_issued_after_the_revocation(
    account_until: int, signer_until: datetime | None, seconds: int
) -> None:
    """Of its account or its signer: in that second it would be among the revoked."""
    new = PodCertificateRequest(
        metadata=ObjectMeta(name="p", namespace="web", uid="p1"),
        spec=PodCertificateRequestSpec(
            signer_name="a.com/b",
            pod_name="a",
            pod_uid="a1",
            service_account_name="sa",
            node_name="n1",
        ),
    )
    policy = recording(
        {REQUESTER: "kubelet"}, account_until=account_until, signer_until=signer_until
    )

    record = policy._pod_record(new, FACTS, a_request(TARGET))

    assert record.metadata.creation_timestamp == NOW + timedelta(seconds=seconds)
    assert record.spec.requester.username == "kubelet"
    assert record.spec.request.name == "web/p"
    assert record.spec.pod == IssuedPod(namespace="web", name="a", uid="a1", node_name="n1")


async def test_a_valid_certificate_stays_in_the_inventory() -> None:
    """Until its end; those of clusters have rules of their own."""
    kind, policy = Records.kind, recording()

    def record(end: datetime | None, cluster: str = "") -> IssuedCertificate:
        spec = IssuedCertificateSpec(not_after=end, cluster=cluster)
        return IssuedCertificate(metadata=ObjectMeta(name="7"), spec=spec)

    later = NOW + timedelta(seconds=1)
    for old in (record(NOW), record(None), record(later, "prod")):
        await policy.review(a_request(TARGET), kind, None, old)
    await policy.review(a_request(TARGET), kind, record(later), record(later))
    await policy.review(a_request(TARGET), kind, record(later), None)
    with pytest.raises(Forbidden, match="valid until"):
        await policy.review(a_request(TARGET), kind, None, record(later))


KEY, OTHER = chains.OTHER_P256, chains.P256
ROOT = chains.make("ca", key=chains.P256, ca=True, usages=None)


def csr_for(key: Any) -> CertificateSigningRequest:
    spec = replace(OLD.spec, request=samples.request("alice", (), key=key))
    return replace(OLD, spec=spec)


@pytest.mark.parametrize(
    ("key", "issuers", "text"),
    [
        (KEY, (), "has no certificate"),
        (OTHER, (ROOT,), "another key"),
        (KEY, (chains.make("ca", key=KEY, signer=KEY, ca=True, usages=None),), "did not issue it"),
    ],
)
async def test_a_foreign_certificate_is_refused_or_not_recorded(
    key: Any, issuers: Any, text: str
) -> None:
    """Another program may sign for a platform signer, but not for an authority of ours."""
    old = csr_for(key)
    new = old.with_certificate(PEM)

    with pytest.raises(Invalid, match=text):
        await recording(issuers=Issuers(issuers, False)).companions(
            a_request(TARGET), SIGNING_REQUESTS, new, old
        )
    request = a_request(TARGET)
    made = await recording(issuers=Issuers(issuers, True)).companions(
        request, SIGNING_REQUESTS, new, old
    )
    assert made == ()
    assert text in request.warnings[0]


async def test_only_a_new_certificate_of_a_signer_of_ours_is_recorded() -> None:
    old = csr_for(KEY)
    new = old.with_certificate(PEM)
    ours = recording(issuers=Issuers((ROOT,), False))

    async def companions(policy: RecordIssued, after: Any, before: Any) -> int:
        request = a_request(TARGET)
        return len(await policy.companions(request, SIGNING_REQUESTS, after, before))

    assert await companions(ours, new, old) == 1
    assert await companions(ours, new, new) == 0
    assert await companions(ours, old, new) == 0
    assert await companions(recording(), new, old) == 0


@pytest.mark.parametrize(("ahead", "recorded"), [(-1, True), (0, True), (4, True), (5, False)])
async def test_a_record_is_not_stored_before_its_time_of_issue(
    monkeypatch: pytest.MonkeyPatch, ahead: int, recorded: bool
) -> None:
    """Otherwise the next revocation would be earlier than the certificate that it should end."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    old = csr_for(KEY)
    until = NOW + timedelta(seconds=ahead)
    policy = recording(issuers=Issuers((ROOT,), False), signer_until=until)
    request = a_request(TARGET)
    companions = policy.companions(request, SIGNING_REQUESTS, old.with_certificate(PEM), old)

    if recorded:
        (record,) = await companions
        assert record.metadata.creation_timestamp == NOW + timedelta(seconds=ahead + 1)
        assert waits == ([ahead + 1] if ahead >= 0 else [])
    else:
        with pytest.raises(Unavailable, match="try again"):
            await companions
