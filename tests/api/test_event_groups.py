"""Events in two groups: the same objects, stored once, under other field names and rules.

The core group has the older names (`message`, `involvedObject`); the group `events` has the newer
ones (`note`, `regarding`), and there an event must be complete and hardly changes any more. What is
expected here was asked of the reference.
"""

from typing import Any

import pytest

from orchid.features.objects.kinds.event import Event, ReportedEvent
from orchid.kernel.wire.codec.protobuf import message_of, opened, sealed
from tests.api.world import Api

OLD = "/api/v1/namespaces/default/events"
NEW = "/apis/events.orch.io/v1/namespaces/default/events"
BOTH = (OLD, NEW)
VERSIONS = {OLD: "v1", NEW: "events.orch.io/v1"}
PROTOBUF = "application/vnd.kubernetes.protobuf"
APPLY = {"content-type": "application/apply-patch+yaml"}
MERGE = {"content-type": "application/merge-patch+json"}
TABLE = {"accept": "application/json;as=Table;g=meta.orch.io;v=v1"}
NOTICED, SEEN_AGAIN = "2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:01.500000Z"
POD = {"kind": "Pod", "namespace": "default", "name": "p"}
SERIES = {"count": 2, "lastObservedTime": SEEN_AGAIN}
SAME = {
    "eventTime": NOTICED,
    "type": "Normal",
    "reportingInstance": "host-1",
    "action": "Signing",
    "reason": "Signed",
    "series": SERIES,
}
REPORTED = {
    **SAME,
    "note": "It was signed.",
    "regarding": POD,
    "reportingController": "example.com/signer",
}
CORE_EVENT = {
    **SAME,
    "message": "It was signed.",
    "involvedObject": POD,
    "reportingComponent": "example.com/signer",
}
OLDER = {
    "message": " Long ago ",
    "involvedObject": POD,
    "count": 3,
    "source": {"component": "c", "host": "h"},
    "firstTimestamp": "2026-01-01T00:00:00Z",
}


def event(target: str, name: str = "a", **fields: Any) -> dict[str, Any]:
    content = REPORTED if target == NEW else CORE_EVENT
    head = {"kind": "Event", "apiVersion": VERSIONS[target]}
    return {**head, "metadata": {"name": name}, **content, **fields}


def content(document: dict[str, Any]) -> dict[str, Any]:
    """An event without what every object has."""
    return {k: v for k, v in document.items() if k not in ("kind", "apiVersion", "metadata")}


def written(target: str) -> dict[str, Any]:
    """The object in the response, which has fields that the client did not send."""
    times = ("firstTimestamp", "lastTimestamp")
    if target == OLD:
        return {**CORE_EVENT, "source": {}, **dict.fromkeys(times)}
    return {
        **REPORTED,
        "deprecatedSource": {},
        "deprecatedFirstTimestamp": None,
        "deprecatedLastTimestamp": None,
    }


@pytest.mark.parametrize("made_in", BOTH)
@pytest.mark.parametrize("read_in", BOTH)
async def test_an_event_of_one_group_is_read_in_the_other(
    server: Api, made_in: str, read_in: str
) -> None:
    """Every field has the name that it has in the group that is asked."""
    made = await server.make(made_in, event(made_in))
    got = (await server.call("GET", f"{read_in}/a")).json
    listed = (await server.call("GET", read_in)).json

    assert content(made) == written(made_in)
    assert content(got) == written(read_in)
    assert got["metadata"] == made["metadata"]
    assert (got["kind"], got["apiVersion"]) == ("Event", VERSIONS[read_in])
    assert (listed["kind"], listed["apiVersion"]) == ("EventList", VERSIONS[read_in])
    assert [content(item) for item in listed["items"]] == [written(read_in)]


async def test_an_event_is_stored_once(server: Api) -> None:
    """Events of both groups are stored in the form of the core group, under one key."""
    for name, target in zip("ab", BOTH, strict=True):
        await server.make(target, event(target, name))
    entries = server.server.feed.of(Event).entries
    again = await server.call("POST", NEW, event(NEW, "a"))

    assert list(entries) == ["core/events/default/a", "core/events/default/b"]
    assert {entry.object.api_version for entry in entries.values()} == {"v1"}
    assert again.status == 409


