"""managedFields of lists: elements without a key, lists sent empty, finalizers of a namespace."""

from typing import Any

import pytest

from tests.api.world import Api

SA = "/api/v1/namespaces/default/serviceaccounts"
NAMESPACES = "/api/v1/namespaces"
ROLES = "/apis/rbac.authorization.orch.io/v1/clusterroles"
MERGE = {"content-type": "application/merge-patch+json"}
APPLY = {"content-type": "application/apply-patch+yaml"}


def owned(answer: Any) -> list[tuple[str, Any]]:
    entries = answer["metadata"].get("managedFields", [])
    return [(entry["manager"], entry["fieldsV1"]) for entry in entries]


@pytest.mark.parametrize("element", [{}, {"name": ""}, {"kind": "Secret"}])
async def test_a_list_with_a_nameless_element_is_not_tracked(server: Api, element: Any) -> None:
    """Nobody could say who owns what of it; as in the reference, nothing is tracked then."""
    nameless = {"secrets": [{"name": "a"}, element]}
    made = await server.make(SA, {"metadata": {"name": "made", "labels": {"x": "y"}}, **nameless})
    tracked = await server.make(SA, {"metadata": {"name": "tracked", "labels": {"x": "y"}}})
    changed = await server.call("PATCH", f"{SA}/tracked", nameless, headers=MERGE)
    later = await server.call(
        "PATCH", f"{SA}/tracked", {"metadata": {"labels": {"x": "z"}}}, headers=MERGE
    )

    assert owned(made) == []
    assert owned(tracked) == [("tests", {"f:metadata": {"f:labels": {".": {}, "f:x": {}}}})]
    assert changed.json["secrets"] == [{"name": "a"}, {}]
    assert owned(changed.json) == owned(later.json) == []


async def test_who_takes_a_nameless_element_away_ends_the_tracking(server: Api) -> None:
    """An apply may name the empty name; what replaces that cannot say whose it was."""
    account = {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "a"}}
    applied = await server.call(
        "PATCH", f"{SA}/a?fieldManager=app", {**account, "secrets": [{"name": ""}]}, headers=APPLY
    )
    put = await server.call("PUT", f"{SA}/a", account)

    assert owned(applied.json) == [("app", {"f:secrets": {'k:{"name":""}': {}}})]
    assert owned(put.json) == []


async def test_an_apply_that_names_the_record_is_a_write(server: Api) -> None:
    """`managedFields: null` changes nothing, yet the entry gets its time, as in the reference."""
    await server.make(SA, {"metadata": {"name": "a", "labels": {"x": "y"}}})
    config = {"kind": "ServiceAccount", "apiVersion": "v1"}
    entries = []
    for manager, more in (("silent", {}), ("naming", {"managedFields": None})):
        meta = {"name": "a", "labels": {"x": "y"}, **more}
        answer = await server.call(
            "PATCH", f"{SA}/a?fieldManager={manager}", {**config, "metadata": meta}, headers=APPLY
        )
        entries = answer.json["metadata"]["managedFields"]

    timed = {entry["manager"]: "time" in entry for entry in entries}
    assert timed == {"silent": False, "naming": True, "tests": True}


async def test_a_list_that_is_always_written_is_owned_by_who_sends_it_empty(server: Api) -> None:
    """`rules: []` is said, although it is stored as null, and `rules` left out is not."""
    silent = await server.make(ROLES, {"metadata": {"name": "silent"}})
    null = await server.make(ROLES, {"metadata": {"name": "null"}, "rules": None})
    empty = await server.make(ROLES, {"metadata": {"name": "empty"}, "rules": []})
    patched = await server.call(
        "PATCH", f"{ROLES}/empty?fieldManager=other", {"rules": []}, headers=MERGE
    )

    assert owned(silent) == owned(null) == []
    assert owned(empty) == [("tests", {"f:rules": {}})]
    assert empty["rules"] is None
    assert owned(patched.json) == [("other", {"f:rules": {}})]


async def test_audiences_that_are_sent_empty_are_owned(server: Api) -> None:
    """A request for a token that says `audiences: []` says something, though it gets the usual."""
    await server.account("app")
    silent = await server.make(f"{SA}/app/token", {"spec": {"expirationSeconds": 600}})
    empty = await server.make(f"{SA}/app/token", {"spec": {"audiences": []}})

    assert owned(silent) == [("tests", {"f:spec": {"f:expirationSeconds": {}}})]
    assert owned(empty) == [("tests", {"f:spec": {"f:audiences": {}, "f:expirationSeconds": {}}})]
    assert silent["spec"]["audiences"] == empty["spec"]["audiences"] != []


async def test_the_finalizers_of_a_namespace_belong_to_who_sends_them(server: Api) -> None:
    """At its birth, and also with a PUT, which cannot change them."""
    spec = {"finalizers": ["example.com/a"]}
    silent = await server.make(NAMESPACES, {"metadata": {"name": "silent"}})
    made = await server.make(NAMESPACES, {"metadata": {"name": "made"}, "spec": spec})
    put = await server.call(
        "PUT", f"{NAMESPACES}/silent", {"metadata": {"name": "silent"}, "spec": spec}
    )

    assert [sorted(fields) for _, fields in owned(silent)] == [["f:metadata"]]
    assert owned(made)[0][1]["f:spec"] == owned(put.json)[0][1]["f:spec"] == {"f:finalizers": {}}
    assert put.json["spec"] == silent["spec"]
