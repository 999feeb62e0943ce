"""Server-side apply over the whole server: ownership, conflicts, force, and leaving."""

import json
from typing import Any

import pytest

from tests.api.world import ALICE, Api

SA = "/api/v1/namespaces/default/serviceaccounts"
RBAC = "/apis/rbac.authorization.orch.io/v1/namespaces/default"
APPLY = {"content-type": "application/apply-patch+yaml"}


def config(name: str = "a", **more: Any) -> dict[str, Any]:
    meta = more.pop("metadata", {})
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, **meta},
        **more,
    }


async def apply(server: Api, body: Any, manager: str = "m", query: str = "", **more: Any) -> Any:
    name = "a" if not isinstance(body, dict) else body["metadata"].get("name", "a")
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    target = f"{SA}/{name}?fieldManager={manager}{query}"
    return await server.call("PATCH", target, data, headers=APPLY, **more)


def entries(answer: Any) -> list[tuple[str, str]]:
    found = answer.json["metadata"].get("managedFields", [])
    return [(entry["manager"], entry["operation"]) for entry in found]


async def test_creates_then_changes(server: Api) -> None:
    """The first apply is a 201, the next a 200, the same again changes nothing."""
    first = await apply(server, config(metadata={"labels": {"x": "1"}}))
    second = await apply(server, config(metadata={"labels": {"x": "2"}}))
    again = await apply(server, config(metadata={"labels": {"x": "2"}}))

    assert (first.status, second.status, again.status) == (201, 200, 200)
    assert entries(first) == [("m", "Apply")]
    assert again.json == second.json


async def test_what_is_left_out_goes_if_nobody_else_owns_it(server: Api) -> None:
    """A field that its only owner no longer applies is removed."""
    await apply(server, config(metadata={"labels": {"x": "1", "y": "1"}}))
    await apply(server, config(metadata={"labels": {"y": "1"}}), "other")
    answer = await apply(server, config())

    assert answer.json["metadata"]["labels"] == {"y": "1"}


async def test_equal_values_are_shared(server: Api) -> None:
    """Two who want the same do not conflict, and both own it."""
    await apply(server, config(metadata={"labels": {"x": "1"}}), "one")
    answer = await apply(server, config(metadata={"labels": {"x": "1"}}), "two")

    assert answer.status == 200
    assert sorted(entries(answer)) == [("one", "Apply"), ("two", "Apply")]


async def test_a_conflict_names_who_and_what(server: Api) -> None:
    """An updater is named with its version; force takes the field away from it."""
    await server.account("a", labels={"x": "1"})
    refused = await apply(server, config(metadata={"labels": {"x": "2"}}))
    forced = await apply(server, config(metadata={"labels": {"x": "2"}}), query="&force=1")

    assert refused.status == 409
    assert refused.json["message"] == (
        'Apply failed with 1 conflict: conflict with "tests" using v1: .metadata.labels.x'
    )
    assert forced.status == 200
    assert ("m", "Apply") in entries(forced)


async def test_an_untracked_object_gets_a_first_owner(server: Api) -> None:
    """Fields from before the first apply belong to before-first-apply."""
    await server.account("a")
    await server.call(
        "PATCH",
        f"{SA}/a",
        b'{"metadata":{"labels":{"x":"1"}}}',
        headers={"content-type": "application/merge-patch+json"},
    )
    answer = await apply(server, config(metadata={"labels": {"y": "1"}}))

    assert entries(answer) == [("m", "Apply"), ("before-first-apply", "Update")]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 400, "invalid object type: /, Kind="),
        (b"{", 400, "error decoding YAML"),
        (b"- a", 400, ""),
        (b"apiVersion: v1\nkind: Pod\nmetadata: {name: a}", 400, "invalid object type: /v1, Kin"),
        (
            b"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a, managedFields: []}",
            400,
            "metadata.managedFields must be nil",
        ),
        (b"apiVersion: v1\nkind: ServiceAccount\nmetadata: {}", 400, "was undeterminable"),
        (b"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: b}", 400, "does not match"),
        (
            b"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a, uid: u}",
            409,
            "uid mismatch: the provided object specified uid u, and no existing object was found",
        ),
        (
            b"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: b, uid: u}",
            409,
            "uid mismatch: the provided object specified uid u",
        ),
        (
            b"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a, uid: u, managedFields: []}",
            400,
            "metadata.managedFields must be nil",
        ),
    ],
)
async def test_bodies_that_cannot_be_applied(
    server: Api, body: bytes, status: int, message: str
) -> None:
    """Each mistake is the client's, and is named."""
    answer = await apply(server, body)

    assert answer.status == status
    assert message in answer.json["message"]


@pytest.mark.parametrize("meta", ["1.5", '"x"', "true", "[]", "[1]"])
@pytest.mark.parametrize("there", [True, False])
async def test_metadata_that_is_no_object_is_the_clients_mistake(
    server: Api, meta: str, there: bool
) -> None:
    """Whether or not there is an object to apply it to."""
    if there:
        await server.account("a")
    body = f'{{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {meta}}}'

    answer = await apply(server, body.encode())

    assert answer.status in (400, 422)
    assert answer.json["kind"] == "Status"


