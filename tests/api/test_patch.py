"""The four patches over the whole server: what each does to one object, and who races whom."""

import asyncio
import json
from typing import Any

import pytest

from tests.api.world import Api

SA = "/api/v1/namespaces/default/serviceaccounts"
JSON_PATCH, MERGE, STRATEGIC = (
    {"content-type": f"application/{kind}+json"}
    for kind in ("json-patch", "merge-patch", "strategic-merge-patch")
)


async def patch(server: Api, name: str, body: Any, media: dict[str, str], query: str = "") -> Any:
    return await server.call(
        "PATCH", f"{SA}/{name}{query}", json.dumps(body).encode(), headers=media
    )


async def test_merge_patch_replaces_lists_and_removes_by_null(server: Api) -> None:
    """RFC 7396, on the object as a client sees it."""
    made = {"metadata": {"name": "a", "labels": {"x": "1", "y": "2"}}, "secrets": [{"name": "s"}]}
    await server.make(SA, made)
    answer = await patch(
        server,
        "a",
        {"metadata": {"labels": {"x": None, "z": "3"}}, "secrets": [{"name": "t"}]},
        MERGE,
    )

    assert answer.json["metadata"]["labels"] == {"y": "2", "z": "3"}
    assert answer.json["secrets"] == [{"name": "t"}]


async def test_strategic_patch_merges_by_key(server: Api) -> None:
    """Secrets merge by name, finalizers as a set, pull secrets are replaced."""
    await server.make(
        SA,
        {
            "metadata": {"name": "a", "finalizers": ["x/y"]},
            "secrets": [{"name": "s1"}, {"name": "s2"}],
            "imagePullSecrets": [{"name": "p1"}],
        },
    )
    answer = await patch(
        server,
        "a",
        {
            "metadata": {"finalizers": ["z/z", "x/y"]},
            "secrets": [{"name": "s3"}, {"$patch": "delete", "name": "s1"}],
            "imagePullSecrets": [{"name": "p2"}],
        },
        STRATEGIC,
    )

    assert answer.json["secrets"] == [{"name": "s3"}, {"name": "s2"}]
    assert sorted(answer.json["metadata"]["finalizers"]) == ["x/y", "z/z"]
    assert answer.json["imagePullSecrets"] == [{"name": "p2"}]


async def test_json_patch_goes_by_paths(server: Api) -> None:
    """Operations in order, all or nothing."""
    await server.make(SA, {"metadata": {"name": "a", "labels": {"x": "1"}}})
    done = await patch(
        server,
        "a",
        [
            {"op": "test", "path": "/metadata/labels/x", "value": "1"},
            {"op": "add", "path": "/metadata/labels/y", "value": "2"},
            {"op": "remove", "path": "/metadata/labels/x"},
        ],
        JSON_PATCH,
    )
    half = await patch(
        server,
        "a",
        [
            {"op": "add", "path": "/metadata/labels/z", "value": "3"},
            {"op": "remove", "path": "/metadata/labels/none"},
        ],
        JSON_PATCH,
    )
    many = await patch(server, "a", [{"op": "test", "path": "/kind"}] * 10_001, JSON_PATCH)

    assert done.json["metadata"]["labels"] == {"y": "2"}
    assert half.status == 422
    assert many.status == 413
    assert (await server.call("GET", f"{SA}/a")).json["metadata"]["labels"] == {"y": "2"}


@pytest.mark.parametrize("media", [JSON_PATCH, MERGE, STRATEGIC])
async def test_what_does_not_exist_cannot_be_patched(server: Api, media: dict[str, str]) -> None:
    """Only apply creates."""
    body: Any = [] if media is JSON_PATCH else {}

    assert (await patch(server, "none", body, media)).status == 404


