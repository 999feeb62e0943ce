"""Clusters and their webhook: what it denies, what it leaves to others, and what is counted."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchid.features.clusters.calls import ClusterCalls
from orchid.features.clusters.cluster_status import ClusterStatusWriter
from orchid.features.clusters.reviews import ClusterReviews
from orchid.features.clusters.revoked import ClusterRevocations
from orchid.kernel.context import SERVER
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from tests.api.clusters import (
    CLUSTERS,
    CREDENTIAL_ID,
    ISSUER,
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

RBAC = "/apis/rbac.authorization.orch.io/v1"
SHA = "ab" * 32
CERTIFICATE, TOKEN = f"X509SHA256={SHA}", "JTI=3f8a"


def denied(name: str) -> dict[str, Any]:
    return {"allowed": False, "denied": True, "reason": f"credential revoked by {name}"}


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize(
    ("target", "user", "credential"),
    [
        ({"certificate": {"sha256": SHA}}, "alice", CERTIFICATE),
        ({"token": {"jti": "3f8a"}}, "system:serviceaccount:ci:builder", TOKEN),
        (
            {"token": {"jti": "3f8a", "namespace": "ci", "name": "builder"}},
            "system:serviceaccount:ci:builder",
            TOKEN,
        ),
        (
            {"account": {"namespace": "ci", "name": "builder"}},
            "system:serviceaccount:ci:builder",
            TOKEN,
        ),
        ({"user": {"username": "alice"}}, "alice", CERTIFICATE),
        ({"user": {"username": "alice"}}, "alice", ""),
    ],
)
async def test_a_revoked_credential_is_denied_from_the_next_review_on(
    server: Api, target: dict[str, Any], user: str, credential: str, version: str
) -> None:
    """The reason names the revocation; before it there was no opinion."""
    await cluster(server)
    ids = (credential,) if credential else ()
    before = await asked(server, user, *ids, version=version)

    await revoked(server, "stolen", **target)

    assert before == NO_OPINION
    assert await asked(server, user, *ids, version=version) == denied("stolen")


async def test_other_credentials_get_no_opinion(server: Api) -> None:
    """Another token of the account, another certificate of the user, another user."""
    await cluster(server)
    builder = "system:serviceaccount:ci:builder"
    await revoked(server, "token", token={"jti": "3f8a", "namespace": "ci", "name": "builder"})
    await revoked(server, "certificate", certificate={"sha256": SHA})

    assert await asked(server, builder, "JTI=another") == NO_OPINION
    assert await asked(server, "system:serviceaccount:ci:other", TOKEN) == NO_OPINION
    assert await asked(server, "alice", f"X509SHA256={'cd' * 32}") == NO_OPINION
    assert await asked(server, "alice") == NO_OPINION


async def test_the_answer_has_the_version_and_kind_of_the_review(server: Api) -> None:
    """An API server decodes it as the review that it sent."""
    await cluster(server)

    answer = await server.call("POST", webhook("prod"), review(version="v1beta1"))

    assert answer.json == {
        "kind": "SubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1beta1",
        "status": NO_OPINION,
    }
    assert answer.header("content-type") == "application/json"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[" * 100_000, 400),
        (b"\xff\xfe", 400),
        (b'{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1"}', 400),
        (b'{"kind":"Pod","apiVersion":"v1","spec":{}}', 400),
        (
            b'{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v2","spec":{}}',
            400,
        ),
        (
            b'{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1",'
            b'"spec":{"extra":{"authentication.kubernetes.io/credential-id":[1]}}}',
            400,
        ),
        (b" " * ((1 << 20) + 1), 413),
    ],
)
async def test_a_malformed_review_is_refused_and_counted(
    server: Api, body: bytes, status: int
) -> None:
    """The API server's failurePolicy applies then."""
    await cluster(server)

    answer = await server.call(
        "POST", webhook("prod"), body, headers={"content-type": "application/json"}
    )

    assert answer.status == status, answer.text
    assert answer.json["kind"] == "Status"
    assert server.server.context.port(ClusterCalls).results.value("prod", "malformed") == 1