async def test_a_version_that_is_no_number_creates_nothing(server: Api) -> None:
    """It would be a mistake for an object that exists, and is one here."""
    answer = await apply(server, config(metadata={"resourceVersion": "x"}))

    assert answer.status == 400
    assert (await server.call("GET", f"{SA}/a")).status == 404


async def test_repeated_keys(server: Api) -> None:
    """A warning for each line, or a refusal when strict."""
    body = (
        b"apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: a\n"
        b"  labels: {x: '1'}\n  labels: {x: '2'}\n"
    )
    strict = await apply(server, body, query="&fieldValidation=Strict")
    warned = await apply(server, body)

    assert strict.status == 400
    assert 'line 6: key "labels" already set in map' in strict.json["message"]
    assert warned.status == 201
    assert warned.warnings == ['299 - "line 6: key \\"labels\\" already set in map"']


async def test_creating_by_apply_needs_the_right_to_create(server: Api) -> None:
    """With the verb patch alone, apply changes an existing object and creates none."""
    rule = {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["patch"]}
    group = "rbac.authorization.orch.io"
    await server.make(f"{RBAC}/roles", {"metadata": {"name": "r"}, "rules": [rule]})
    await server.make(
        f"{RBAC}/rolebindings",
        {
            "metadata": {"name": "r"},
            "roleRef": {"kind": "Role", "name": "r", "apiGroup": group},
            "subjects": [{"kind": "User", "name": "alice", "apiGroup": group}],
        },
    )
    refused = await apply(server, config(), token=ALICE)
    await server.account("a")
    allowed = await apply(server, config(metadata={"labels": {"x": "1"}}), token=ALICE)

    assert refused.status == 403
    assert 'cannot create resource "serviceaccounts"' in refused.json["message"]
    assert allowed.status == 200


async def test_a_version_in_the_body_is_a_precondition(server: Api) -> None:
    """On what is there; on what is new it says nothing."""
    created = await apply(server, config(metadata={"resourceVersion": "5"}))
    refused = await apply(server, config(metadata={"resourceVersion": "5"}))

    assert created.status == 201
    assert refused.status == 409
    assert "the object has been modified" in refused.json["message"]


async def test_a_dry_run_applies_nothing(server: Api) -> None:
    """The answer is as if, with the version that was sent; the server is as before."""
    new = config(metadata={"resourceVersion": "7"})
    answer = await apply(server, new, query="&dryRun=All")

    assert answer.status == 201
    assert answer.json["metadata"]["resourceVersion"] == "7"
    assert (await server.call("GET", f"{SA}/a")).status == 404


async def test_what_is_left_out_has_its_default(server: Api) -> None:
    """An applied object is completed as a created one is, and nobody owns what was put in."""
    subjects = [{"kind": "User", "name": "jane"}]
    binding = {
        "apiVersion": "rbac.authorization.orch.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "a"},
        "subjects": subjects,
        "roleRef": {"kind": "ClusterRole", "name": "view"},
    }
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}
    pod = {**secret, "kind": "Pod", "spec": {"containers": [{"name": "a"}]}}
    core = "/api/v1/namespaces/default"
    await server.account("default")

    bound = await apply_at(server, f"{RBAC}/rolebindings/a", binding)
    kept = await apply_at(server, f"{core}/secrets/a", {**secret, "stringData": {"k": "v"}})
    again = await apply_at(server, f"{core}/secrets/a", {**secret, "stringData": {"k": "v"}})
    runs = await apply_at(server, f"{core}/pods/a", pod)

    assert bound.json["roleRef"]["apiGroup"] == "rbac.authorization.orch.io"
    assert bound.json["subjects"][0]["apiGroup"] == "rbac.authorization.orch.io"
    assert (kept.json["type"], kept.json["data"]) == ("Opaque", {"k": "dg=="})
    assert "stringData" not in kept.json
    assert again.json == kept.json
    assert runs.json["spec"]["serviceAccountName"] == "default"
    assert list(runs.json["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]) == ["f:containers"]


async def test_a_default_comes_back_when_its_owner_leaves_it_out(server: Api) -> None:
    """A field that its creator no longer applies returns to its default."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"serviceAccountName": "default", "containers": [{"name": "a"}]},
    }
    target = "/api/v1/namespaces/default/pods/a"
    await server.account("default")
    await apply_at(server, target, pod)

    answer = await apply_at(server, target, {**pod, "spec": {"containers": [{"name": "a"}]}})

    assert answer.status == 200
    assert answer.json["spec"]["serviceAccountName"] == "default"


async def apply_at(server: Api, target: str, body: dict[str, Any]) -> Any:
    data = json.dumps(body).encode()
    return await server.call("PATCH", f"{target}?fieldManager=m", data, headers=APPLY)


async def test_a_key_that_is_always_there_is_empty_where_it_is_left_out(server: Api) -> None:
    """An owner without a uid is validated by the rules for owners, not as a list without keys."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p"}
    answer = await apply(server, config(metadata={"ownerReferences": [owner]}))

    assert answer.status == 422
    assert answer.json["details"]["causes"][0]["field"] == "metadata.ownerReferences.uid"
