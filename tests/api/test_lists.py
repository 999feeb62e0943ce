"""Lists over the whole server: order, pages while others write, selectors, versions."""

import asyncio
import base64
import json
from typing import Any

import pytest

from tests.api.world import Api

SA = "/api/v1/namespaces/default/serviceaccounts"
MERGE = {"content-type": "application/merge-patch+json"}


async def names(server: Api, target: str) -> list[str]:
    answer = await server.call("GET", target)
    assert answer.status == 200, answer.text
    return [item["metadata"]["name"] for item in answer.json["items"]]


async def test_a_list_is_typed_and_its_items_are_not(server: Api) -> None:
    """kind and apiVersion once, for the list; an empty one has an empty array."""
    empty = (await server.call("GET", SA)).json
    made = await server.account("a")
    listed = (await server.call("GET", SA)).json

    assert (empty["kind"], empty["apiVersion"]) == ("ServiceAccountList", "v1")
    assert empty["items"] == []
    assert set(empty["metadata"]) == {"resourceVersion"}
    (item,) = listed["items"]
    assert item == {k: v for k, v in made.items() if k not in ("kind", "apiVersion")}
    assert int(listed["metadata"]["resourceVersion"]) >= int(item["metadata"]["resourceVersion"])


async def test_the_order_is_bytewise_by_namespace_and_name(server: Api) -> None:
    """Namespace, slash, name: `a-b` comes before `a`."""
    for namespace in ("a", "a-b", "b"):
        await server.account("x", namespace)
        await server.account("w", namespace)
    listed = (await server.call("GET", "/api/v1/serviceaccounts")).json["items"]
    keys = [f"{i['metadata']['namespace']}/{i['metadata']['name']}" for i in listed]

    assert keys == sorted(keys)
    assert keys.index("a-b/w") < keys.index("a/w")


async def test_pages_are_one_snapshot_while_others_write(server: Api) -> None:
    """A client that turns pages sees the first page's moment, whatever happens meanwhile."""
    for i in range(20):
        await server.account(f"a{i:02d}")
    writing = asyncio.create_task(churn(server))
    found: list[str] = []
    versions, token = set(), ""
    while True:
        page = (await server.call("GET", f"{SA}?limit=3&continue={token}")).json
        found += [item["metadata"]["name"] for item in page["items"]]
        versions.add(page["metadata"]["resourceVersion"])
        await asyncio.sleep(0)
        token = page["metadata"].get("continue", "")
        if not token:
            break
    writing.cancel()

    assert found == [f"a{i:02d}" for i in range(20)]
    assert len(versions) == 1


async def churn(server: Api) -> None:
    for i in range(1000):
        await server.call("DELETE", f"{SA}/a{i % 20:02d}")
        await server.call("POST", SA, {"metadata": {"name": f"a{i % 20:02d}x"}})
        await asyncio.sleep(0)


async def test_a_token_is_readable_but_not_trusted(server: Api) -> None:
    """It names a version and a key; a forged one does not lead out of the collection."""
    for name in "abc":
        await server.account(name)
    await server.make("/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}})
    token = (await server.call("GET", f"{SA}?limit=1")).json["metadata"]["continue"]
    content = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    assert content["v"] == "meta.orch.io/v1"
    assert content["start"] == "/a\0"
    for start in ("/../secrets/", "a/../../secrets", "\U0010ffff", "/"):
        forged = base64.urlsafe_b64encode(json.dumps({**content, "start": start}).encode())
        answer = await server.call("GET", f"{SA}?continue={forged.decode().rstrip('=')}")
        if answer.status == 200:
            assert {item["metadata"]["name"] for item in answer.json["items"]} <= set("abc")
        else:
            assert answer.status == 400


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("", "abc"),
        ("tier=web", "ab"),
        ("tier==web,env=prod", "a"),
        ("tier!=web", "c"),
        ("tier in (web,db)", "abc"),
        ("env notin (prod)", "bc"),
        ("env", "ab"),
        ("!env", "c"),
        ("weight>3", "b"),
        ("weight<5", "a"),
    ],
)
async def test_label_selectors(server: Api, selector: str, found: str) -> None:
    """Every operator, with what it makes of a label that is not there."""
    await server.account("a", labels={"tier": "web", "env": "prod", "weight": "3"})
    await server.account("b", labels={"tier": "web", "env": "test", "weight": "5"})
    await server.account("c", labels={"tier": "db"})

    query = selector.replace(" ", "%20").replace("=", "%3D")
    assert await names(server, f"{SA}?labelSelector={query}") == list(found)