@pytest.mark.parametrize("media", [JSON_PATCH, MERGE, STRATEGIC])
async def test_a_missing_object_is_reported_before_a_bad_patch(
    server: Api, media: dict[str, str]
) -> None:
    """The same patch is a mistake where there is something to change."""
    await server.account("a")
    body = [{"op": "nonsense", "path": "/x"}] if media is JSON_PATCH else "x"

    assert (await patch(server, "none", body, media)).status == 404
    assert (await patch(server, "a", body, media)).status in (400, 422)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "b"}, "the name of the object (b) does not match the name on the URL (a)"),
        ({"namespace": "other"}, "does not match the namespace sent on the request"),
        ({"uid": "other"}, 'metadata.uid: Invalid value: "other": field is immutable'),
        ({"resourceVersion": "1"}, "the object has been modified"),
        ({"deletionTimestamp": "2030-01-01T00:00:00Z"}, "field is immutable"),
    ],
)
async def test_identity_cannot_be_patched(
    server: Api, change: dict[str, str], message: str
) -> None:
    """Name, namespace, uid and version are not a patch's to change."""
    made = await server.account("a")
    answer = await patch(server, "a", {"metadata": change}, MERGE)

    assert answer.status in (400, 409, 422)
    assert message in answer.json["message"]
    assert (await server.call("GET", f"{SA}/a")).json == made


async def test_unknown_fields_in_the_result(server: Api) -> None:
    """A warning by default, a refusal when strict, silence when ignored."""
    await server.account("a")
    warned = await patch(server, "a", {"foo": 1}, MERGE)
    strict = await patch(server, "a", {"foo": 1}, MERGE, "?fieldValidation=Strict")
    silent = await patch(server, "a", {"foo": 1}, MERGE, "?fieldValidation=Ignore")

    assert warned.warnings == ['299 - "unknown field \\"foo\\""']
    assert strict.status == 422
    assert "strict decoding error" in strict.json["message"]
    assert (silent.status, silent.warnings) == (200, [])


async def test_patches_that_race_all_count(server: Api) -> None:
    """Each is applied to the newest object; none undoes another."""
    await server.account("a")
    answers = await asyncio.gather(
        *(patch(server, "a", {"metadata": {"labels": {f"k{i}": "v"}}}, MERGE) for i in range(10))
    )
    found = (await server.call("GET", f"{SA}/a")).json["metadata"]["labels"]

    assert {answer.status for answer in answers} == {200}
    assert len(found) == 10


async def test_a_patch_that_changes_nothing_writes_nothing(server: Api) -> None:
    """The version stays, for each sort of patch."""
    made = await server.account("a", labels={"x": "1"})
    for media, body in ((MERGE, {}), (STRATEGIC, None), (JSON_PATCH, [])):
        answer = await patch(server, "a", body, media)
        assert (answer.status, answer.json) == (200, made)


async def test_a_put_through_an_endpoint_writes_only_its_part(server: Api) -> None:
    """Status of a Pod does not carry a change of its spec, nor its spec one of the status."""
    pods = "/api/v1/namespaces/default/pods"
    await server.account("app")
    spec = {"serviceAccountName": "app", "containers": [{"name": "c", "image": "i"}]}
    made = await server.make(pods, {"metadata": {"name": "p"}, "spec": spec})
    made["status"] = {"phase": "Running"}
    made["metadata"]["labels"] = {"x": "y"}
    main = (await server.call("PUT", f"{pods}/p", made)).json
    made["metadata"].pop("resourceVersion")
    status = (await server.call("PUT", f"{pods}/p/status", made)).json

    assert main.get("status", {}).get("phase") != "Running"
    assert status["status"]["phase"] == "Running"


@pytest.mark.parametrize(
    "media", [JSON_PATCH, MERGE, STRATEGIC], ids=["json", "merge", "strategic"]
)
async def test_what_a_patch_writes_simply_is_completed(server: Api, media: dict[str, str]) -> None:
    """Text for a Secret becomes data, and a type that is taken away becomes the usual one."""
    place = "/api/v1/namespaces/default/secrets"
    await server.make(place, {"metadata": {"name": "a"}, "data": {"old": "dg=="}})
    body: Any = {"stringData": {"new": "w"}, "type": None}
    if media is JSON_PATCH:
        body = [
            {"op": "add", "path": "/stringData", "value": {"new": "w"}},
            {"op": "remove", "path": "/type"},
        ]

    answer = await server.call("PATCH", f"{place}/a", json.dumps(body).encode(), headers=media)

    assert answer.json["data"] == {"old": "dg==", "new": "dw=="}
    assert answer.json["type"] == "Opaque"
    assert "stringData" not in answer.json