async def test_a_review_in_another_form_is_refused_and_counted(server: Api) -> None:
    """Webhooks speak JSON."""
    await cluster(server)

    answer = await server.call(
        "POST", webhook("prod"), b"kind: SubjectAccessReview", headers={"content-type": "text/yaml"}
    )

    assert answer.status == 415
    assert server.server.context.port(ClusterCalls).results.value("prod", "malformed") == 1


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", webhook("prod"), 405),
        ("POST", "/webhook/clusters/prod", 404),
        ("POST", "/webhook/clusters//authorize", 404),
        ("POST", "/webhook/clusters/prod/authorize/more", 404),
        ("POST", "/webhook/clusters/prod/x/authorize", 404),
    ],
)
async def test_only_the_one_path_and_method_are_served(
    server: Api, method: str, path: str, status: int
) -> None:
    await cluster(server)
    assert (await server.call(method, path, review())).status == status


async def test_a_removed_cluster_is_not_found_and_counted_without_its_name(server: Api) -> None:
    """The API server's failurePolicy decides; callers cannot make series."""
    await cluster(server)
    await revoked(server, "stolen", certificate={"sha256": SHA})
    await server.call("DELETE", f"{CLUSTERS}/prod")

    answer = await server.call("POST", webhook("prod"), review("alice", CERTIFICATE))

    assert answer.status == 404
    results = server.server.context.port(ClusterCalls).results
    assert results.value("", "unknown-cluster") == 1
    assert results.value("prod", "no-opinion") == 0


async def test_the_revocations_of_a_removed_cluster_stay_until_their_end(server: Api) -> None:
    """A restore may bring the cluster back. Those without an end go with the right to revoke."""
    await cluster(server)
    ends = {"expires": "2099-01-01T00:00:00Z"}
    await revoked(server, "stolen", token={"jti": "a", **ends})
    await revoked(server, "endless", token={"jti": "b"})
    kept = await server.call("DELETE", f"{REVOCATIONS}/endless")
    await server.call("DELETE", f"{CLUSTERS}/prod")

    assert kept.status == 403
    assert (await server.call("DELETE", f"{REVOCATIONS}/stolen")).status == 403
    assert (await server.call("DELETE", f"{REVOCATIONS}/endless")).status == 200


async def test_calls_are_added_to_the_status_of_the_cluster(server: Api) -> None:
    """Answered, denied and malformed ones, and the condition Connected; each only once."""
    await cluster(server)
    await revoked(server, "stolen", user={"username": "alice"})
    await asked(server, "alice")
    await asked(server, "bob")
    await server.call("POST", webhook("prod"), {})

    await server.server.context.port(ClusterStatusWriter).write()
    await server.server.context.port(ClusterStatusWriter).write()

    status = (await server.call("GET", f"{CLUSTERS}/prod")).json["status"]
    assert (status["calls"], status["denials"], status["malformed"]) == (2, 1, 1)
    assert status["lastCall"]
    condition = status["conditions"][0]
    assert (condition["type"], condition["status"]) == ("Connected", "True")


async def test_calls_of_several_servers_add_up(server: Api) -> None:
    """Each server adds what it counted to what is there."""
    meta = ObjectMeta(name="prod", uid=(await cluster(server))["metadata"]["uid"])
    client, clock = server.server.clients.of_user(SERVER), server.server.clock
    other = ClusterCalls(clock)
    other.answered(meta, clock.monotonic(), denied=True)
    await asked(server)

    await ClusterStatusWriter(other, client, clock).write()
    await server.server.context.port(ClusterStatusWriter).write()

    status = (await server.call("GET", f"{CLUSTERS}/prod")).json["status"]
    assert (status["calls"], status["denials"]) == (2, 1)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "spec.issuer"),
        ({"issuer": "x" * 1025}, "spec.issuer"),
        ({"issuer": ISSUER, "clientAuthorities": "none"}, "spec.clientAuthorities"),
        ({"issuer": ISSUER, "credential": {"name": "a"}}, "spec.credential.namespace"),
        ({"issuer": ISSUER, "inventory": {}}, "spec.inventory.secretName"),
    ],
)
async def test_a_cluster_says_what_is_wrong_with_it(
    server: Api, spec: dict[str, Any], field: str
) -> None:
    answer = await server.call("POST", CLUSTERS, {"metadata": {"name": "prod"}, "spec": spec})

    assert answer.status == 422
    assert [cause["field"] for cause in answer.json["details"]["causes"]] == [field]


