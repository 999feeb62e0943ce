"""Watches over the whole server: framing, forms, bookmarks, time-outs, the end."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.kernel.server import watch_stream as stream_module
from orchid.kernel.server.watch_stream import WatchStream
from orchid.kernel.store.interface import ABSENT, Change, Span
from orchid.kernel.store.memory import MemoryStore
from tests.api.world import BOB, Api, api

SA = "/api/v1/namespaces/default/serviceaccounts"
EVERYWHERE = "/api/v1/serviceaccounts"
NEW = "?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
MERGE = {"content-type": "application/merge-patch+json"}
TABLE = "application/json;as=Table;g=meta.orch.io;v=v1"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.orch.io;v=v1"


def summary(event: Any) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"].get("name", "")


async def test_events_are_lines_of_json_with_whole_objects(server: Api) -> None:
    """Each event is one line; its object carries kind and apiVersion."""
    async with server.watch(f"{SA}?watch=true") as stream:
        made = await server.account("a")
        event = await stream.next()

    assert dict(stream.headers)["Content-Type"] == "application/json"
    assert event == {"type": "ADDED", "object": made}


async def test_the_life_of_an_object(server: Api) -> None:
    """Added, modified, deleted; the deletion shows the last content at a new version."""
    async with server.watch(f"{SA}?watch=1") as stream:
        await server.account("a")
        patch = json.dumps({"metadata": {"labels": {"x": "1"}}}).encode()
        changed = await server.call("PATCH", f"{SA}/a", patch, headers=MERGE)
        gone = await server.call("DELETE", f"{SA}/a")
        added, modified, deleted = await stream.take(3)

    assert [summary(e) for e in (added, modified, deleted)] == [
        ("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"),
    ]  # fmt: skip
    assert modified["object"] == changed.json
    assert deleted["object"] == gone.json
    assert deleted["object"]["metadata"]["labels"] == {"x": "1"}


async def test_a_finished_deletion_is_one_event(server: Api) -> None:
    """When the last finalizer goes, watchers see DELETED with the content before."""
    await server.account("a", finalizers=["x/y"])
    await server.call("DELETE", f"{SA}/a")
    async with server.watch(f"{SA}?watch=1") as stream:
        await stream.next()
        patch = b'{"metadata":{"finalizers":null}}'
        last = await server.call("PATCH", f"{SA}/a", patch, headers=MERGE)
        event = await stream.next()

    assert last.status == 200
    assert "finalizers" not in last.json["metadata"]
    assert event["type"] == "DELETED"
    assert event["object"]["metadata"]["finalizers"] == ["x/y"]


async def test_a_client_goes_on_where_it_stopped(server: Api) -> None:
    """The last version it saw leads to the next event, with nothing lost or repeated."""
    async with server.watch(f"{SA}?watch=1") as first:
        await server.account("a")
        seen = await first.next()
    await server.account("b")
    await server.account("c")
    version = seen["object"]["metadata"]["resourceVersion"]
    async with server.watch(f"{SA}?watch=1&resourceVersion={version}") as second:
        events = await second.take(2)

    assert [summary(event) for event in events] == [("ADDED", "b"), ("ADDED", "c")]


async def test_many_watchers_get_the_same_bytes(server: Api) -> None:
    """An event is encoded once, whatever number of streams it goes to."""
    async with server.watch(f"{SA}?watch=1") as one, server.watch(f"{SA}?watch=1") as two:
        await server.account("a")
        await server.account("b")

        assert await one.take(2) == await two.take(2)


async def test_what_all_see_is_not_what_a_selector_sees(server: Api) -> None:
    """Watchers without a selector get one event per change; others by their selection."""
    await server.account("a")
    async with (
        server.watch(f"{EVERYWHERE}?watch=1&labelSelector=x") as chosen,
        server.watch(EVERYWHERE + NEW) as one,
        server.watch(EVERYWHERE + NEW) as two,
    ):
        for labels in ({"x": "1"}, {"x": None}):
            patch = json.dumps({"metadata": {"labels": labels}}).encode()
            await server.call("PATCH", f"{SA}/a", patch, headers=MERGE)

        assert [summary(event) for event in await chosen.take(2)] == [
            ("ADDED", "a"), ("DELETED", "a"),
        ]  # fmt: skip
        modified = await one.take(2)
        assert [summary(event) for event in modified] == [("MODIFIED", "a"), ("MODIFIED", "a")]
        assert await two.take(2) == modified


@pytest.mark.parametrize(("note", "pieces"), [(b"", 1), (b"y" * stream_module.PIECE_SIZE, 3)])
async def test_changes_of_one_commit_are_written_at_once(
    server_files: Path, monkeypatch: pytest.MonkeyPatch, note: bytes, pieces: int
) -> None:
    """All watchers get the same bytes in order: in one piece, or each event if they are large."""
    store = MemoryStore()
    async with api(server_files, store=store) as server:
        kind = server.server.catalog.of(ServiceAccount)
        await server.make(SA, {"metadata": {"name": "x", "annotations": {"n": "z"}}})
        [made] = (await store.read(Span.prefix(kind.key("default", "x")))).records
        large = made.value.replace(b'"z"', b'"%b"' % note)
        async with (
            server.watch(EVERYWHERE + NEW) as one,
            server.watch(EVERYWHERE + NEW) as two,
        ):
            sent = [noted_chunks(stream, monkeypatch) for stream in (one, two)]
            named = {name: large.replace(b'"x"', b'"%b"' % name.encode()) for name in "abc"}
            await store.commit(
                [Change(kind.key("default", name), data, ABSENT) for name, data in named.items()]
            )
            events = await one.take(3)
            assert await two.take(3) == events

    assert [summary(event) for event in events] == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]
    assert len(sent[0]) == pieces
    assert all(mine is other for mine, other in zip(*sent, strict=True))


def noted_chunks(stream: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The chunks that a stream is sent from now on."""
    noted: list[Any] = []
    receive = stream.send
    monkeypatch.setattr(stream, "send", lambda chunk: (noted.append(chunk), receive(chunk)))
    return noted