async def test_an_older_event_shows_its_fields_as_deprecated(server: Api) -> None:
    """Fields that only older events have are returned under their deprecated names."""
    await server.make(OLD, {"metadata": {"name": "a"}, **OLDER})
    got = (await server.call("GET", f"{NEW}/a")).json

    assert content(got) == {
        "eventTime": None,
        "note": OLDER["message"],
        "regarding": POD,
        "deprecatedCount": 3,
        "deprecatedSource": OLDER["source"],
        "deprecatedFirstTimestamp": OLDER["firstTimestamp"],
        "deprecatedLastTimestamp": None,
    }


@pytest.mark.parametrize("target", BOTH)
async def test_a_body_is_of_the_group_of_its_path(server: Api, target: str) -> None:
    """The other group's event is known, and is refused by its version."""
    other = OLD if target == NEW else NEW
    answer = await server.call("POST", target, event(other))

    assert answer.status == 400
    assert answer.json["message"] == (
        f"the API version in the data ({VERSIONS[other]}) does not match the expected API version "
        f"({VERSIONS[target]})"
    )


@pytest.mark.parametrize("target", BOTH)
async def test_a_watch_speaks_the_names_of_its_group(server: Api, target: str) -> None:
    """Two watchers of the same changes, each by its own names; also of what went."""
    other = OLD if target == NEW else NEW
    await server.make(OLD, event(OLD))
    async with (
        server.watch(f"{target}?watch=1&allowWatchBookmarks=1") as stream,
        server.watch(f"{other}?watch=1&resourceVersion=0") as beside,
    ):
        await server.make(NEW, event(NEW, "b"))
        await server.call("DELETE", f"{OLD}/b")
        events = await stream.take(4)
        seen = await beside.take(3)

    assert [one["type"] for one in events] == ["ADDED", "BOOKMARK", "ADDED", "DELETED"]
    assert {one["object"]["apiVersion"] for one in events} == {VERSIONS[target]}
    assert [content(events[place]["object"]) for place in (0, 2, 3)] == [written(target)] * 3
    assert [content(one["object"]) for one in seen] == [written(other)] * 3


@pytest.mark.parametrize("target", BOTH)
async def test_protobuf_has_the_numbers_of_its_group(server: Api, target: str) -> None:
    """A message of the group that was read can be sent again."""
    type_ = Event if target == OLD else ReportedEvent
    await server.make(OLD, event(OLD))
    one = await server.call("GET", f"{target}/a", headers={"accept": PROTOBUF})
    many = await server.call("GET", target, headers={"accept": PROTOBUF})
    envelope, message = opened(one.body)
    read = message_of(type_).decode(message, kind="", api_version="")
    packed = sealed(
        VERSIONS[target],
        "Event",
        message_of(type_).encode(read.with_meta(name="b", resource_version="")),
    )
    made = await server.call("POST", target, packed, headers={"content-type": PROTOBUF})

    assert (envelope.kind, envelope.api_version) == ("Event", VERSIONS[target])
    assert opened(many.body)[0].kind == "EventList"
    assert (made.status, content(made.json)) == (201, written(target))


async def test_both_groups_show_the_same_table(server: Api) -> None:
    """New events show time, count and reporter, as older ones do."""
    await server.make(NEW, event(NEW))
    await server.make(OLD, {"metadata": {"name": "b"}, **OLDER})
    tables = [(await server.call("GET", target, headers=TABLE)).json for target in BOTH]
    whole = await server.call("GET", f"{NEW}?includeObject=Object", headers=TABLE)

    assert tables[0]["columnDefinitions"] == tables[1]["columnDefinitions"]
    assert tables[0]["rows"] == tables[1]["rows"]
    new, old = (row["cells"] for row in tables[0]["rows"])
    assert new[1:4] == ["Normal", "Signed", "pod/p"]
    assert new[5:7] == ["example.com/signer, host-1", "It was signed."]
    assert new[8:] == [2, "a"]
    assert old[5:7] == ["c, h", "Long ago"]
    assert old[8:] == [3, "b"]
    assert whole.json["rows"][0]["object"]["note"] == "It was signed."


async def test_an_event_is_selected_by_the_names_of_its_group(server: Api) -> None:
    """The names of the other group are not known there."""
    await server.make(NEW, event(NEW))
    await server.make(NEW, event(NEW, "b", regarding={**POD, "name": "q"}))
    found = await server.call(
        "GET", f"{NEW}?fieldSelector=regarding.name%3Dp,reportingController%3Dexample.com/signer"
    )
    older = await server.call("GET", f"{OLD}?fieldSelector=involvedObject.name%3Dq")
    unknown = await server.call("GET", f"{NEW}?fieldSelector=involvedObject.name%3Dp")

    assert [item["metadata"]["name"] for item in found.json["items"]] == ["a"]
    assert [item["metadata"]["name"] for item in older.json["items"]] == ["b"]
    assert unknown.status == 400
    assert unknown.json["message"] == "field label not supported: involvedObject.name"