async def test_field_selectors(server: Api) -> None:
    """By name and namespace, equal or not; several must all hold."""
    await server.account("a", "one")
    await server.account("a", "two")
    await server.account("b", "two")
    every = "/api/v1/serviceaccounts?fieldSelector="

    assert await names(server, f"{every}metadata.name%3Db") == ["b"]
    assert await names(server, f"{every}metadata.name%3Da,metadata.namespace!%3Done") == ["a"]
    assert await names(server, f"{every}metadata.namespace%3Dtwo") == ["a", "b"]
    assert await names(server, f"{every}metadata.name%3Da,metadata.name%3Db") == []


async def test_versions(server: Api) -> None:
    """Exactly, at least, or any: each means what the contract's table says."""
    first = await server.account("a")
    version = first["metadata"]["resourceVersion"]
    await server.account("b")

    assert await names(server, f"{SA}?resourceVersion={version}&resourceVersionMatch=Exact") == [
        "a"
    ]
    assert await names(server, f"{SA}?resourceVersion={version}&limit=5") == ["a"]
    newer = f"{SA}?resourceVersion={version}&resourceVersionMatch=NotOlderThan&limit=5"
    assert await names(server, newer) == ["a", "b"]
    assert await names(server, f"{SA}?resourceVersion={version}") == ["a", "b"]
    assert await names(server, f"{SA}?resourceVersion=0") == ["a", "b"]


async def test_a_compacted_snapshot_can_be_continued(server: Api) -> None:
    """410 with a token that continues from the same key at the current revision."""
    for name in "abc":
        await server.account(name)
    token = (await server.call("GET", f"{SA}?limit=1")).json["metadata"]["continue"]
    await server.call("DELETE", f"{SA}/b")
    newest = await server.server.store.revision()
    await server.server.store.compact(newest)
    server.server.feed.forget_before(newest)
    gone = await server.call("GET", f"{SA}?limit=1&continue={token}")
    status = gone.json

    assert (gone.status, status["reason"]) == (410, "Expired")
    assert "details" not in status
    assert await names(server, f"{SA}?continue={status['metadata']['continue']}") == ["c"]


async def test_a_list_shows_every_acknowledged_write(server: Api) -> None:
    """Without a version it is as fresh as the last answer to anyone."""
    for i in range(10):
        await server.call("POST", SA, {"metadata": {"name": f"a{i}"}})
        assert len(await names(server, SA)) == i + 1
        assert (await server.call("GET", f"{SA}/a{i}")).status == 200


async def test_deleting_what_a_selector_finds(server: Api) -> None:
    """Only the selected go; a limit takes the first page alone; a dry run takes none."""
    for name, tier in (("a", "web"), ("b", "web"), ("c", "db")):
        await server.account(name, labels={"tier": tier})
    await server.call("DELETE", f"{SA}?dryRun=All")
    assert await names(server, SA) == ["a", "b", "c"]
    await server.call("DELETE", f"{SA}?labelSelector=tier%3Dweb&limit=1")
    assert await names(server, SA) == ["b", "c"]
    answer = await server.call("DELETE", f"{SA}?labelSelector=tier%3Dweb")
    assert answer.json["details"] == {"kind": "serviceaccounts"}
    assert await names(server, SA) == ["c"]
    elsewhere = await server.call("DELETE", "/api/v1/serviceaccounts")
    assert elsewhere.status == 405


async def test_an_unknown_namespace_is_an_empty_list(server: Api) -> None:
    """Nothing there is no error."""
    answer = await server.call("GET", "/api/v1/namespaces/nowhere/serviceaccounts")

    assert (answer.status, answer.json["items"]) == (200, [])


async def test_a_whole_list_is_joined_once_and_never_stale(server: Api) -> None:
    """The bytes that are kept for the next asker change with every write."""
    seen: list[Any] = []
    for name in "abc":
        await server.account(name)
        seen.append((await server.call("GET", SA)).json["items"])
        assert (await server.call("GET", SA)).json["items"] == seen[-1]
    await server.call("DELETE", f"{SA}/a")

    assert [len(items) for items in seen] == [1, 2, 3]
    assert await names(server, SA) == ["b", "c"]