async def test_tables_and_metadata(server: Api) -> None:
    """Each object becomes a one-row Table, columns with the first; or its metadata alone."""
    await server.account("a")
    async with (
        server.watch(f"{SA}?watch=1", accept=TABLE) as tables,
        server.watch(f"{SA}?watch=1", accept=PARTIAL) as partial,
    ):
        await server.account("b")
        first, second = await tables.take(2)
        metadata = await partial.next()

    assert [row["cells"][0] for row in first["object"]["rows"]] == ["a"]
    assert [column["name"] for column in first["object"]["columnDefinitions"]] == ["Name", "Age"]
    assert second["object"]["columnDefinitions"] is None
    assert second["object"]["rows"][0]["cells"][0] == "b"
    assert "<invalid>" not in second["object"]["rows"][0]["cells"]
    assert metadata["object"]["kind"] == "PartialObjectMetadata"


async def test_ages_are_those_of_the_moment(server: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object that is younger than the watch has an age all the same."""
    clock, ahead = server.server.clock, timedelta()
    real = clock.now
    monkeypatch.setattr(clock, "now", lambda: real() + ahead)
    made = await server.account("a")
    async with server.watch(f"{SA}?watch=1", accept=TABLE) as tables:
        await tables.next()
        ahead = timedelta(hours=2)
        made["metadata"]["labels"] = {"x": "y"}
        await server.call("PUT", f"{SA}/a", made)
        event = await tables.next()

    assert event["object"]["rows"][0]["cells"][1] == "120m"


async def test_a_time_out_ends_the_stream_properly(server: Api) -> None:
    """After timeoutSeconds the stream is finished, not cut; a negative one ends at once."""
    await server.account("a")
    async with server.watch(f"{SA}?watch=1&timeoutSeconds=-1&resourceVersion=0") as stream:
        assert await stream.rest() == []

    assert stream.ended == "finish"


async def test_no_time_for_the_latest_state_is_an_error(server: Api) -> None:
    """With neither time nor a version there is one event, which says so."""
    async with server.watch(f"{SA}?watch=1&timeoutSeconds=-1") as stream:
        (event,) = await stream.rest()

    assert (event["type"], event["object"]["code"]) == ("ERROR", 500)
    assert event["object"]["message"] == "context deadline exceeded"


async def test_bookmarks_contain_the_revision_of_the_stream(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once in a while, if anything has happened that this watcher did not see."""
    monkeypatch.setattr(stream_module, "BOOKMARK_EVERY", 0.001)
    moments, bookmark_ = asyncio.Semaphore(0), WatchStream._bookmark

    def counted(stream: WatchStream) -> None:
        bookmark_(stream)
        moments.release()

    monkeypatch.setattr(WatchStream, "_bookmark", counted)
    target = f"{SA}?watch=1&allowWatchBookmarks=true&labelSelector=never"
    async with server.watch(target) as stream:
        marked = await stream.next()
        for _ in range(3):
            await moments.acquire()
        assert stream.now() == []  # nothing new, no bookmark
        made = await server.account("a")
        bookmark = await stream.next()

    assert marked["object"]["metadata"]["annotations"]["orch.io/initial-events-end"] == "true"
    assert bookmark == {
        "type": "BOOKMARK",
        "object": {
            "kind": "ServiceAccount",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": made["metadata"]["resourceVersion"]},
        },
    }


@pytest.mark.parametrize(("seconds", "bookmarks"), [(1, 0), (3, 1)])
async def test_a_watch_gets_a_bookmark_two_seconds_before_its_end(
    server: Api, seconds: int, bookmarks: int
) -> None:
    """One that is shorter gets none, as in the reference."""
    target = f"{SA}?watch=1&allowWatchBookmarks=true&labelSelector=never&timeoutSeconds={seconds}"
    async with server.watch(target) as stream:
        await stream.next()
        made = await server.account("a")
        events = await stream.rest()

    versions = [event["object"]["metadata"]["resourceVersion"] for event in events]
    assert versions == [made["metadata"]["resourceVersion"]] * bookmarks


async def test_old_watch_paths(server: Api) -> None:
    """/watch/ always watches; a name in the path is a selector, and must not be contradicted."""
    await server.account("a")
    await server.account("b")
    path = "/api/v1/watch/namespaces/default/serviceaccounts"
    async with server.watch(f"{path}?watch=false") as everything:
        assert [summary(e) for e in await everything.take(2)] == [("ADDED", "a"), ("ADDED", "b")]
    async with server.watch(f"{path}/b") as one:
        assert summary(await one.next()) == ("ADDED", "b")
        await server.account("c")
        await server.call("DELETE", f"{SA}/b")
        assert summary(await one.next()) == ("DELETED", "b")
    refused = await server.call("GET", f"{path}/b?fieldSelector=metadata.name%3Da")
    posted = await server.call("POST", path, {})

    assert refused.status == 400
    assert "doesn't match requested name" in refused.json["message"]
    assert posted.status == 405


async def test_wrong_before_the_stream_is_an_ordinary_error(server: Api) -> None:
    """Selectors, options and rights are checked before the status is sent."""
    selector = await server.call("GET", f"{SA}?watch=1&labelSelector=a@b")
    options = await server.call("GET", f"{SA}?watch=1&sendInitialEvents=true")
    rights = await server.call("GET", f"{SA}?watch=1", token=BOB)
    version = await server.call("GET", f"{SA}?watch=1&resourceVersion=x")

    assert [a.status for a in (selector, options, rights, version)] == [400, 422, 403, 400]


async def test_a_name_scoped_right_is_enough_for_a_watch_of_that_name(server: Api) -> None:
    """fieldSelector=metadata.name=x asks for the right to x only."""
    rbac = "/apis/rbac.authorization.orch.io/v1/namespaces/default"
    rule = {
        "apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["a"],
        "verbs": ["watch", "list"],
    }  # fmt: skip
    await server.make(f"{rbac}/roles", {"metadata": {"name": "r"}, "rules": [rule]})
    group = "rbac.authorization.orch.io"
    await server.make(
        f"{rbac}/rolebindings",
        {
            "metadata": {"name": "r"},
            "roleRef": {"kind": "Role", "name": "r", "apiGroup": group},
            "subjects": [{"kind": "User", "name": "bob", "apiGroup": group}],
        },
    )
    await server.account("a")
    async with server.watch(f"{SA}?watch=1&fieldSelector=metadata.name=a", token=BOB) as stream:
        assert summary(await stream.next()) == ("ADDED", "a")

    assert (await server.call("GET", f"{SA}?watch=1", token=BOB)).status == 403


async def test_a_watcher_hears_when_history_is_lost(server: Api) -> None:
    """If the feed must reload, the stream ends with a 410, so that the client lists again."""
    async with server.watch(f"{SA}?watch=1") as stream:
        await server.server.feed._load()
        events = await stream.rest()

    assert [event["object"]["code"] for event in events] == [410]
    assert stream.ended == "finish"


async def test_closed_streams_leave_nothing_behind(server: Api) -> None:
    """A watcher that goes is forgotten, with its timers."""
    cache = server.server.feed.of(server.server.catalog.kinds[0].type)
    before = len(cache.listeners)
    for _ in range(20):
        async with server.watch(f"{SA}?watch=1&allowWatchBookmarks=1"):
            pass
    await asyncio.sleep(0)

    assert len(cache.listeners) == before


async def test_watches_do_not_hold_places(server_files: Path) -> None:
    """A watch counts as a request only until it is open."""
    async with api(server_files, max_requests_inflight=1) as server:
        rbac = "/apis/rbac.authorization.orch.io/v1/clusterrolebindings"
        group = "rbac.authorization.orch.io"
        await server.make(
            rbac,
            {
                "metadata": {"name": "v"},
                "roleRef": {"kind": "ClusterRole", "name": "view", "apiGroup": group},
                "subjects": [{"kind": "User", "name": "bob", "apiGroup": group}],
            },
        )
        async with server.watch(f"{SA}?watch=1", token=BOB):
            answer = await server.call("GET", SA, token=BOB)

    assert answer.status == 200