async def test_the_name_of_a_cluster_has_no_dot(server: Api) -> None:
    """The name of a record begins with it and a dot."""
    body = {"metadata": {"name": "a.b"}, "spec": {"issuer": ISSUER}}
    assert (await server.call("POST", CLUSTERS, body)).status == 422


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"cluster": "none", "certificate": {"sha256": SHA}}, "spec.cluster"),
        ({"user": {}}, "spec.user.username"),
        ({"authority": {"signerName": "example.com/web"}}, "spec.authority"),
        (
            {"account": {"namespace": "a", "name": "b", "issuedBefore": "2020-01-01T00:00:00Z"}},
            "spec.account.issuedBefore",
        ),
        ({"account": {"namespace": "kube_system", "name": "b"}}, "spec.account.namespace"),
        ({"account": {"namespace": "a", "name": "B"}}, "spec.account.name"),
        ({"account": {"namespace": "a", "name": "b:c"}}, "spec.account.name"),
        ({"token": {"jti": "a", "namespace": "a.b", "name": "c"}}, "spec.token.namespace"),
        ({"token": {"jti": "a", "issuer": "https://other.example"}}, "spec.token.issuer"),
        ({"certificate": {"requestName": "none"}}, "spec.certificate.requestName"),
        ({"certificate": {"serialNumber": "ab"}}, "spec.certificate.serialNumber"),
        (
            {"certificate": {"sha256": SHA, "otherSha256": ["short"]}},
            "spec.certificate.otherSha256[0]",
        ),
    ],
)
async def test_a_revocation_says_what_is_wrong_with_it(
    server: Api, spec: dict[str, Any], field: str
) -> None:
    await cluster(server)

    answer = await revoke(server, "stolen", **spec)

    assert answer.status == 422, answer.text
    assert field in [cause["field"] for cause in answer.json["details"]["causes"]]


async def test_an_id_with_its_prefix_is_warned_about(server: Api) -> None:
    """Copied from an audit record as it is, it revokes nothing."""
    await cluster(server)
    prefixed = await revoke(server, "prefixed", token={"jti": TOKEN})
    bare = await revoke(server, "bare", token={"jti": TOKEN.removeprefix("JTI=")})

    assert any("JTI=" in text for text in prefixed.warnings)
    assert not bare.warnings
    assert await asked(server, "alice", TOKEN) == denied("bare")


async def test_one_revocation_is_enough(server: Api) -> None:
    """A second one of the same credential is refused and names the first."""
    await cluster(server)
    await revoked(server, "first", certificate={"sha256": SHA})
    await revoked(server, "user", user={"username": "alice"})

    again = await revoke(server, "second", certificate={"sha256": SHA})
    more = await revoke(server, "third", certificate={"sha256": SHA}, reason="keyCompromise")

    assert (again.status, again.json["details"]["name"]) == (409, "first")
    assert more.status == 201


@pytest.mark.parametrize(
    "target", [{"user": {"username": "alice"}}, {"account": {"namespace": "ci", "name": "alice"}}]
)
async def test_revocations_of_users_and_accounts_can_be_deleted(
    server: Api, target: dict[str, Any]
) -> None:
    """They have no end, and a person may come back; new credentials work from then on."""
    await cluster(server)
    user = "alice" if "user" in target else "system:serviceaccount:ci:alice"
    await revoked(server, "left", **target, reason="affiliationChanged")
    before = await asked(server, user)

    answer = await server.call("DELETE", f"{REVOCATIONS}/left")

    assert before["denied"] is True
    assert answer.status == 200
    assert await asked(server, user) == NO_OPINION


async def test_a_hold_is_lifted_and_a_final_one_stays(server: Api) -> None:
    await cluster(server)
    token = {"jti": "3f8a"}
    await revoked(server, "hold", token=token, reason="certificateHold")
    await revoked(server, "final", certificate={"sha256": SHA})

    assert (await server.call("DELETE", f"{REVOCATIONS}/final")).status == 403
    assert (await server.call("DELETE", f"{REVOCATIONS}/hold")).status == 200
    assert await asked(server, "alice", TOKEN) == NO_OPINION


async def test_the_webhook_waits_for_what_is_acknowledged(server: Api) -> None:
    """Several servers may be behind one address: the answer is as fresh as a read."""
    await cluster(server)
    answer = await revoke(server, "stolen", user={"username": "alice"})

    assert answer.status == 201
    assert await asked(server, "alice") == denied("stolen")


