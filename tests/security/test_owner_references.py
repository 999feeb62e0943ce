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
from tests.security.test_revocations import on_record

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


REVOCATIONS = "/apis/identity.orch.io/v1/credentialrevocations"
KEYS = "/apis/identity.orch.io/v1beta1/signingkeys"
REVOKED = {"spec": {"token": {"jti": "1", "namespace": "default", "name": "victim"}}}


@pytest.mark.parametrize("block", [False, True])
async def test_nothing_owns_a_revocation(server: Api, block: bool) -> None:
    """It outlives what it revokes: the garbage collector tried to delete it again and again."""
    owner = {**NOWHERE, "blockOwnerDeletion": block}
    meta = {"name": "owned", "ownerReferences": [owner]}

    created = await server.call("POST", REVOCATIONS, {"metadata": meta, **REVOKED})
    await server.make(REVOCATIONS, {"metadata": {"name": "owned"}, **REVOKED})
    changed = await changed_owners(server, f"{REVOCATIONS}/owned", [owner])
    through_status = await changed_owners(server, f"{REVOCATIONS}/owned/status", [owner])
    later = (await server.call("GET", f"{REVOCATIONS}/owned")).json

    for answer in (created, changed):
        assert answer.status == 422, answer.text
        assert "metadata.ownerReferences: Forbidden" in answer.json["message"]
    assert through_status.status in (200, 422)
    assert "ownerReferences" not in later["metadata"]


async def changed_owners(server: Api, path: str, owners: Any) -> Answer:
    body = json.dumps({"metadata": {"ownerReferences": owners}}).encode()
    form = {"content-type": "application/merge-patch+json"}
    return await server.call("PATCH", path, body, headers=form)


async def test_nothing_owns_a_token_key(server: Api) -> None:
    """While it verifies tokens its deletion is refused; a key of an authority has its owner."""
    meta = {"name": "tokens-2", "ownerReferences": [NOWHERE]}
    body = {"spec": {"algorithm": "ES256"}}

    created = await server.call("POST", KEYS, {"metadata": meta, **body})
    await server.make(KEYS, {"metadata": {"name": "tokens-2"}, **body})
    changed = await changed_owners(server, f"{KEYS}/tokens-2", [NOWHERE])

    assert (created.status, changed.status) == (422, 422)


async def test_nothing_owns_a_certificate_on_record(server: Api) -> None:
    """It stays until the certificate has expired; nobody has the verb to patch it."""
    path, _ = await on_record(server, "alice")
    records = "/apis/identity.orch.io/v1/issuedcertificates"
    record = (await server.call("GET", f"{records}/{path}")).json
    record["metadata"]["ownerReferences"] = [NOWHERE]

    answer = await server.call("PUT", f"{records}/{path}/status", record)
    later = (await server.call("GET", f"{records}/{path}")).json

    assert answer.status in (200, 422), answer.text
    assert "ownerReferences" not in later["metadata"]