@pytest.mark.parametrize("media", [JSON_PATCH, MERGE])
@pytest.mark.parametrize(
    ("member", "value", "status"),
    [("kind", "Pod", 422), ("apiVersion", "v2", 422), ("apiVersion", None, 400)],
)
async def test_a_patch_cannot_make_something_else_of_an_object(
    server: Api, media: dict[str, str], member: str, value: str | None, status: int
) -> None:
    """Another kind or version is invalid; without a version nothing in it has a meaning."""
    await server.account("a")
    body: Any = {member: value}
    if media is JSON_PATCH:
        op = "remove" if value is None else "replace"
        body = [{"op": op, "path": f"/{member}", "value": value}]
    answer = await patch(server, "a", body, media)

    assert answer.status == status


@pytest.mark.parametrize(
    ("body", "media", "finding"),
    [
        (b'{"metadata":{"labels":{"b":"1","b":"2"}}}', MERGE, "metadata.labels.b"),
        (b'{"metadata":{"labels":{"b":"1","b":"2"}}}', STRATEGIC, "metadata.labels.b"),
        (b'[{"op":"x","op":"test","path":"/secrets","value":null}]', JSON_PATCH, "[0].op"),
    ],
)
async def test_a_repeated_key_in_a_patch_is_reported(
    server: Api, body: bytes, media: dict[str, str], finding: str
) -> None:
    """Strict validation returns an error, Ignore does not report it."""
    await server.account("a")
    for mode, status, reports in (("Ignore", 200, 0), ("Strict", 422, 1)):
        answer = await server.call("PATCH", f"{SA}/a?fieldValidation={mode}", body, headers=media)
        assert answer.status == status
        assert answer.json.get("message", "").count(f'duplicate field "{finding}"') == reports


async def test_operations_of_the_wrong_form_are_a_bad_request(server: Api) -> None:
    """A number is no operation and no path; a patch that leaves nothing does not apply."""
    await server.account("a")
    for operation in ({"op": 1, "path": "/kind"}, {"op": "remove", "path": 1}):
        assert (await patch(server, "a", [operation], JSON_PATCH)).status == 400
    nothing = await patch(server, "a", [{"op": "replace", "path": "", "value": None}], JSON_PATCH)

    assert (nothing.status, nothing.json["details"]) == (422, {})


async def test_a_version_in_a_patch_must_be_a_number(server: Api) -> None:
    """The message is about the text alone: there is no parameter to name."""
    await server.account("a")
    answer = await patch(server, "a", {"metadata": {"resourceVersion": "x"}}, MERGE)

    assert answer.status == 400
    assert answer.json["message"].startswith("strconv.ParseUint: ")


async def test_elements_that_share_a_key_are_owned_as_one(server: Api) -> None:
    """The manager that repeats an element owns it; a removed element has no owner."""
    await server.make(SA, {"metadata": {"name": "a"}, "secrets": [{"name": "x"}, {"name": "y"}]})
    answer = await patch(server, "a", {"secrets": [{"name": "x"}, {"name": "x"}]}, MERGE)
    fields = answer.json["metadata"]["managedFields"][0]["fieldsV1"]

    assert fields == {"f:secrets": {".": {}, 'k:{"name":"x"}': {}}}


@pytest.mark.parametrize("media", [MERGE, STRATEGIC])
@pytest.mark.parametrize("field", ["apiVersion", "kind"])
@pytest.mark.parametrize("value", [7, 1.5, True, {}, []])
async def test_what_an_object_is_must_stay_a_text(
    server: Api, media: dict[str, str], field: str, value: Any
) -> None:
    """A patch that leaves something else there is refused, whatever it means otherwise."""
    await server.account("a")
    answer = await patch(server, "a", {field: value}, media)
    by_path = await patch(
        server, "a", [{"op": "replace", "path": f"/{field}", "value": value}], JSON_PATCH
    )

    for refused in (answer, by_path):
        assert refused.status == 422
        assert f".{field}: expected string" in refused.json["details"]["causes"][0]["message"]
