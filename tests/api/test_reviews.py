"""Reviews and token requests over the whole server: `status` is filled by the server."""

from typing import Any

import pytest

from tests.api.world import ADMIN, Api

REVIEWS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "/apis/authentication.orch.io/v1/tokenreviews": (
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
    """Nothing of it comes back, not even as a field that somebody owns."""
    await server.account("a")
    body, status = REVIEWS[target]
    answer = await server.make(target, {**body, "status": status})

    assert "sent" not in str(answer["status"])
    assert "2001" not in str(answer["status"])
    assert "f:status" not in str(answer["metadata"])
    assert answer["status"]