async def test_a_review_asks_the_store_only_for_the_caller(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, to authenticate; the right of the caller and the answer are as fresh as that."""
    await cluster(server)
    await server.account("robot")
    token = await server.token("robot")
    subject = {"kind": "ServiceAccount", "namespace": "default", "name": "robot"}
    rule = {"nonResourceURLs": [webhook("prod")], "verbs": ["post"]}
    await server.make(f"{RBAC}/clusterroles", {"metadata": {"name": "robot"}, "rules": [rule]})
    reference = {"apiGroup": ORCH.rbac, "kind": "ClusterRole", "name": "robot"}
    binding = {"metadata": {"name": "robot"}, "subjects": [subject], "roleRef": reference}
    await server.make(f"{RBAC}/clusterrolebindings", binding)
    store, asked = server.server.feed._store, 0
    revision = store.revision

    async def counted() -> int:
        nonlocal asked
        asked += 1
        return await revision()

    monkeypatch.setattr(store, "revision", counted)
    answer = await server.call("POST", webhook("prod"), review(), token=token)

    assert (answer.status, asked) == (200, 1)


async def test_a_review_that_nothing_was_asked_for_waits_itself(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An authorizer that does not read from the store does not make the answer older."""
    await cluster(server)
    feed, calls = server.server.feed, ClusterCalls(server.server.clock)
    reviews = ClusterReviews(feed, server.server.context.port(ClusterRevocations), calls)
    asked = monkeypatched_fresh(feed, monkeypatch)
    body = json.dumps(review()).encode()

    await reviews.answer("prod", body, server.server.clock.monotonic())

    assert len(asked) == 1


def monkeypatched_fresh(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The revisions that the feed waited for from now on."""
    asked: list[int] = []
    fresh = feed.fresh

    async def counted() -> int:
        asked.append(await fresh())
        return asked[-1]

    monkeypatch.setattr(feed, "fresh", counted)
    return asked


async def test_a_malformed_call_for_no_cluster_is_counted_under_no_name(server: Api) -> None:
    """Callers choose the name: it must not become a label of a metric, or a status to write."""
    form = {"content-type": "text/plain"}
    answers = [
        await server.call("POST", webhook("none"), b" " * ((1 << 20) + 1)),
        await server.call("POST", webhook("none"), b"{}", headers=form),
        await server.call("POST", webhook("none"), b"{}"),
    ]

    page = (await server.call("GET", "/metrics")).text

    assert [answer.status for answer in answers] == [413, 415, 404]
    assert 'cluster="none"' not in page
    assert server.server.context.port(ClusterCalls).take() == {}


async def test_the_metrics_page_counts_calls_that_were_not_authorized(server: Api) -> None:
    """A wrong credential is refused before the review is read, and counted by its path."""
    await cluster(server)
    await server.call("POST", webhook("prod"), review(), token="wrong")
    await server.call("POST", webhook("prod"), review(), token=ALICE)
    await asked(server)

    page = (await server.call("GET", "/metrics")).text

    lines = [line for line in page.splitlines() if "/webhook/clusters/" in line]
    counted = [line for line in lines if line.startswith("apiserver_request_total")]
    for code in ("200", "401", "403"):
        assert any(f'code="{code}"' in line for line in counted), (code, lines)
    assert 'orchid_cluster_reviews_total{cluster="prod",result="no-opinion"} 1' in page


FILES = (Path(__file__).parents[1] / "data" / "cluster-reviews").glob("*.json")
RECORDED = {file.stem: file.read_bytes() for file in sorted(FILES)}


@pytest.mark.parametrize("name", RECORDED)
async def test_recorded_reviews_are_answered(server: Api, name: str) -> None:
    """As a kube-apiserver sent them: no opinion, and a denial once the credential is revoked."""
    await cluster(server)
    sent = json.loads(RECORDED[name])
    ids = sent["spec"].get("extra", {}).get(CREDENTIAL_ID, ["JTI=none"])
    word, _, value = ids[0].partition("=")

    async def ask() -> Any:
        target = f"{webhook('prod')}?timeout=3s"
        headers = {"content-type": "application/json", "accept": "application/json, */*"}
        answer = await server.call("POST", target, RECORDED[name], headers=headers)
        assert answer.status == 200, answer.text
        assert answer.json["apiVersion"] == sent["apiVersion"]
        return answer.json["status"]

    before = await ask()
    target = {"token": {"jti": value}} if word == "JTI" else {"certificate": {"sha256": value}}
    await revoked(server, "stolen", **target)

    assert before == NO_OPINION
    assert await ask() == (NO_OPINION if "anonymous" in name else denied("stolen"))
