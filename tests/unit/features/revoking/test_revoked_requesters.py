"""Each way in which the credential of a requester has ended refuses an approval by itself."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.certificates.kinds import pod_certificate_request
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
)
from orchid.features.certificates.kinds.pod_certificate_request import (
    REQUESTER,
    PodCertificateRequest,
    PodCertificateRequestStatus,
)
from orchid.features.certificates.requester_notes import CREATED_BY, CREATED_WITH
from orchid.features.exchange.kinds.token_exchange_policy import TokenExchangePolicy
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.features.revoking.policies.revoked_requesters import RevokedRequesters
from orchid.kernel.engine.interfaces import Rejected
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.request_conditions import APPROVED, DENIED
from orchid.kernel.wire.struct import replace
from tests.unit.features.asking import SIGNING_REQUESTS, a_request
from tests.unit.features.certificates.test_record_issued import TARGET

SINCE = "since the request was created"
EXTRA = "authentication.orch.io"
CREATED = datetime(2026, 11, 19, 12, tzinfo=UTC)
ROBOT = "system:serviceaccount:ci:robot"
POD = {f"{EXTRA}/pod-name": ("p",), f"{EXTRA}/pod-uid": ("p1",)}
POLICY = {f"{EXTRA}/exchange-policy": ("jobs",), f"{EXTRA}/exchange-policy-uid": ("x1",)}
EXCHANGED = {
    **POLICY,
    f"{EXTRA}/exchange-user": ("carla",),
    f"{EXTRA}/exchange-issuer": ("https://idp.example",),
    f"{EXTRA}/exchange-credential-id": ("JTI=7",),
}
META = ObjectMeta(name="r", namespace="ci", creation_timestamp=CREATED)


class Server:
    """Revocations of one name or id, and an account and a Pod with the uids `a1` and `p1`."""

    def __init__(self, revoked: str = "", notes: dict[str, str] | None = None) -> None:
        self._revoked, self._notes = revoked, notes or {}
        self.uids: dict[Any, dict[tuple[str, str], str]] = {
            ServiceAccount: {("ci", "robot"): "a1"},
            Pod: {("ci", "p"): "p1"},
            TokenExchangePolicy: {("ci", "jobs"): "x1"},
        }

    def of(self, kind: Any) -> Any:
        def get(namespace: str, name: str) -> Any:
            if kind not in self.uids:
                return SimpleNamespace(notes=lambda: self._notes)
            uid = self.uids[kind].get((namespace, name))
            return SimpleNamespace(meta=SimpleNamespace(uid=uid)) if uid else None

        return SimpleNamespace(get=get)

    async def fresh(self) -> None:
        pass

    def refuse_action(self, user: Any, ids: Any, moment: datetime) -> None:
        assert moment == CREATED
        self._refuse(user.username, *ids)

    def refuse_outside_token(self, issuer: str, claims: Any, username: str) -> None:
        assert claims["iat"] == CREATED.timestamp()
        self._refuse(f"{issuer} {claims['jti']}", username)

    def _refuse(self, *found: str) -> None:
        if self._revoked in found:
            raise Rejected(f"{self._revoked} is revoked")


def csr(username: str = ROBOT, uid: str = "a1", **extra: tuple[str, ...]) -> Any:
    spec = CertificateSigningRequestSpec(username=username, uid=uid, extra=extra)
    return CertificateSigningRequest(metadata=META, spec=spec)


async def problem(server: Any, old: Any, new: Any = None) -> str:
    policy = RevokedRequesters(ORCH, server, server)
    new = new or old.with_condition(APPROVED, "ByTest", "")
    try:
        await policy.review(a_request(TARGET), SIGNING_REQUESTS, new, old)
    except Forbidden as refusal:
        return str(refusal) if refusal.has_cause("RequesterRevoked") else "another cause"
    return ""


@pytest.mark.parametrize(
    ("server", "old"),
    [
        (Server("alice"), csr("alice", "")),
        (Server("X509SHA256=0a"), csr("alice", "", **{ORCH.credential_id: ("X509SHA256=0a",)})),
        (Server("bob", {CREATED_BY: "bob"}), csr("alice", "")),
        (Server("KEY=k1", {CREATED_WITH: '["JTI=1","KEY=k1"]'}), csr()),
        (Server("KEY=k1", {CREATED_BY: "bob", CREATED_WITH: '["KEY=k1"]'}), csr()),
        (Server("https://idp.example 7"), csr(**EXCHANGED)),
        (Server("carla"), csr(**EXCHANGED)),
        (Server(), csr(**{**EXCHANGED, f"{EXTRA}/exchange-policy-uid": ("x2",)})),
        (Server(), csr(**{**EXCHANGED, f"{EXTRA}/exchange-policy": ("gone",)})),
        (Server(), csr(uid="a2")),
        (Server(), csr("system:serviceaccount:ci:other")),
        (Server(), csr(**{**POD, f"{EXTRA}/pod-uid": ("p2",)})),
        (Server(), csr(**{**POD, f"{EXTRA}/pod-name": ("other",)})),
    ],
)
async def test_a_credential_that_has_ended_is_refused(server: Server, old: Any) -> None:
    assert SINCE in await problem(server, old)
    certificate = await problem(server, old, old.with_certificate(b"pem"))
    assert SINCE in certificate


@pytest.mark.parametrize(
    ("server", "old"),
    [
        (Server(), csr("alice", "")),
        (Server("carol", {CREATED_BY: "bob"}), csr("alice", "")),
        (Server("KEY=k2", {CREATED_WITH: '["JTI=1","KEY=k1"]'}), csr()),
        (Server("https://other.example 7"), csr(**EXCHANGED)),
        (Server("https://idp.example 7"), csr()),
        (Server("dora"), csr(**EXCHANGED)),
        (Server(), csr(**POD)),
        # The user of a certificate is no account: there is no uid to compare.
        (Server(), csr("system:serviceaccount:ci:other", "")),
        (Server(), csr("alice", "a2", **POD)),
    ],
)
async def test_a_credential_that_still_counts_is_not(server: Server, old: Any) -> None:
    assert await problem(server, old) == ""


async def test_other_changes_are_not_judged() -> None:
    """A denial, a note and what was granted before; so an operator can still clean up."""
    server, old = Server("alice"), csr("alice", "")
    approved = old.with_condition(APPROVED, "ByTest", "")
    issued = approved.with_certificate(b"pem")

    assert await problem(server, old, old.with_condition(DENIED, "ByTest", "")) == ""
    assert await problem(server, approved, approved.with_condition("Failed", "x", "")) == ""
    assert await problem(server, issued, issued.with_condition(APPROVED, "Other", "")) == ""


@pytest.mark.parametrize(
    ("requester", "revoked", "is_refused"),
    [("node", "node", True), ("node", "other", False), ("node", ROBOT, False)],
)
async def test_a_pod_gets_no_certificate_by_a_revoked_node(
    requester: str, revoked: str, is_refused: bool
) -> None:
    """After the revocation of its account it gets new ones."""
    server: Any = Server(revoked, {REQUESTER: requester})
    old = PodCertificateRequest(metadata=META)
    new = replace(old, status=PodCertificateRequestStatus(certificate_chain="pem"))
    kind = pod_certificate_request.declare(ORCH)
    policy = RevokedRequesters(ORCH, server, server)

    await policy.review(a_request(TARGET), kind, old, old)
    if is_refused:
        with pytest.raises(Forbidden, match=SINCE):
            await policy.review(a_request(TARGET), kind, new, old)
    else:
        await policy.review(a_request(TARGET), kind, new, old)
