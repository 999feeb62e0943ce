"""Owner references as a weapon: what a user may only patch is not deleted by the garbage collector.

Bob may read and patch accounts, but not delete them. He names an owner that does not exist; the
garbage collector then deletes the account, with its own rights. Or he creates a ConfigMap that
blocks the deletion of an account that he may not touch.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.world import ADMIN, BOB, Answer, Api, api

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
RBAC = "/apis/rbac.authorization.orch.io/v1"
GROUP = "rbac.authorization.orch.io"
NOWHERE = {"apiVersion": "v1", "kind": "ConfigMap", "name": "never-was", "uid": "no-such-uid"}


def allows(resource: str, *verbs: str) -> dict[str, list[str]]:
    return {"apiGroups": [""], "resources": [resource], "verbs": list(verbs)}


@pytest.fixture
async def server(server_files: Path) -> AsyncIterator[Api]:
    """A server where Bob may change accounts and create ConfigMaps."""
    async with api(server_files) as made:
        await grant(
            made,
            "patcher",
            allows("serviceaccounts", "get", "patch", "update"),
            allows("configmaps", "get", "create"),
        )
        await made.account("victim")
        yield made


async def grant(server: Api, name: str, *rules: Any) -> None:
    meta = {"metadata": {"name": name}}
    await server.make(f"{RBAC}/clusterroles", {**meta, "rules": rules})
    binding = {
        **meta,
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": "bob"}],
    }
    await server.make(f"{RBAC}/clusterrolebindings", binding)


async def patch(
    server: Api, owners: Any, token: str = BOB, form: str = "merge-patch", name: str = "victim"
) -> Answer:
    body: Any = {"metadata": {"ownerReferences": owners}}
    if form == "json-patch":
        body = [{"op": "add", "path": "/metadata/ownerReferences", "value": owners}]
    if form == "apply-patch":
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}} | body
    content = "+yaml" if form == "apply-patch" else "+json"
    return await server.call(
        "PATCH",
        f"{ACCOUNTS}/{name}?fieldManager=bob",
        json.dumps(body).encode(),
        token=token,
        headers={"content-type": f"application/{form}{content}"},
    )


@pytest.mark.parametrize(
    "form", ["merge-patch", "strategic-merge-patch", "json-patch", "apply-patch"]
)
async def test_a_patch_makes_nobody_the_owner_of_what_one_may_not_delete(
    server: Api, form: str
) -> None:
    """In any form of patch: the right to patch is not a right to delete."""
    answer = await patch(server, [NOWHERE], form=form)

    assert answer.status == 403, answer.text
    assert "cannot set an ownerRef on a resource you can't delete" in answer.json["message"]


async def test_an_update_makes_nobody_the_owner_of_what_one_may_not_delete(server: Api) -> None:
    """Nor is the right to update one."""
    stored = (await server.call("GET", f"{ACCOUNTS}/victim", token=BOB)).json
    stored["metadata"]["ownerReferences"] = [NOWHERE]

    answer = await server.call("PUT", f"{ACCOUNTS}/victim", stored, token=BOB)

    assert answer.status == 403, answer.text


async def test_nobody_saves_what_one_may_not_delete_from_the_garbage_collector(
    server: Api,
) -> None:
    """References are not removed either; what else the object says may be changed."""
    assert (await patch(server, [NOWHERE], token=ADMIN)).status == 200

    assert (await patch(server, None)).status == 403
    labels = {"metadata": {"labels": {"a": "b"}}}
    form = {"content-type": "application/merge-patch+json"}
    answer = await server.call(
        "PATCH", f"{ACCOUNTS}/victim", json.dumps(labels).encode(), token=BOB, headers=form
    )
    assert answer.status == 200, answer.text


async def test_who_may_delete_may_change_the_owners(server: Api) -> None:
    """So that the refusals above are about that right."""
    await grant(server, "deleter", allows("serviceaccounts", "delete"))

    assert (await patch(server, [NOWHERE])).status == 200


async def test_an_object_of_ones_own_making_may_have_any_owner(server: Api) -> None:
    """As in the reference: nobody else's object is deleted because of it."""
    body = {"metadata": {"name": "mine", "ownerReferences": [NOWHERE]}}

    answer = await server.call("POST", CONFIG_MAPS, body, token=BOB)

    assert answer.status == 201, answer.text


async def test_nobody_holds_up_the_deletion_of_what_one_may_not_finalize(server: Api) -> None:
    """A dependent that blocks is like a finalizer of the owner, and needs the right to set one."""
    uid = (await server.call("GET", f"{ACCOUNTS}/victim", token=BOB)).json["metadata"]["uid"]
    owner = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "name": "victim",
        "uid": uid,
        "blockOwnerDeletion": True,
    }
    body = {"metadata": {"name": "in-the-way", "ownerReferences": [owner]}}

    answer = await server.call("POST", CONFIG_MAPS, body, token=BOB)

    assert answer.status == 403, answer.text
    assert "you can't set finalizers on" in answer.json["message"]
    await grant(server, "finalizer", allows("serviceaccounts/finalizers", "update"))
    assert (await server.call("POST", CONFIG_MAPS, body, token=BOB)).status == 201
