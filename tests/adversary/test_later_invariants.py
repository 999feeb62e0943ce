"""Invariants of approvals that count again, of published keys, and of clusters."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID as Usage
from jwt.algorithms import ECAlgorithm

from tests.adversary.calls import Answer
from tests.adversary.clusters import FRIEND, STRANGER
from tests.adversary.invariants.kept import Kept
from tests.adversary.invariants.neighbours import PATIENCE_SECONDS, Neighbours
from tests.adversary.invariants.published import Published
from tests.adversary.invariants.violation import LATEST_SECONDS
from tests.adversary.kinds import HOME
from tests.adversary.observer import Seen
from tests.adversary.operations import Operation
from tests.adversary.pool import Pool, subject
from tests.adversary.servers import ISSUER

POOL = Pool()
LATE = LATEST_SECONDS + 1
RSA = rsa.generate_private_key(65537, 2048)


def certificate(
    name: str = "a.example", usage: Any = Usage.SERVER_AUTH, hours: int = 1, key: Any = None
) -> x509.Certificate:
    pair, now = POOL.pair("leaf"), datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject([]))
        .issuer_name(subject([("CN", "web")]))
        .public_key((key or pair.key).public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(hours=hours))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .sign(pair.key, hashes.SHA256())
    )


def request(reason: str, user: str = "builder", signer: str = "a.example/web") -> dict[str, Any]:
    conditions = [{"type": "Approved", "reason": reason}]
    return {
        "metadata": {"name": "acme-1"},
        "spec": {"username": user, "signerName": signer},
        "status": {"conditions": conditions},
    }


def kept(*issued: tuple[dict[str, Any], x509.Certificate]) -> list[str]:
    invariant = Kept()
    for document, one in issued:
        invariant.issued(document, one, 0.0)
    assert list(invariant.due(LATEST_SECONDS - 1)) == []
    return [violation.rule for violation in invariant.due(LATE)]


@pytest.mark.parametrize(
    "other",
    [
        certificate("b.example"),
        certificate(usage=Usage.CLIENT_AUTH),
        certificate(hours=2),
        certificate(key=RSA),
    ],
    ids=["name", "usage", "lifetime", "key"],
)
def test_an_approval_counts_for_no_more_than_what_was_approved(other: x509.Certificate) -> None:
    """Each of the terms is compared."""
    approved = request("ByBob"), certificate()

    assert kept(approved, (request("ApprovalKept"), certificate())) == []
    assert kept(approved, (request("ApprovalKept"), other)) == ["beyond the approval"]


def test_an_approval_counts_for_its_requester_and_signer_only() -> None:
    """And an approval by a policy is none of a person."""
    again = request("ApprovalKept"), certificate()

    assert kept((request("ByBob", user="other"), certificate()), again) != []
    assert kept((request("ByBob", signer="b.example/mail"), certificate()), again) != []
    assert kept((request("ApprovalPolicy"), certificate()), again) != []


# -- published keys ---------------------------------------------------------------------------


def published(label: str) -> jwt.PyJWK:
    key = ECAlgorithm.to_jwk(POOL.pair(label).key.public_key(), as_dict=True)
    return jwt.PyJWK({**key, "kid": "k", "alg": "ES256"})


def token(label: str, issuer: str = ISSUER) -> str:
    return jwt.encode({"iss": issuer}, POOL.pair(label).key, "ES256", {"kid": "k"})


def test_a_token_verifies_with_a_key_of_the_last_two_documents() -> None:
    invariant = Published()

    assert [one.rule for one in invariant.issued("token:1", token("own"))] == ["unpublished key"]
    for keys in ([published("own")], []):
        invariant.served(keys)
        assert list(invariant.issued("token:1", token("own"))) == []
    invariant.served([])
    assert [one.rule for one in invariant.issued("token:1", token("own"))] == ["unpublished key"]


@pytest.mark.parametrize("bad", [token("another"), token("own", "https://elsewhere.test")])
def test_a_token_of_another_key_or_issuer_is_noticed(bad: str) -> None:
    invariant = Published()
    invariant.served([published("own")])

    assert [one.rule for one in invariant.issued("token:1", bad)] == ["token does not verify"]


# -- clusters ---------------------------------------------------------------------------------


def issues(cluster: str = FRIEND) -> Operation:
    return Operation(1, cluster, "cluster-issues")


def record(sha256: str, cluster: str = FRIEND) -> Seen:
    spec = {"cluster": cluster, "sha256": sha256, "subject": "CN=alice"}
    return Seen("issuedcertificates", {"metadata": {"name": "r"}, "spec": spec})


def judged(*done: tuple[Operation, Answer], seen: tuple[Seen, ...] = ()) -> list[str]:
    invariant = Neighbours()
    for operation, answer in done:
        invariant.answered(operation, answer, 0.0)
    early = [one.rule for each in seen for one in invariant.saw(each)]
    return early + [one.rule for one in invariant.due(PATIENCE_SECONDS + 1)]


def test_what_a_cluster_issued_is_recorded_in_time() -> None:
    """The stranger's certificates are recorded or not, as it says."""
    issued = Answer(200, json.dumps({"sha256": "aa"}).encode())

    assert judged((issues(), issued)) == ["cluster is not recorded"]
    assert judged((issues(), issued), seen=(record("aa"), record("aa"))) == []
    assert judged((issues(STRANGER), issued)) == []
    assert judged(seen=(record("bb"),)) == ["record of another"]
    assert judged(seen=(record("bb", STRANGER),)) == []


@pytest.mark.parametrize(
    "change",
    [
        Operation(2, "alice", "patch", "clusters", FRIEND),
        Operation(2, "alice", "delete", "secrets", f"cluster-{FRIEND}", HOME),
    ],
)
def test_a_cluster_that_somebody_changed_is_not_judged(change: Operation) -> None:
    """A refused change is none."""
    issued = Answer(200, json.dumps({"sha256": "aa"}).encode())

    assert judged((issues(), issued), (change, Answer(200))) == []
    assert judged((issues(), issued), (change, Answer(403))) == ["cluster is not recorded"]
