"""The attack: to create a Cluster in place of one that was deleted, and get what that one had."""

from typing import Any

import pytest

from orchid.features.clusters.cluster_status import ClusterStatusWriter
from orchid.features.clusters.record_usage import ClusterRecordUsage
from orchid.features.clusters.revoked import ClusterRevocations
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.struct import replace
from tests.api.clusters import CLUSTERS, NO_OPINION, REVOCATIONS, asked, cluster, revoked
from tests.api.world import Api
from tests.security.certified import issued, other_authority
from tests.security.test_cluster_records import RECORDS, recorded
from tests.security.test_revocations import fingerprint
from tests.unit.features.beside import MovingClock

TOKEN, ROBOT = "JTI=7", "system:serviceaccount:ci:robot"


@pytest.fixture(autouse=True)
def stopped(clock: MovingClock) -> None:
    """All within one second."""
    clock.stopped = clock.now()


async def again(server: Api, **spec: Any) -> tuple[ObjectMeta, ObjectMeta]:
    """A cluster in which everything is revoked, and the next one of its name, in that second."""
    before = await cluster(server, **spec)
    await revoked(server, "token", token={"jti": "7"})
    await revoked(server, "account", account={"namespace": "ci", "name": "robot"})
    await revoked(server, "user", user={"username": "jane"})
    await asked(server, "jane")
    await server.call("DELETE", f"{CLUSTERS}/prod")
    after = await cluster(server, **spec)
    uids = (one["metadata"]["uid"] for one in (before, after))
    first, second = (ObjectMeta(name="prod", uid=uid) for uid in uids)
    assert first.uid != second.uid
    return first, second


async def test_no_revocation_is_inherited(server: Api) -> None:
    """Neither are they named as repeated: the same can be revoked in the next cluster."""
    await again(server)

    assert await asked(server, "alice", TOKEN) == NO_OPINION
    assert await asked(server, ROBOT) == NO_OPINION
    assert await asked(server, "jane") == NO_OPINION
    await revoked(server, "once-more", token={"jti": "7"})
    assert (await asked(server, "alice", TOKEN))["denied"]


async def test_revocations_of_the_first_cluster_count_when_it_is_back(server: Api) -> None:
    """As after a restore: the name alone decides nothing."""
    first, second = await again(server)
    find = server.server.context.port(ClusterRevocations).find

    assert find(first, "alice", [TOKEN]) == "token"
    assert find(first, "jane", []) == "user"
    assert find(second, "alice", [TOKEN]) is None
    assert find(replace(first, name="test"), "alice", [TOKEN]) is None


async def test_calls_are_not_inherited(server: Api) -> None:
    """Counted before it was deleted, and not yet in any status."""
    await again(server)

    await server.server.context.port(ClusterStatusWriter).write()

    assert "lastCall" not in (await server.call("GET", f"{CLUSTERS}/prod")).json.get("status", {})


async def test_records_are_not_inherited(server: Api) -> None:
    """They fill no quota, name no certificate, and spare none from the revocation of its user."""
    authority = other_authority()
    bundle = authority.certificate_pem.decode()
    alice = issued(authority, "alice")
    await cluster(server, clientAuthorities=bundle)
    later = {"name": "laptop", "uid": "1", "created": "2099-01-01T00:00:00Z"}
    answer = await recorded(server, alice.der, request=later)
    assert answer.status == 201, answer.text
    await server.call("DELETE", f"{CLUSTERS}/prod")
    uid = (await cluster(server, clientAuthorities=bundle))["metadata"]["uid"]

    number = answer.json["spec"]["serialNumber"]
    named = {"cluster": "prod", "certificate": {"serialNumber": number}}
    body = {"metadata": {"name": "a"}, "spec": named}
    assert (await server.call("POST", REVOCATIONS, body)).status == 422
    await revoked(server, "alice", user={"username": "alice"})
    assert (await asked(server, "alice", f"X509SHA256={fingerprint(alice)}"))["denied"]
    usage = ClusterRecordUsage(server.server.feed)
    assert usage(ObjectMeta(name="prod", uid=uid)) == (0, 0)
    name = answer.json["metadata"]["name"]
    assert (await server.call("DELETE", f"{RECORDS}/{name}")).status == 200
