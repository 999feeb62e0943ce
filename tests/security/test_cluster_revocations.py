"""The attack: to reach beyond one cluster with a revocation, a right or a credential of it."""

import hashlib
from datetime import datetime, timedelta
from typing import Any

import pytest

from orchid.features.revocation.revocations import Revocations
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.wire.naming import ORCH
from tests.api.clusters import (
    CLUSTERS,
    NO_OPINION,
    REVOCATIONS,
    asked,
    cluster,
    review,
    revoke,
    revoked,
    webhook,
)
from tests.api.world import ALICE, Api
from tests.security.certified import cluster_authority, issued, mirrored, other_authority
from tests.security.test_revocations import jti_of, known
from tests.unit.features.beside import MovingClock

RBAC = "/apis/rbac.authorization.orch.io/v1"
SHA = "ab" * 32


async def grant(server: Api, name: str, subject: dict[str, str], *rules: dict[str, Any]) -> None:
    await server.make(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": list(rules)})
    reference = {"apiGroup": ORCH.rbac, "kind": "ClusterRole", "name": name}
    binding = {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference}
    await server.make(f"{RBAC}/clusterrolebindings", binding)


def user(name: str) -> dict[str, str]:
    return {"kind": "User", "name": name, "apiGroup": ORCH.rbac}


def revokes(group: str, resource: str, *names: str) -> dict[str, Any]:
    rule = {"apiGroups": [group], "resources": [resource], "verbs": ["revoke"]}
    return {**rule, "resourceNames": list(names)} if names else rule


CREATES = {
    "apiGroups": ["identity.orch.io"],
    "resources": ["credentialrevocations"],
    "verbs": ["create", "delete"],
}


async def test_a_revocation_in_a_cluster_takes_nothing_from_this_server(server: Api) -> None:
    """A user who revokes ids of this server in a cluster locks nobody out here."""
    await cluster(server)
    await server.account("robot")
    token = await server.token("robot")
    jane = issued(cluster_authority(server.server.files.path), "jane")
    ours = {"namespace": "default", "name": "robot"}

    await revoked(server, "a", token={"jti": jti_of(token)})
    await revoked(server, "b", token={"jti": jti_of(token), **ours})
    await revoked(server, "c", account=ours)
    await revoked(server, "d", certificate={"sha256": hashlib.sha256(jane.der).hexdigest()})
    await revoked(server, "e", user={"username": "jane"})

    assert await known(server, token=token) == 201
    assert await known(server, peer=jane.peer) == 201
    assert len(server.server.context.port(Revocations)) == 0
    later = await server.token("robot")
    assert await known(server, token=later) == 201


async def test_a_revocation_here_is_none_in_a_cluster(server: Api) -> None:
    """The same ids there are other credentials."""
    await cluster(server)
    await server.account("robot")
    jti = jti_of(await server.token("robot"))
    for name, spec in (
        ("a", {"token": {"jti": jti}}),
        ("b", {"account": {"namespace": "default", "name": "robot"}}),
        ("c", {"certificate": {"sha256": SHA}}),
    ):
        body = {"metadata": {"name": name}, "spec": spec}
        assert (await server.call("POST", REVOCATIONS, body)).status == 201

    robot = "system:serviceaccount:default:robot"
    assert await asked(server, robot, f"JTI={jti}") == NO_OPINION
    assert await asked(server, "jane", f"X509SHA256={SHA}") == NO_OPINION


async def test_a_revocation_in_one_cluster_is_none_in_another(server: Api) -> None:
    """Clusters may share an issuer and user names."""
    await cluster(server)
    await cluster(server, "test")

    await revoked(server, "a", certificate={"sha256": SHA})
    await revoked(server, "b", user={"username": "alice"})

    assert await asked(server, "alice", f"X509SHA256={SHA}", cluster="test") == NO_OPINION


@pytest.mark.parametrize(
    ("rule", "may"),
    [
        (revokes("identity.orch.io", "clusters", "prod"), {"prod"}),
        (revokes("identity.orch.io", "clusters"), {"prod", "test"}),
        (revokes(ORCH.certificates, "signers"), set[str]()),
        (revokes("", "serviceaccounts"), set[str]()),
        (
            {"apiGroups": ["identity.orch.io"], "resources": ["clusters"], "verbs": ["update"]},
            set[str](),
        ),
    ],
)
async def test_revoking_in_a_cluster_takes_the_verb_on_that_cluster(
    server: Api, rule: dict[str, Any], may: set[str]
) -> None:
    """Neither the right to revoke here nor the right to change clusters is enough."""
    await cluster(server)
    await cluster(server, "test")
    await grant(server, "revoker", user("alice"), CREATES, rule)
    targets: list[dict[str, Any]] = [
        {"certificate": {"sha256": SHA}},
        {"token": {"jti": "a"}},
        {"account": {"namespace": "ci", "name": "a"}},
        {"user": {"username": "a"}},
    ]

    answers = {
        name: [
            (await revoke(server, f"{name}{index}", ALICE, **target, cluster=name)).status
            for index, target in enumerate(targets)
        ]
        for name in ("prod", "test")
    }

    for name, found in answers.items():
        assert found == [201 if name in may else 403] * len(targets)


async def test_the_right_in_a_cluster_is_none_here(server: Api) -> None:
    """A revoker of a cluster cannot revoke a credential of this server."""
    await cluster(server)
    rule = revokes("identity.orch.io", "clusters")
    await grant(server, "revoker", user("alice"), CREATES, rule)

    answer = await revoke(server, "a", ALICE, cluster="", certificate={"sha256": SHA})

    assert answer.status == 403


async def test_who_may_not_revoke_does_not_learn_which_clusters_exist(server: Api) -> None:
    """The right is checked first: the answers are the same but for the name."""
    await cluster(server)
    await grant(server, "creator", user("alice"), CREATES)

    there = await revoke(server, "a", ALICE, user={"username": "x"})
    not_there = await revoke(server, "a", ALICE, user={"username": "x"}, cluster="none")

    assert (there.status, not_there.status) == (403, 403)
    assert there.text.replace("prod", "none") == not_there.text


async def test_nobody_lifts_a_revocation_without_the_right(server: Api) -> None:
    """The right to delete revocations does not release a user or a hold of a cluster."""
    await cluster(server)
    await revoked(server, "user", user={"username": "mallory"})
    await revoked(server, "hold", token={"jti": "a"}, reason="certificateHold")
    await grant(server, "deleter", user("alice"), CREATES)

    for name in ("user", "hold"):
        answer = await server.call("DELETE", f"{REVOCATIONS}/{name}", token=ALICE)
        assert answer.status == 403
    assert (await asked(server, "mallory"))["denied"] is True


async def test_the_credential_of_an_api_server_may_do_nothing_else(server: Api) -> None:
    """It cannot ask for another cluster, read or change anything, or revoke."""
    await cluster(server)
    await cluster(server, "test")
    await server.account("webhook-prod")
    token = await server.token("webhook-prod")
    subject = {"kind": "ServiceAccount", "namespace": "default", "name": "webhook-prod"}
    rule = {"nonResourceURLs": [webhook("prod")], "verbs": ["post"]}
    await grant(server, "webhook-prod", subject, rule)

    own = await server.call("POST", webhook("prod"), review(), token=token)
    other = await server.call("POST", webhook("test"), review(), token=token)
    encoded = await server.call(
        "POST", "/webhook/clusters/prod%2F..%2Ftest/authorize", review(), token=token
    )
    read = await server.call("GET", f"{CLUSTERS}/prod", token=token)
    secrets = await server.call("GET", "/api/v1/secrets", token=token)
    revoking = await revoke(server, "a", token, user={"username": "x"})

    assert own.status == 200
    refused = (other, encoded, read, secrets, revoking)
    assert [answer.status for answer in refused] == [403] * len(refused)


@pytest.mark.parametrize("caller", [None, ALICE, "wrong"])
async def test_without_the_right_nothing_is_answered(server: Api, caller: str | None) -> None:
    """Neither anonymous callers nor other users learn what is revoked."""
    await cluster(server)
    answer = await server.call("POST", webhook("prod"), review(), token=caller)
    assert answer.status == (403 if caller == ALICE else 401)


async def test_a_fingerprint_alone_is_warned_about_where_authorities_use_ecdsa(server: Api) -> None:
    """The signature (r, s) can be written as (r, n-s): the certificate has two fingerprints."""
    authority = other_authority()
    await cluster(server, clientAuthorities=authority.certificate_pem.decode())
    mallory = issued(authority, "mallory")
    first, second = (
        hashlib.sha256(data).hexdigest() for data in (mallory.der, mirrored(mallory.der))
    )

    alone = await revoke(server, "a", certificate={"sha256": first})
    both = {"sha256": first, "otherSha256": [second]}
    complete = await revoke(server, "b", certificate=both)

    assert any("ECDSA" in text for text in alone.warnings)
    assert not any("ECDSA" in text for text in complete.warnings)
    assert (await asked(server, "mallory", f"X509SHA256={second}"))["denied"] is True


async def test_many_credential_ids_are_refused(server: Api) -> None:
    """The cost of a review does not grow with what its sender puts into it."""
    await cluster(server)
    ids = [f"JTI={number}" for number in range(17)]
    answer = await server.call("POST", webhook("prod"), review("alice", *ids))
    assert answer.status == 400


async def test_a_fingerprint_stays_revoked_for_an_authority_that_came_later(
    server: Api, clock: MovingClock
) -> None:
    """A bare fingerprint may be of any authority of the cluster, also of one that ends later."""
    first = Authority.create("first", now=clock.now())
    await cluster(server, clientAuthorities=first.certificate_pem.decode())
    made = await revoked(server, "a", certificate={"sha256": SHA})
    end = datetime.fromisoformat(made["status"]["expires"])
    second = Authority.create("second", now=end - timedelta(days=30))
    found = (await server.call("GET", f"{CLUSTERS}/prod")).json
    found["spec"]["clientAuthorities"] += second.certificate_pem.decode()
    assert (await server.call("PUT", f"{CLUSTERS}/prod", found)).status == 200
    clock.ahead += end - clock.now() + timedelta(days=1)

    answer = await server.call("DELETE", f"{REVOCATIONS}/a")

    assert answer.status == 403
    assert (await asked(server, "mallory", f"X509SHA256={SHA}"))["denied"] is True


async def test_one_revoked_id_of_several_is_enough(server: Api) -> None:
    """An API server may report several; their order, and ids of an unknown form, do not matter."""
    await cluster(server)
    await revoked(server, "a", token={"jti": "3f8a"})

    for ids in (("JTI=other", "JTI=3f8a"), ("JTI=3f8a", ""), ("=", "JTI=", "JTI=3f8a", "JTI=3f8a")):
        assert (await asked(server, "alice", *ids))["denied"] is True
    for ids in (("jti=3f8a",), ("JTI=3F8A",), ("3f8a",), ("X509SHA256=3f8a",), ("JTI=3f8a ",)):
        assert await asked(server, "alice", *ids) == NO_OPINION


async def test_the_name_of_a_cluster_in_other_letters_is_another_cluster(server: Api) -> None:
    """Neither the webhook nor a revocation finds one by a name that differs in case."""
    await cluster(server)

    answer = await server.call("POST", webhook("Prod"), review())
    revoking = await revoke(server, "a", user={"username": "alice"}, cluster="PROD")

    assert (answer.status, revoking.status) == (404, 422)
