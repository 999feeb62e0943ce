"""PodCertificateRequest over the API: a signer of another party settles one, once."""

import datetime
from typing import Any

from tests.api.world import ALICE, Api
from tests.unit.features.certificates.test_pod_certificate_request import leaf
from tests.unit.kernel.credentials import samples

REQUESTS = "/apis/certificates.orch.io/v1/namespaces/default/podcertificaterequests"
MERGE = {"content-type": "application/merge-patch+json"}
MINUTE = datetime.timedelta(minutes=1)


def a_request(name: str = "req-1", **spec: Any) -> dict[str, Any]:
    fields = {
        "signerName": "example.com/pods",
        "podName": "web",
        "podUID": "p",
        "serviceAccountName": "app",
        "serviceAccountUID": "a",
        "nodeName": "n1",
        "nodeUID": "n",
        "stubPKCS10Request": samples.stub_text(),
    }
    return {"metadata": {"name": name}, "spec": fields | spec}


def outcome(type_: str, **status: Any) -> dict[str, Any]:
    moment = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": type_, "status": "True", "reason": "Test", "lastTransitionTime": moment}
    return {"status": {"conditions": [condition], **status}}


def issued(begins: datetime.datetime) -> dict[str, Any]:
    def text(moment: datetime.datetime) -> str:
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    return outcome(
        "Issued",
        certificateChain=leaf(begins),
        notBefore=text(begins),
        beginRefreshAt=text(begins + 30 * MINUTE),
        notAfter=text(begins + 60 * MINUTE),
    )


async def settle(server: Api, body: dict[str, Any], *, token: str | None = None) -> Any:
    more = {"token": token} if token else {}
    return await server.call("PATCH", f"{REQUESTS}/req-1/status", body, headers=MERGE, **more)


async def test_a_request_is_issued_once(server: Api) -> None:
    """The status given at the create is ignored; the outcome cannot be replaced."""
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    made = await server.call("POST", REQUESTS, a_request() | outcome("Denied"))
    old = await settle(server, issued(now - 10 * MINUTE))
    good = await settle(server, issued(now - MINUTE))
    denied = await settle(server, outcome("Denied"))
    chosen = await server.call("GET", f"{REQUESTS}?fieldSelector=spec.nodeName=n1")
    others = await server.call("GET", f"{REQUESTS}?fieldSelector=spec.podName=n1")

    assert (made.status, made.json["status"]) == (201, {})
    assert made.json["spec"]["maxExpirationSeconds"] == 86400
    assert old.status == 422
    assert "status.notBefore: Invalid value" in old.json["message"]
    assert (good.status, good.json["status"]["conditions"][0]["type"]) == (200, "Issued")
    assert denied.status == 422
    assert "immutable after PodCertificateRequest is issued" in denied.json["message"]
    assert [len(found.json["items"]) for found in (chosen, others)] == [1, 0]


async def test_the_status_endpoint_changes_no_metadata(server: Api) -> None:
    """Labels are for the main endpoint, which changes no spec."""
    made = await server.call("POST", REQUESTS, a_request())
    labels = {"metadata": {"labels": {"a": "b"}}}
    beside = await settle(server, outcome("Denied") | labels)
    labelled = await server.call("PATCH", f"{REQUESTS}/req-1", labels, headers=MERGE)
    changed = await server.call(
        "PATCH", f"{REQUESTS}/req-1", {"spec": {"podName": "other"}}, headers=MERGE
    )
    blind = {**made.json, "metadata": {"name": "req-1"}}
    unconditional = await server.call("PUT", f"{REQUESTS}/req-1", blind)

    assert (beside.status, beside.json["metadata"].get("labels")) == (200, None)
    assert labelled.json["metadata"]["labels"] == {"a": "b"}
    assert changed.status == 422
    assert "field is immutable" in changed.json["message"]
    assert "metadata.resourceVersion" in unconditional.json["message"]


async def test_who_may_not_sign_gets_422(server: Api) -> None:
    """The right to write the status is not the right to sign."""
    await server.call("POST", REQUESTS, a_request())
    rule = {
        "apiGroups": ["certificates.orch.io"],
        "resources": ["podcertificaterequests/status"],
        "verbs": ["patch"],
    }
    rbac = "/apis/rbac.authorization.orch.io/v1"
    reference = {"apiGroup": "rbac.authorization.orch.io", "kind": "ClusterRole", "name": "s"}
    subject = {"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.orch.io"}
    await server.make(f"{rbac}/clusterroles", {"metadata": {"name": "s"}, "rules": [rule]})
    binding = {"metadata": {"name": "s"}, "roleRef": reference, "subjects": [subject]}
    await server.make(f"{rbac}/clusterrolebindings", binding)

    refused = await settle(server, outcome("Denied"), token=ALICE)

    assert refused.status == 422
    assert 'User "alice" is not permitted to "sign" for signer' in refused.json["message"]


async def test_bodies_that_break_a_rule_are_refused(server: Api) -> None:
    """A clear 4xx, whatever is wrong."""
    for spec, status in (
        ({"stubPKCS10Request": "!!"}, 400),
        ({"stubPKCS10Request": "anVuaw=="}, 422),
        ({"maxExpirationSeconds": 2**40}, 400),
        ({"unverifiedUserAnnotations": {"a": 7}}, 400),
        ({"podUID": ""}, 422),
    ):
        answer = await server.call("POST", REQUESTS, a_request(**spec))
        assert answer.status == status, (spec, answer.text)
