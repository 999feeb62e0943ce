"""ApprovalPolicy over the whole server: from its declaration like any other kind."""

from pathlib import Path
from typing import Any

import pytest

from tests.api.world import ALICE, Api, api
from tests.unit.features.approval.cases import ALLOWS

POLICIES = "/apis/identity.orch.io/v1alpha1/approvalpolicies"
APPLY = {"content-type": "application/apply-patch+yaml"}
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.orch.io"}


def body(name: str = "web", **terms: Any) -> dict[str, Any]:
    return {
        "apiVersion": "identity.orch.io/v1alpha1",
        "kind": "ApprovalPolicy",
        "metadata": {"name": name},
        "spec": {"signerNames": ["example.com/*"], "allows": ALLOWS, **terms},
    }


async def test_a_policy_is_created_ready_and_shown(server: Api) -> None:
    """The table has the columns of the kind."""
    made = await server.call("POST", POLICIES, body())
    table = await server.call("GET", POLICIES, headers=TABLE)

    assert made.status == 201
    assert made.json["status"]["conditions"][0]["type"] == "Ready"
    assert made.warnings == []
    names = [column["name"] for column in table.json["columnDefinitions"]]
    assert names == ["Name", "Signers", "Otherwise", "Ready", "Age"]
    assert table.json["rows"][0]["cells"][:4] == ["web", "example.com/*", "leave", "True"]


async def test_apply_makes_and_changes_one(server: Api) -> None:
    """The lists in it are replaced as a whole; its status stays the server's."""
    path = f"{POLICIES}/web?fieldManager=m"
    made = await server.call("PATCH", path, body(), headers=APPLY)
    changed = await server.call("PATCH", path, body(otherwise="deny"), headers=APPLY)

    assert (made.status, changed.status) == (201, 200)
    assert changed.json["spec"]["otherwise"] == "deny"
    assert changed.json["metadata"]["generation"] == 2
    assert changed.json["status"]["conditions"][0]["observedGeneration"] == 2


async def test_what_is_wrong_is_refused_with_its_place(server: Api) -> None:
    """All of it at once, and nothing is stored."""
    rules = [{"expression": "request.dnsNames"}]
    answer = await server.call("POST", POLICIES, body(signerNames=["x"], rules=rules))
    there = await server.call("GET", f"{POLICIES}/web")

    assert answer.status == 422
    causes = {cause["field"] for cause in answer.json["details"]["causes"]}
    assert causes == {"spec.signerNames[0]", "spec.rules[0].expression"}
    assert there.status == 404


async def test_a_pattern_for_everything_is_warned_of(server: Api) -> None:
    """And stored, since it may be meant."""
    answer = await server.call("POST", POLICIES, body(signerNames=["*"]))

    assert answer.status == 201
    assert ["matches everything" in warning for warning in answer.warnings] == [True]


async def test_a_status_that_is_sent_with_the_terms_is_not_taken(server: Api) -> None:
    """The writer of a policy does not set its condition Ready."""
    false = {"type": "Ready", "status": "False", "reason": "X", "message": ""}
    sent = body() | {"status": {"conditions": [false]}}

    made = await server.call("POST", POLICIES, sent)

    assert [one["status"] for one in made.json["status"]["conditions"]] == ["True"]


async def test_only_who_may_writes_policies(server: Api) -> None:
    """They decide who gets a certificate."""
    answer = await server.call("POST", POLICIES, body(), token=ALICE)

    assert answer.status == 403


@pytest.mark.parametrize("naming", ["orch", "kubernetes"])
async def test_the_group_is_the_same_in_both_namings(server_files: Path, naming: str) -> None:
    """Discovery and OpenAPI have it under one name."""
    async with api(server_files.parent / naming, naming=naming) as server:
        found = await server.call("GET", "/apis/identity.orch.io/v1alpha1")
        schema = await server.call("GET", "/openapi/v3/apis/identity.orch.io/v1alpha1")

    names = {one["name"] for one in found.json["resources"]}
    assert {"approvalpolicies", "approvalpolicies/status"} <= names
    described = schema.json["components"]["schemas"]
    (allows,) = [one for name, one in described.items() if name.endswith(".Allowances")]
    assert allows["properties"]["dnsNames"]["items"]["type"] == "string"
