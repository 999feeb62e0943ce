"""managedFields of lists: elements that lack their key, and lists that are sent empty."""

from typing import Any

import pytest

from tests.api.world import Api

SA = "/api/v1/namespaces/default/serviceaccounts"
ROLES = "/apis/rbac.authorization.orch.io/v1/clusterroles"
MERGE = {"content-type": "application/merge-patch+json"}


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
