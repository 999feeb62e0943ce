"""Reviews and token requests over the whole server: `status` is filled by the server."""

from typing import Any

import pytest

from tests.api.world import ADMIN, Api

TOKEN_REVIEWS = "/apis/authentication.orch.io/v1/tokenreviews"
REVIEWS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    TOKEN_REVIEWS: (
        {"spec": {"token": ADMIN}},
        {"audiences": ["sent"], "error": "sent", "user": {"uid": "sent"}},
    ),
    "/apis/authentication.orch.io/v1/selfsubjectreviews": (
        {},
        {"userInfo": {"username": "sent", "extra": {"sent": ["sent"]}}},
    ),
    "/api/v1/namespaces/default/serviceaccounts/a/token": (
        {"spec": {"audiences": ["x"]}},
        {"token": "sent", "expirationTimestamp": "2001-02-03T04:05:06Z"},
    ),
    "/apis/authorization.orch.io/v1/subjectaccessreviews": (
        {"spec": {"user": "u", "nonResourceAttributes": {"path": "/", "verb": "get"}}},
        {"allowed": True, "reason": "sent", "evaluationError": "sent"},
    ),
    "/apis/authorization.orch.io/v1/selfsubjectaccessreviews": (
        {"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}},
        {"denied": True, "reason": "sent", "evaluationError": "sent"},
    ),
    "/apis/authorization.orch.io/v1/namespaces/default/localsubjectaccessreviews": (
        {
            "metadata": {"namespace": "default"},
            "spec": {
                "user": "u",
                "resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"},
            },
        },
        {"allowed": True, "reason": "sent", "evaluationError": "sent"},
    ),
    "/apis/authorization.orch.io/v1/selfsubjectrulesreviews": (
        {"spec": {"namespace": "default"}},
        {
            "incomplete": True,
            "evaluationError": "sent",
            "resourceRules": [],
            "nonResourceRules": [],
        },
    ),
}


@pytest.mark.parametrize("target", REVIEWS)
async def test_a_status_that_is_sent_is_dropped(server: Api, target: str) -> None:
    """The response does not contain it, nor does managedFields."""
    await server.account("a")
    body, status = REVIEWS[target]
    answer = await server.make(target, {**body, "status": status})

    assert "sent" not in str(answer["status"])
    assert "2001" not in str(answer["status"])
    assert "f:status" not in str(answer["metadata"])
    assert answer["status"]


@pytest.mark.parametrize("target", REVIEWS)
async def test_a_review_that_is_sent_again_is_answered_like_the_first(
    server: Api, target: str
) -> None:
    """The answer to a repeated body has the caller and user agent of its own request."""
    await server.account("a")
    body, _ = REVIEWS[target]
    agents = ("first/1", "second/1", "third/1", "fourth/1")

    answers = [
        (await server.call("POST", target, body, headers={"user-agent": agent})).json
        for agent in agents
    ]

    for answer, agent in zip(answers, agents, strict=True):
        owners = answer["metadata"].get("managedFields", [])
        assert [owner.pop("manager") for owner in owners] == [agent.partition("/")[0]] * len(owners)
        for owner in owners:
            del owner["time"]
        answer["metadata"].pop("creationTimestamp", None)
        answer["status"].pop("token", None)
        answer["status"].pop("expirationTimestamp", None)
    assert answers == [answers[0]] * len(agents)


async def test_a_token_that_ends_is_refused_in_a_review_that_was_sent_before(server: Api) -> None:
    """A repeated body is reviewed again."""
    await server.account("a")
    made = await server.make(
        "/api/v1/namespaces/default/serviceaccounts/a/token", {"spec": {"audiences": []}}
    )
    review = {"spec": {"token": made["status"]["token"]}}

    before = [await server.make(TOKEN_REVIEWS, review) for _ in range(4)]
    await server.call("DELETE", "/api/v1/namespaces/default/serviceaccounts/a")
    after = await server.make(TOKEN_REVIEWS, review)

    assert [answer["status"].get("authenticated") for answer in before] == [True] * 4
    assert "authenticated" not in after["status"]
    assert "not found" in after["status"]["error"]


@pytest.mark.parametrize("body", [{}, {"spec": {"expirationSeconds": 700}}])
async def test_one_body_asks_for_tokens_of_many_accounts(server: Api, body: Any) -> None:
    """The account of a token request is that of the path, also for a repeated body."""
    places = [("default", "a"), ("other", "a"), ("default", "b")]
    for namespace, name in places:
        await server.account(name, namespace)

    made = [
        (await server.make(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", body))
        for _ in range(3)
        for namespace, name in places
    ]

    named = [(one["metadata"]["namespace"], one["metadata"]["name"]) for one in made]
    owners = [
        [(owner["manager"], owner["subresource"], owner["fieldsV1"]) for owner in owners]
        for owners in (one["metadata"].get("managedFields", []) for one in made)
    ]
    assert named == places * 3
    assert owners == [owners[0]] * 9
    assert [manager for manager, *_ in owners[0]] == ["tests"]


async def test_a_body_that_names_another_namespace_is_refused_each_time(server: Api) -> None:
    """However often it came, also where it was right."""
    for namespace in ("default", "other"):
        await server.account("a", namespace)
    body = {"metadata": {"namespace": "other"}, "spec": {"expirationSeconds": 700}}

    statuses = [
        (
            await server.call("POST", f"/api/v1/namespaces/{place}/serviceaccounts/a/token", body)
        ).status
        for _ in range(4)
        for place in ("other", "default")
    ]

    assert statuses == [201, 400] * 4


async def test_owners_that_are_sent_again_are_judged_again(server: Api) -> None:
    """managedFields in the body are dropped in every request."""
    entry = {
        "operation": "Update",
        "apiVersion": "authentication.orch.io/v1",
        "time": "2001-02-03T04:05:06Z",
    }
    owners = [
        {
            **entry,
            "manager": name,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:token": {}}},
        }
        for name in ("x", "y")
    ]
    review = {"metadata": {"managedFields": owners}, "spec": {"token": ADMIN}}

    answers = [await server.make(TOKEN_REVIEWS, review) for _ in range(4)]

    kept = [[owner["manager"] for owner in one["metadata"]["managedFields"]] for one in answers]
    assert kept == [["tests"]] * 4
