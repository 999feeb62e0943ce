"""ApprovalReview and dry run over the whole server: what policies make of a request, and why."""

import base64
from typing import Any

import pytest
from cryptography import x509

from orchid.kernel.wire.naming import ORCH
from tests.api.test_approval_policies import POLICIES, body
from tests.api.world import ALICE, BOB, Api
from tests.unit.features.approval.cases import ALLOWS
from tests.unit.kernel.credentials import samples

REVIEWS = "/apis/identity.orch.io/v1alpha1/approvalreviews"
REQUESTS = "/apis/certificates.orch.io/v1/certificatesigningrequests"
RBAC = "/apis/rbac.authorization.orch.io/v1"
GOOD, BAD = "a.web.example.com", "evil.com"


def pem(host: str = GOOD) -> str:
    made = samples.request("", (), alternative_names=(x509.DNSName(host),))
    return base64.b64encode(made).decode()


def terms(host: str = GOOD, **more: Any) -> dict[str, Any]:
    return {
        "request": pem(host),
        "signerName": "example.com/web",
        "usages": ["digital signature", "server auth"],
        "expirationSeconds": 3600,
        **more,
    }


def request(name: str, host: str = GOOD) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": terms(host)}


async def grant(server: Api, user: str, name: str, **rule: Any) -> None:
    await server.make(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    subject = {"kind": "User", "apiGroup": "rbac.authorization.orch.io", "name": user}
    role = {"apiGroup": "rbac.authorization.orch.io", "kind": "ClusterRole", "name": name}
    await server.make(
        f"{RBAC}/clusterrolebindings",
        {"metadata": {"name": name}, "subjects": [subject], "roleRef": role},
    )


async def may_use(server: Api, user: str, policy: str) -> None:
    await grant(
        server,
        user,
        f"use-{policy}-{user}",
        apiGroups=["identity.orch.io"],
        resources=["approvalpolicies"],
        resourceNames=[policy],
        verbs=["use"],
    )


async def may_request(server: Api, user: str) -> None:
    certificates = {"apiGroups": ["certificates.orch.io"], "verbs": ["create"]}
    await grant(
        server, user, f"request-{user}", **certificates, resources=["certificatesigningrequests"]
    )


async def review(server: Api, token: str | None = None, **spec: Any) -> Any:
    more = {} if token is None else {"token": token}
    return await server.call("POST", REVIEWS, {"spec": spec}, **more)


async def test_a_review_returns_every_check_of_every_policy(server: Api) -> None:
    """Those that do not select it too: that is what people ask for."""
    await server.call("POST", POLICIES, body("web"))
    await server.call("POST", POLICIES, body("other", signerNames=["other.com/*"]))

    answer = await review(server, **terms(BAD))

    status = answer.json["status"]
    assert answer.status == 201
    assert (status["outcome"], len(status["policies"])) == ("Leave", 2)
    other, web = status["policies"]
    assert (other["name"], other["selected"]) == ("other", False)
    assert other["message"] == 'signerNames does not match "example.com/web"'
    assert (web["selected"], web["usable"], web["allowed"]) == (True, True, False)
    assert web["checks"][0] == {
        "field": "dnsNames",
        "value": BAD,
        "allowed": False,
        "message": 'dnsNames does not allow "evil.com"',
    }
    assert [check["field"] for check in web["checks"]][1:] == [
        "usages",
        "usages",
        "keys",
        "maxDuration",
    ]


async def test_a_review_returns_the_certificate_that_would_be_signed(server: Api) -> None:
    """What counts is what the signer would write, and that a subject cannot pose as two parts."""
    made = samples.request("alice,O=system:masters", (), alternative_names=(x509.DNSName(GOOD),))
    given = terms(request=base64.b64encode(made).decode())

    answer = await review(server, **given)

    assert answer.json["status"]["certificate"] == {
        "subject": r"CN=alice\,O=system:masters",
        "names": [GOOD],
        "usages": ["digital signature", "server auth"],
        "key": "ECDSA-P256",
        "seconds": 3600,
    }
    assert "obstacles" not in answer.json["status"]


async def test_a_review_returns_why_no_policy_can_allow_a_request(server: Api) -> None:
    """A signer that would refuse a request is named, whatever the policies say."""
    answer = await review(server, **terms(signerName=ORCH.client_signer, usages=["server auth"]))

    (obstacle,) = answer.json["status"]["obstacles"]
    assert "the signer would refuse it" in obstacle


async def test_rules_are_returned_with_their_result(server: Api) -> None:
    """Each by its number, with what it gave."""
    rules = [
        {"expression": "request.dnsNames.size() == 1"},
        {"expression": "user.username == 'bob'", "message": "only for bob"},
    ]
    await server.call("POST", POLICIES, body("web", rules=rules))

    answer = await review(server, **terms(), user={"username": "alice"})

    (web,) = answer.json["status"]["policies"]
    assert [(one["field"], one["value"]) for one in web["checks"]][-2:] == [
        ("rules[0]", "true"),
        ("rules[1]", "false"),
    ]
    assert web["message"] == "only for bob"


async def test_a_stored_request_is_reviewed_for_who_created_it(server: Api) -> None:
    """Their groups and their right to use the policy count, not the caller's."""
    await server.call("POST", POLICIES, body("web"))
    await may_request(server, "alice")
    await server.make(REQUESTS, request("r"), token=ALICE)

    before = await review(server, requestName="r")
    await may_use(server, "alice", "web")
    after = await review(server, requestName="r")
    bob = await review(server, requestName="r", user={"username": "bob"})

    assert before.json["status"]["outcome"] == "Leave"
    assert before.json["status"]["policies"][0]["usable"] is False
    assert "may not use" in before.json["status"]["message"]
    assert after.json["status"]["outcome"] == "Approve"
    assert after.json["status"]["message"].startswith("Approved by ApprovalPolicy web, revision")
    assert bob.json["status"]["outcome"] == "Leave"


async def test_a_certificate_is_reviewed_by_who_may_see_it(server: Api) -> None:
    """Nobody learns by a review which certificates there are."""
    await grant(
        server,
        "bob",
        "reviews",
        apiGroups=["identity.orch.io"],
        resources=["approvalreviews"],
        verbs=["create"],
    )
    missing = await review(server, certificateName="ab12")
    hidden = await review(server, token=BOB, certificateName="ab12")

    assert (missing.status, missing.json["details"]["kind"]) == (404, "issuedcertificates")
    assert hidden.status == 403
    assert 'cannot get resource "issuedcertificates"' in hidden.json["message"]


async def test_a_policy_can_be_tried_before_it_is_stored(server: Api) -> None:
    """It is asked alone, and as if everybody might use it."""
    await server.call("POST", POLICIES, body("web"))
    policy = {"signerNames": ["example.com/*"], "allows": ALLOWS | {"dnsNames": ["*.com"]}}

    answer = await review(server, **terms(BAD), policy=policy)

    status = answer.json["status"]
    assert status["outcome"] == "Approve"
    assert [one["name"] for one in status["policies"]] == ["(given)"]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "spec"),
        ({"requestName": "r", **terms()}, "spec.request"),
        ({"requestName": "r", "certificateName": "c"}, "spec.certificateName"),
        (terms(signerName="web"), "spec.signerName"),
        (terms(usages=["serve"]), "spec.usages[0]"),
        (terms(request=base64.b64encode(b"no request").decode()), "spec.request"),
        (terms(policy={"otherwise": "x"}), "spec.policy"),
    ],
)
async def test_a_bad_question_is_refused(server: Api, spec: dict[str, Any], field: str) -> None:
    """With the field that is wrong."""
    answer = await review(server, **spec)

    assert answer.status == 422
    assert answer.json["details"]["causes"][0]["field"] == field