async def test_who_tracks_fields_in_one_group_is_forgotten_by_writes_in_the_other(
    server: Api,
) -> None:
    """Entries of managedFields with the field names of the other group are dropped."""
    made = await server.make(f"{NEW}?fieldManager=new", event(NEW))
    patched = await server.call(
        "PATCH", f"{OLD}/a?fieldManager=old", b'{"message":"Changed."}', headers=MERGE
    )
    sent = {"kind": "Event", "apiVersion": VERSIONS[NEW], "metadata": {"name": "a"}}
    applied = await server.call(
        "PATCH", f"{NEW}/a?fieldManager=app", {**sent, "series": {"count": 3}}, headers=APPLY
    )

    (first,) = made["metadata"]["managedFields"]
    assert (first["apiVersion"], "f:note" in first["fieldsV1"]) == (VERSIONS[NEW], True)
    (second,) = patched.json["metadata"]["managedFields"]
    assert (second["manager"], second["fieldsV1"]) == ("old", {"f:message": {}})
    (third,) = applied.json["metadata"]["managedFields"]
    assert (third["manager"], third["fieldsV1"]) == ("app", {"f:series": {"f:count": {}}})


async def test_in_its_own_group_an_event_must_be_complete(server: Api) -> None:
    """Older fields must be empty, and all errors are reported together."""
    poor = {
        "metadata": {"name": "Bad_Name"},
        "series": {},
        "deprecatedCount": 3,
        "deprecatedFirstTimestamp": "2026-01-01T00:00:00Z",
        "deprecatedSource": {"host": "h"},
    }
    answer = await server.call("POST", NEW, poor)
    same_in_core = await server.call("POST", OLD, {"metadata": {"name": "Bad_Name"}})

    assert answer.status == 422
    assert answer.json["details"]["kind"] == "Event"
    assert [cause["field"] for cause in answer.json["details"]["causes"]] == [
        "metadata.name",
        "series.count",
        "series.lastObservedTime",
        "eventTime",
        "type",
        "firstTimestamp",
        "count",
        "source",
    ]
    assert same_in_core.status == 201


async def test_in_its_own_group_only_the_series_of_an_event_changes(server: Api) -> None:
    """In the core group everything may."""
    await server.make(NEW, event(NEW))
    counted = await server.call("PATCH", f"{NEW}/a", b'{"series":{"count":9}}', headers=MERGE)
    refused = await server.call(
        "PUT", f"{NEW}/a", event(NEW, note="Other.", regarding={**POD, "name": "q"})
    )
    few = await server.call("PATCH", f"{NEW}/a", b'{"series":{"count":1}}', headers=MERGE)
    older = await server.call("PATCH", f"{OLD}/a", b'{"message":"Other."}', headers=MERGE)

    assert counted.json["series"] == {**SERIES, "count": 9}
    assert [cause["field"] for cause in refused.json["details"]["causes"]] == [
        "involvedObject",
        "message",
    ]
    assert "series.count: Invalid value" in few.json["message"]
    assert (older.status, older.json["message"]) == (200, "Other.")


async def test_the_group_of_events_is_published(server: Api) -> None:
    """In discovery, with the hash of what is stored, and in OpenAPI by its own names."""
    core = (await server.call("GET", "/api/v1")).json["resources"]
    (resource,) = (await server.call("GET", "/apis/events.orch.io/v1")).json["resources"]
    document = (await server.call("GET", "/openapi/v3/apis/events.orch.io/v1")).json
    schemas = document["components"]["schemas"]
    schema = schemas["io.orch.api.events.v1.Event"]

    assert resource == next(one for one in core if one["name"] == "events")
    assert schema["required"] == ["eventTime"]
    assert {"note", "regarding", "deprecatedSource"} <= schema["properties"].keys()
    assert schemas["io.orch.api.events.v1.EventSeries"]["required"] == ["count", "lastObservedTime"]
    assert "io.orch.api.core.v1.EventSource" in schemas
    assert "/apis/events.orch.io/v1/namespaces/{namespace}/events/{name}" in document["paths"]
