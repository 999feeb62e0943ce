"""`orchid can` and `orchid role new`: the API group of a resource."""

from pathlib import Path
from typing import Any

import pytest

from orchid.kernel.wire.naming import ORCH
from tests.unit.kernel.terminal.answering import Server, commands

REVIEWS = f"/apis/{ORCH.authorization}/v1/subjectaccessreviews"
ROLES = f"/apis/{ORCH.rbac}/v1/clusterroles"


@pytest.mark.parametrize(
    ("resource", "group"),
    [
        ("signers", ORCH.certificates),
        ("users", ""),
        ("groups", ""),
        ("uids", ORCH.authentication),
        ("userextras/team", ORCH.authentication),
        ("audiences", ORCH.identity),
        ("users.other.example", "other.example"),
    ],
)
def test_names_that_only_rules_have_need_no_group(
    tmp_path: Path, resource: str, group: str
) -> None:
    """No server lists them as resources; a group may be named."""
    server = Server()
    server.on("POST", ROLES, lambda sent: sent, 201)
    server.on("POST", REVIEWS, lambda sent: {**sent, "status": {"allowed": True}}, 201)

    with commands(server, tmp_path) as run:
        assert run("role", "new", "r", "--allow", f"use {resource} some-name") == 0
        assert run("can", "ann", "use", resource, "--name", "some-name") == 0

    [role], [review] = server.sent("POST", ROLES), server.sent("POST", REVIEWS)
    [rule] = role["rules"]
    attributes: Any = review["spec"]["resourceAttributes"]
    assert (rule["apiGroups"], rule["resourceNames"]) == ([group], ["some-name"])
    assert attributes.get("group", "") == group


def test_a_resource_that_does_not_exist_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server()
    server.get("/api/v1", {"resources": [{"name": "secrets"}]})
    for group in (ORCH.authentication, ORCH.identity):
        server.get(f"/apis/{group}/v1", {"resources": []})
    server.get("/apis/", {"resources": []})

    with commands(server, tmp_path) as run:
        assert run("can", "ann", "get", "secret") == 2

    assert "no resource 'secret'; use the plural" in capsys.readouterr().err