async def test_a_request_that_is_not_there_is_not_found(server: Api) -> None:
    """404, with its name."""
    answer = await review(server, requestName="nobody")

    assert answer.status == 404
    assert "nobody" in answer.json["message"]


async def test_a_review_shows_nobody_requests_that_they_may_not_read(server: Api) -> None:
    """The right to review is not the right to read."""
    await server.make(REQUESTS, request("r"))
    rule = {"apiGroups": ["identity.orch.io"], "resources": ["approvalreviews"]}
    await grant(server, "bob", "reviewer", **rule, verbs=["create"])

    answer = await review(server, BOB, requestName="r")
    own = await review(server, BOB, **terms())

    assert answer.status == 403
    assert "certificatesigningrequests" in answer.json["message"]
    assert own.status == 201


async def test_a_right_to_read_one_request_is_for_that_request(server: Api) -> None:
    await server.make(REQUESTS, request("r"))
    await server.make(REQUESTS, request("other"))
    rule = {"apiGroups": ["identity.orch.io"], "resources": ["approvalreviews"]}
    await grant(server, "bob", "reviewer", **rule, verbs=["create"])
    one = {"apiGroups": ["certificates.orch.io"], "resources": ["certificatesigningrequests"]}
    await grant(server, "bob", "reader", **one, resourceNames=["r"], verbs=["get"])

    named = await review(server, BOB, requestName="r")
    other = await review(server, BOB, requestName="other")

    assert (named.status, other.status) == (201, 403)


async def test_nothing_is_stored(server: Api) -> None:
    """There is nothing to get or list."""
    await review(server, **terms())

    assert (await server.call("GET", REVIEWS)).status == 405


@pytest.mark.parametrize(
    ("host", "otherwise", "forecast"),
    [
        (GOOD, "leave", "policies would approve this request: Approved by ApprovalPolicy web"),
        (BAD, "leave", "policies would leave this request undecided"),
        (BAD, "deny", "policies would deny this request"),
    ],
)
async def test_a_dry_run_warns_of_the_decision_of_the_policies(
    server: Api, host: str, otherwise: str, forecast: str
) -> None:
    """As warnings; nothing is stored, and nothing else is different."""
    await server.call("POST", POLICIES, body("web", otherwise=otherwise))
    await may_use(server, "alice", "web")
    await may_request(server, "alice")

    answer = await server.call("POST", f"{REQUESTS}?dryRun=All", request("r", host), token=ALICE)

    assert answer.status == 201
    assert forecast in answer.warnings[0]
    assert (host == GOOD) or "policy web: dnsNames does not allow" in answer.warnings[1]
    assert (await server.call("GET", f"{REQUESTS}/r")).status == 404


async def test_only_a_dry_run_returns_the_warning(server: Api) -> None:
    """For a stored request, the controller creates an event instead."""
    await server.call("POST", POLICIES, body("web"))

    answer = await server.call("POST", REQUESTS, request("r"))

    assert answer.warnings == []


async def test_a_changed_policy_is_explained_as_it_is_now(server: Api) -> None:
    """Results of the earlier version of a policy are not reused."""
    await server.call("POST", POLICIES, body("web"))
    before = await review(server, **terms(BAD))
    await server.call(
        "PUT", f"{POLICIES}/web", body("web", allows={**ALLOWS, "dnsNames": ["*.com"]})
    )
    after = await review(server, **terms(BAD))

    assert before.json["status"]["outcome"] == "Leave"
    assert after.json["status"]["outcome"] == "Approve"
