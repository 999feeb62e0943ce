"""Objects whose stored bytes cannot be read: errors name them, and one option deletes them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orchid.kernel.store.interface import ABSENT, Change
from orchid.kernel.store.memory import MemoryStore
from tests.api.world import ALICE, Answer, Api, api

SA = "/api/v1/namespaces/default/serviceaccounts"
KEY = "core/serviceaccounts/default/broken"
IGNORE = "ignoreStoreReadErrorWithClusterBreakingPotential"
RBAC = "/apis/rbac.authorization.orch.io/v1"
UNREADABLE = {
    "no object": b"\x00\xff rubbish",
    "cut off": b'{"kind":"ServiceAccount","apiVersion":"v1","metadata":{"name":"broken","uid":"u',
    "another shape": (
        b'{"kind":"ServiceAccount","apiVersion":"v1","metadata":{"name":"broken","namespace":'
        b'"default","uid":"u"},"secrets":7}'
    ),
    "nothing": b"",
}


async def damage(server: Api, store: MemoryStore, value: bytes) -> None:
    """Write bytes past the server, as a damaged disk or another program would."""
    await store.commit([Change(KEY, value, ABSENT)])
    await server.server.feed.fresh()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def server(server_files: Path, store: MemoryStore) -> AsyncIterator[Api]:
    async with api(server_files, store=store) as made:
        yield made


def reports(answer: Answer, *places: str) -> bool:
    causes = answer.json["details"]["causes"]
    return (
        (answer.status, answer.json["reason"]) == (500, "StorageReadError")
        and [cause["field"] for cause in causes] == list(places)
        and "broken" in answer.json["message"]
    )


@pytest.mark.parametrize("value", UNREADABLE.values(), ids=UNREADABLE)
async def test_an_object_that_cannot_be_read_is_named(
    server: Api, store: MemoryStore, value: bytes
) -> None:
    """A get and every list that should contain it name the object; other requests succeed."""
    await server.account("well")
    await server.account("other", "elsewhere")
    await damage(server, store, value)

    for target in (f"{SA}/broken", SA, "/api/v1/serviceaccounts", f"{SA}?limit=1"):
        assert reports(await server.call("GET", target), "default/broken"), target
    assert (await server.call("GET", f"{SA}/well")).status == 200
    assert (await server.call("GET", "/api/v1/namespaces/elsewhere/serviceaccounts")).status == 200
    assert reports(await server.call("DELETE", f"{SA}/broken"), "default/broken")
    again = await server.call("POST", SA, {"metadata": {"name": "broken"}})
    assert (again.status, again.json["reason"]) == (409, "AlreadyExists")


@pytest.mark.parametrize("value", UNREADABLE.values(), ids=UNREADABLE)
async def test_a_server_starts_with_an_object_that_cannot_be_read(
    server_files: Path, value: bytes
) -> None:
    """It is found at start as well as later, and stops neither."""
    store = MemoryStore()
    await store.commit([Change(KEY, value, ABSENT)])
    async with api(server_files, store=store) as server:
        await server.account("well")

        assert reports(await server.call("GET", SA), "default/broken")
        assert (await server.call("GET", f"{SA}/well")).status == 200


async def test_watches_go_on_without_it(server: Api, store: MemoryStore) -> None:
    """A watch of the kind receives all other objects, and the deletion of a readable one."""
    await server.account("well")
    async with server.watch(f"{SA}?watch=1") as stream:
        await damage(server, store, UNREADABLE["cut off"])
        await server.account("later")
        await server.call("DELETE", f"{SA}/broken?{IGNORE}=true")
        await server.account("last")
        events = await stream.take(3)

    names = [(event["type"], event["object"]["metadata"]["name"]) for event in events]
    assert names == [("ADDED", "well"), ("ADDED", "later"), ("ADDED", "last")]


@pytest.mark.parametrize("by_body", [True, False])
async def test_it_is_removed_by_the_option_alone(
    server: Api, store: MemoryStore, by_body: bool
) -> None:
    """In the query or the body; after that its name is free and lists are whole."""
    await damage(server, store, UNREADABLE["no object"])
    query, body = ("", {IGNORE: True}) if by_body else (f"?{IGNORE}=true", None)
    answer = await server.call("DELETE", f"{SA}/broken{query}", body)

    assert (answer.status, answer.json["status"]) == (200, "Success")
    assert answer.json["details"] == {"name": "broken", "kind": "serviceaccounts"}
    assert (await server.call("GET", f"{SA}/broken")).status == 404
    assert (await server.call("GET", SA)).json["items"] == []
    await server.account("broken")


@pytest.mark.parametrize(
    ("query", "other"),
    [
        ("dryRun=All", "dryRun"),
        ("gracePeriodSeconds=0", "gracePeriodSeconds"),
        ("orphanDependents=true", "orphanDependents"),
        ("uid=u", "preconditions"),
        ("propagationPolicy=Background", "propagationPolicy"),
    ],
)
async def test_the_option_goes_with_no_other(
    server: Api, store: MemoryStore, query: str, other: str
) -> None:
    """There is no object that another option could be about."""
    await damage(server, store, UNREADABLE["no object"])
    answer = await server.call("DELETE", f"{SA}/broken?{IGNORE}=true&{query}")

    assert answer.status == 422
    assert f"cannot be set together with .{other}" in answer.json["message"]


async def test_it_is_for_nothing_that_can_be_read(server: Api) -> None:
    """Neither a sound object nor a collection, and what is not there is not found."""
    await server.account("well")
    sound = await server.call("DELETE", f"{SA}/well?{IGNORE}=true")
    every = await server.call("DELETE", f"{SA}?{IGNORE}=true")
    off = await server.call("DELETE", f"{SA}/well?{IGNORE}=false&dryRun=All")
    missing = await server.call("DELETE", f"{SA}/none?{IGNORE}=true")

    assert (sound.status, every.status, off.status, missing.status) == (422, 422, 200, 404)
    assert "DELETECOLLECTION" in every.json["message"]
    assert (await server.call("GET", f"{SA}/well")).status == 200


@pytest.mark.parametrize(
    ("verbs", "status"),
    [
        (["delete"], 403),
        (["unsafe-delete-ignore-read-errors"], 403),
        (["delete", "unsafe-delete-ignore-read-errors"], 200),
    ],
)
async def test_it_takes_both_rights(
    server: Api, store: MemoryStore, verbs: list[str], status: int
) -> None:
    """`delete`, and `unsafe-delete-ignore-read-errors` besides."""
    await damage(server, store, UNREADABLE["no object"])
    rule = {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": verbs}
    await server.make(f"{RBAC}/clusterroles", {"metadata": {"name": "r"}, "rules": [rule]})
    subject: dict[str, Any] = {"kind": "User", "name": "alice"}
    reference = {"kind": "ClusterRole", "name": "r", "apiGroup": "rbac.authorization.orch.io"}
    body = {"metadata": {"name": "b"}, "roleRef": reference, "subjects": [subject]}
    await server.make(f"{RBAC}/clusterrolebindings", body)
    answer = await server.call("DELETE", f"{SA}/broken?{IGNORE}=true", token=ALICE)

    assert answer.status == status
