"""Behaviour over several pages, many changes or repeated reads: nothing is lost, and nothing is
deleted by mistake.
"""

import json
from pathlib import Path

import pytest

from orchid.kernel.engine.verbs import continue_token, delete
from orchid.kernel.store.interface import Change
from orchid.kernel.wire.naming import ORCH
from tests.api.world import Api, api
from tests.security.test_fresh_rights import Behind, LaggingStore

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
MERGE = {"content-type": "application/merge-patch+json"}


async def test_a_dry_run_that_removes_the_last_finalizer_deletes_nothing(server: Api) -> None:
    """By PUT and by PATCH: the answer is that of the deletion, and the object is still there."""
    await server.account("held", finalizers=["example.com/hold"])
    one = f"{ACCOUNTS}/held"
    await server.call("DELETE", one)
    marked = (await server.call("GET", one)).json
    freed = {**marked, "metadata": {**marked["metadata"], "finalizers": []}}
    patch = json.dumps({"metadata": {"finalizers": None}}).encode()

    put = await server.call("PUT", f"{one}?dryRun=All", freed)
    patched = await server.call("PATCH", f"{one}?dryRun=All", patch, headers=MERGE)
    kept = await server.call("GET", one)
    done = await server.call("PUT", one, freed)

    assert (put.status, patched.status, kept.status, done.status) == (200, 200, 200, 200)
    assert kept.json == marked
    assert (await server.call("GET", one)).status == 404


async def test_a_collection_of_several_pages_is_deleted_whole(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page after page until there is none; a limit of the caller's own is obeyed."""
    monkeypatch.setattr(delete, "PAGE", 3)
    for number in range(10):
        await server.account(f"robot-{number}", labels={"of": "many"})

    some = await server.call("DELETE", f"{ACCOUNTS}?labelSelector=of%3Dmany&limit=2")
    left = await server.call("GET", f"{ACCOUNTS}?labelSelector=of%3Dmany")
    rest = await server.call("DELETE", f"{ACCOUNTS}?labelSelector=of%3Dmany")
    none = await server.call("GET", f"{ACCOUNTS}?labelSelector=of%3Dmany")

    assert (some.status, len(left.json["items"])) == (200, 8)
    assert (rest.status, none.json["items"]) == (200, [])


async def test_a_watch_from_before_the_history_gets_410(server: Api) -> None:
    """More bytes of changes than are kept: 410, and never a stream with a hole in it."""
    large = {"large": "x" * 100_000}
    history = server.server.feed.history
    history.most = history.spent + 550_000  # room for five of them, and no more
    before = (await server.account("first", annotations=large))["metadata"]["resourceVersion"]
    made = [await server.account(f"later-{number}", annotations=large) for number in range(7)]
    kept = made[1]["metadata"]["resourceVersion"]

    gone = await server.call("GET", f"{ACCOUNTS}?watch=1&resourceVersion={before}")
    async with server.watch(f"{ACCOUNTS}?watch=1&resourceVersion={kept}") as stream:
        names = [event["object"]["metadata"]["name"] for event in await stream.take(5)]

    assert '"code":410' in gone.text
    assert '"reason":"Expired"' in gone.text
    assert names == [f"later-{number}" for number in range(2, 7)]


async def test_a_page_from_another_server_goes_on_where_it_ended(server_files: Path) -> None:
    """The token says "from here, as it is now"; another server has written meanwhile."""
    store = LaggingStore()
    async with api(server_files, store=store) as server:
        for name in ("a", "b"):
            await server.account(name)
        behind = Behind(server, store)
        kind = behind.entry_kind()
        body = kind.head + b'"metadata":{"name":"c","namespace":"default","uid":"u"}}'
        change = Change(kind.key("default", "c"), body, 0)
        token = continue_token.encode_start("a\0", continue_token.LATEST, ORCH)

        page = await behind.answer(
            change, server.call("GET", f"{ACCOUNTS}?limit=5&continue={token}")
        )

    assert page.status == 200
    assert [item["metadata"]["name"] for item in page.json["items"]] == ["b", "c"]
