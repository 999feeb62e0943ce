"""Rights: the bindings that give a right, and the question that is sent."""

from typing import Any

import pytest

from orchid.features.console.pages import rights
from orchid.features.console.pages.rights import ISSUE_TOKENS
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import AUTHENTICATED
from tests.unit.features.console.pages.asked import Server, object_of, visit

RBAC = f"/apis/{ORCH.rbac}/v1"
REVIEWS = f"/apis/{ORCH.authorization}/v1/subjectaccessreviews"
GIVES = {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]}


def binding(name: str, role: str, subject: Any, namespace: str = "", kind: str = "") -> Any:
    reference = {"kind": kind or "ClusterRole", "name": role}
    meta = {"namespace": namespace} if namespace else {}
    return object_of(name, roleRef=reference, subjects=[subject], metadata=meta)


def server(*rules: Any) -> Server:
    api = Server()
    in_ci = {"namespace": "ci"}
    api.listed(f"{RBAC}/clusterroles", object_of("issuer", rules=list(rules)), object_of("none"))
    api.listed(f"{RBAC}/roles", object_of("own", rules=[GIVES], metadata=in_ci))
    api.listed(
        f"{RBAC}/clusterrolebindings",
        binding("b1", "issuer", {"kind": "User", "name": "ann"}),
        binding("b2", "none", {"kind": "User", "name": "bob"}),
        binding("b3", "gone", {"kind": "User", "name": "carl"}),
    )
    robot = {"kind": "ServiceAccount", "namespace": "ci", "name": "robot"}
    api.listed(
        f"{RBAC}/rolebindings",
        binding("b4", "own", robot, "ci", "Role"),
        binding("b5", "own", robot, "prod", "Role"),
        binding("b6", "issuer", {"kind": "Group", "name": "dev"}, "prod"),
    )
    return api


async def subjects(namespace: str, *rules: Any) -> list[tuple[str, str, str]]:
    found = await rights.subjects(visit(server(*rules)), ISSUE_TOKENS, namespace)
    return [(one["kind"], one["subject"], one["where"]) for one in found]


async def test_a_right_is_given_everywhere_or_in_a_namespace() -> None:
    """By a role of the cluster or of the same namespace."""
    everywhere = ("User", "ann", "")
    in_ci, in_prod = ("ServiceAccount", "ci/robot", "ci"), ("Group", "dev", "prod")

    assert await subjects("ci", GIVES) == [in_ci, everywhere]
    assert await subjects("prod", GIVES) == [in_prod, everywhere]
    assert await subjects("", GIVES) == [in_prod, in_ci, everywhere]


@pytest.mark.parametrize("field", ["apiGroups", "resources", "verbs"])
async def test_a_rule_gives_a_right_with_each_part(field: str) -> None:
    """Of one name, or of all."""
    assert len(await subjects("", {**GIVES, field: ["*"]})) == 3
    assert len(await subjects("", {**GIVES, field: ["other"]})) == 1
    assert len(await subjects("", {**GIVES, field: None})) == 1
    assert len(await subjects("", {"verbs": []}, GIVES)) == 3


async def test_every_critical_right_is_listed() -> None:
    """Each with the group of its resource."""
    whole = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    values = await rights.read(visit(server(whole)))

    rows = values["critical"].value
    assert [row["title"] for row in rows] == [right.title for right in rights.CRITICAL]
    assert all(("ann" in [one["subject"] for one in row["rows"]]) for row in rows)
    for right in rights.CRITICAL:
        group = await rights._group(visit(server()), right.group)
        rule = {"apiGroups": [group], "resources": [right.resource], "verbs": [right.verb]}
        titles = [
            row["title"]
            for row in (await rights.read(visit(server(rule))))["critical"].value
            if any(one["subject"] == "ann" for one in row["rows"])
        ]
        assert titles == [right.title]


QUERY = {"user": "bob", "verb": "get", "resource": "pods"}


async def asked(**query: str) -> tuple[Any, Any]:
    api = server()
    api.on("POST", REVIEWS, {"status": {"allowed": True, "reason": "by b1"}})
    answer = (await rights.read(visit(api, query={**QUERY, **query})))["answer"].value
    return answer, next(iter(api.sent("POST")), None)


async def test_a_question_is_a_review() -> None:
    answer, sent = await asked(resource=" pods.x.example/log ", namespace="ci", groups=" a,, b ")

    assert answer == {"allowed": True, "reason": "by b1"}
    assert sent["kind"] == "SubjectAccessReview"
    assert sent["spec"] == {
        "user": "bob",
        "groups": ["a", "b", AUTHENTICATED],
        "resourceAttributes": {
            "verb": "get",
            "group": "x.example",
            "resource": "pods",
            "subresource": "log",
            "namespace": "ci",
        },
    }


async def test_a_question_about_a_path_has_no_resource() -> None:
    _, sent = await asked(resource="/metrics")

    assert sent["spec"]["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
    assert "resourceAttributes" not in sent["spec"]


@pytest.mark.parametrize("field", list(QUERY))
async def test_a_question_has_three_parts(field: str) -> None:
    answer, sent = await asked(**{field: " "})

    assert (answer, sent) == (None, None)
