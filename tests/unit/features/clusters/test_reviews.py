"""Reviews of clusters: each part of what makes one malformed, and whose revocations count."""

import asyncio
import json
from typing import Any

import pytest

from orchid.features.certificates.kinds import issued_certificate
from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    IssuedCertificateSpec,
)
from orchid.features.clusters.calls import (
    DENIED,
    MALFORMED,
    NO_OPINION,
    UNKNOWN,
    Calls,
    ClusterCalls,
)
from orchid.features.clusters.kinds import cluster
from orchid.features.clusters.record_usage import ClusterRecordUsage
from orchid.features.clusters.reviews import MOST_IDS, VERSIONS, ClusterReviews
from orchid.kernel.wire.errors import BadRequest, NotFound
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import KUBERNETES, ORCH
from orchid.kernel.wire.struct import replace
from tests.unit.features.clusters.test_cluster_records import a_cluster
from tests.unit.kernel.access.presenting import FakeClock
from tests.unit.kernel.access.world import World, world_of

KINDS = cluster.declare(ORCH), issued_certificate.declare(ORCH)
V1 = "authorization.k8s.io/v1"


class Revoked:
    """Jane and one id are revoked in `prod`; records what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, tuple[str, ...]]] = []

    def find(self, cluster: ObjectMeta, user: str, ids: tuple[str, ...]) -> str | None:
        self.asked.append((cluster.uid, user, ids))
        return "r1" if cluster.name == "prod" and (user == "jane" or "X=1" in ids) else None


def body(
    *,
    user: str = "jane",
    ids: Any = None,
    kind: str = "SubjectAccessReview",
    version: str = V1,
    **spec: Any,
) -> bytes:
    extra = {} if ids is None else {"extra": {KUBERNETES.credential_id: ids, "other": ["x"]}}
    sent = {"kind": kind, "apiVersion": version, "spec": {"user": user, **extra, **spec}}
    return json.dumps(sent).encode()


class Webhook:
    def __init__(self, here: World) -> None:
        self.calls = ClusterCalls(here.clock)
        self.revoked: Any = Revoked()
        self.reviews = ClusterReviews(here.feed, self.revoked, self.calls)

    async def status(self, sent: bytes, cluster: str = "prod") -> dict[str, Any]:
        answer = json.loads(await self.reviews.answer(cluster, sent, 5.0))
        assert answer["kind"] == "SubjectAccessReview"
        found: dict[str, Any] = answer["status"]
        return found


@pytest.mark.parametrize("version", sorted(VERSIONS))
async def test_a_revoked_credential_is_denied_in_its_cluster_alone(version: str) -> None:
    """Of every other request there is no opinion; the answer has the version of the review."""
    async with world_of(*KINDS) as here:
        for name in ("prod", "test"):
            await here.put(a_cluster(name))
        webhook = Webhook(here)
        denied = {"allowed": False, "denied": True, "reason": "credential revoked by r1"}

        assert await webhook.status(body(version=version)) == denied
        assert await webhook.status(body(user="x", ids=["X=2", "X=1"], version=version)) == denied
        assert await webhook.status(body(user="x", version=version)) == {"allowed": False}
        assert await webhook.status(body(version=version), "test") == {"allowed": False}
        answer = json.loads(await webhook.reviews.answer("test", body(version=version), 5.0))

    assert answer["apiVersion"] == version
    assert webhook.revoked.asked[1] == ("uid-prod", "x", ("X=2", "X=1"))


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1"}',
        body(kind="TokenReview"),
        body(version="authorization.k8s.io/v1alpha1"),
        body(version="authorization.orch.io/v1"),
        body(ids=["x"] * (MOST_IDS + 1)),
        body(ids="X=1"),
        body(ids=[1]),
    ],
)
async def test_what_is_no_review_is_refused_and_counted(sent: bytes) -> None:
    async with world_of(*KINDS) as here:
        await here.put(a_cluster("prod"))
        webhook = Webhook(here)

        with pytest.raises(BadRequest, match="the body is no review"):
            await webhook.reviews.answer("prod", sent, 5.0)
        await webhook.status(body(ids=["x"] * MOST_IDS))

        taken = webhook.calls.take()["prod", "uid-prod"]
    assert (taken.malformed, taken.answered, taken.denied) == (1, 1, 1)
    assert len(webhook.revoked.asked) == 1


async def test_a_cluster_that_does_not_exist_is_counted_under_no_name() -> None:
    """Callers choose the name: as a label it would fill the memory."""
    async with world_of(*KINDS) as here:
        await here.put(a_cluster("prod"))
        webhook = Webhook(here)

        for name in ("gone", "pro", "prod2"):
            with pytest.raises(NotFound):
                await webhook.reviews.answer(name, body(), 5.0)
            webhook.reviews.malformed(name, "too large")

        assert webhook.calls.take() == {}
        assert webhook.calls.results.value("", UNKNOWN) == 3
        assert webhook.calls.results.value("gone", UNKNOWN) == 0


async def test_calls_are_taken_once_and_wake_the_writer() -> None:
    """Those of each cluster, by name and uid."""
    calls = ClusterCalls(FakeClock())
    prod, again, test = (
        ObjectMeta(name=name, uid=uid)
        for name, uid in (("prod", "1"), ("prod", "2"), ("test", "3"))
    )

    calls.answered(prod, 7.0, denied=True)
    calls.answered(prod, 8.0, denied=False)
    calls.answered(again, 9.0, denied=False)
    calls.malformed(test)
    assert calls.called.is_set()
    taken = calls.take()

    assert taken["prod", "1"] == Calls(last=8.0, answered=2, denied=1)
    assert taken["prod", "2"] == Calls(last=9.0, answered=1)
    assert taken["test", "3"] == Calls(last=FakeClock().monotonic(), malformed=1)
    assert calls.take() == {}
    assert not calls.called.is_set()
    counted = (("prod", DENIED), ("prod", NO_OPINION), ("test", MALFORMED))
    assert [calls.results.value(*labels) for labels in counted] == [1, 2, 1]


async def test_the_records_of_each_cluster_are_counted() -> None:
    """As they come, change and go; those of our own signers and of an earlier one are in none."""

    def record(name: str, data: bytes = b"x", uid: str = "") -> IssuedCertificate:
        meta = ObjectMeta(name=name, uid=f"uid-{name}")
        cluster = name.partition(".")[0]
        uid = uid or f"uid-{cluster}"
        spec = IssuedCertificateSpec(cluster=cluster, cluster_uid=uid, certificate=data)
        return IssuedCertificate(metadata=meta, spec=spec)

    prod, test, other = (a_cluster(name).metadata for name in ("prod", "test", "7"))
    async with world_of(*KINDS) as here:
        usage = ClusterRecordUsage(here.feed)
        first, second = record("prod.a"), record("prod.b")
        assert usage(prod) == (0, 0)

        for one in (first, second, record("test.a"), record("7"), record("prod.c", uid="before")):
            await here.put(one)
            await asyncio.sleep(0)
        count, size = usage(prod)
        assert (count, usage(test)[0], usage(other)) == (2, 1, (0, 0))
        assert usage(test)[1] == size // 2

        await here.put(record("prod.b", b"x" * 300))
        grown = usage(prod)
        assert grown[0] == 2
        assert size < grown[1] < size + 500
        await here.delete(second)
        assert usage(prod) == (1, size // 2)
        stored = record("prod.b")
        await here.put(replace(stored, spec=replace(stored.spec, cluster_uid="")))
        assert usage(prod)[0] == 2  # of an earlier version
        await here.delete(first)
        await here.delete(second)
        assert (usage(prod), usage(test)[0]) == ((0, 0), 1)
