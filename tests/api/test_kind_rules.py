"""Kinds that are here for others: what each of them wants of a body, over the whole server."""

import base64
from typing import Any

import pytest

from tests.api.world import Api

NAMESPACES = "/api/v1/namespaces"
SECRETS = "/api/v1/namespaces/default/secrets"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.orch.io/v1/namespaces/default/leases"
MERGE = {"content-type": "application/merge-patch+json"}
STRATEGIC = {"content-type": "application/strategic-merge-patch+json"}
APPLY = {"content-type": "application/apply-patch+yaml"}
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.orch.io"}


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# --- Secrets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("media", [MERGE, STRATEGIC])
async def test_text_in_a_patch_of_a_secret_ends_up_as_data(
    server: Api, media: dict[str, str]
) -> None:
    """A patched body gets the same defaults as a whole one: text becomes data, by its owner."""
    await server.make(SECRETS, {"metadata": {"name": "s"}})
    answer = await server.call("PATCH", f"{SECRETS}/s", {"stringData": {"a": "b"}}, headers=media)
    fields = answer.json["metadata"]["managedFields"][0]["fieldsV1"]

    assert answer.json["data"] == {"a": encoded("b")}
    assert "stringData" not in answer.json
    assert fields == {"f:data": {".": {}, "f:a": {}}, "f:type": {}}


async def test_an_applied_secret_gets_its_type_and_its_data(server: Api) -> None:
    """The one who applied owns what they wrote; a later PUT may leave out the type."""
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    made = await server.call(
        "PATCH", f"{SECRETS}/s?fieldManager=m", body | {"stringData": {"a": "b"}}, headers=APPLY
    )
    put = await server.call("PUT", f"{SECRETS}/s", body | {"stringData": {"a": "c"}})

    assert made.status == 201
    assert (made.json["type"], made.json["data"]) == ("Opaque", {"a": encoded("b")})
    assert put.status == 200
    assert put.json["data"] == {"a": encoded("c")}


async def test_text_in_a_patch_obeys_the_rules_of_data(server: Api) -> None:
    """Neither a bad key nor a change of what is immutable gets past as text."""
    await server.make(SECRETS, {"metadata": {"name": "s"}, "immutable": True})
    for key, fields in (("a", ["data"]), ("b d", ["data", "data[b d]"])):
        answer = await server.call(
            "PATCH", f"{SECRETS}/s", {"stringData": {key: "x"}}, headers=MERGE
        )
        assert answer.status == 422
        assert [cause["field"] for cause in answer.json["details"]["causes"]] == fields


@pytest.mark.parametrize(
    ("type_", "data", "missing"),
    [
        ("dockercfg", {}, ["data[.dockercfg]"]),
        ("dockercfg", {".dockercfg": "x"}, ["data[.dockercfg]"]),
        ("dockercfg", {".dockercfg": "{}"}, []),
        ("dockerconfigjson", {}, ["data[.dockerconfigjson]"]),
        ("dockerconfigjson", {".dockerconfigjson": "[1]"}, ["data[.dockerconfigjson]"]),
        ("basic-auth", {}, ["data[username]", "data[password]"]),
        ("basic-auth", {"password": ""}, []),
        ("ssh-auth", {"ssh-privatekey": ""}, ["data[ssh-privatekey]"]),
        ("tls", {"tls.crt": ""}, ["data[tls.key]"]),
    ],
)
async def test_a_type_demands_its_keys(
    server: Api, type_: str, data: dict[str, str], missing: list[str]
) -> None:
    """Known types of Secrets hold what their readers expect; no answer shows the content."""
    answer = await server.call(
        "POST",
        SECRETS,
        {"metadata": {"name": "s"}, "type": f"orch.io/{type_}", "stringData": data},
    )
    causes = answer.json.get("details", {}).get("causes", [])

    assert [cause["field"] for cause in causes] == missing
    assert answer.status == (422 if missing else 201)


# --- ConfigMaps -----------------------------------------------------------------------------------


async def test_too_much_data_is_refused_at_the_whole(server: Api) -> None:
    """No single field is to blame, and the path says so; two dots are no key."""
    large = {"metadata": {"name": "c"}, "data": {"a": "x" * 1_048_577}}
    dots = {"metadata": {"name": "c"}, "data": {"..": "x"}}

    answer = await server.call("POST", CONFIG_MAPS, large)
    assert answer.json["details"]["causes"][0]["field"] == "[]"
    answer = await server.call("POST", CONFIG_MAPS, dots)
    assert answer.json["details"]["causes"][0]["message"].endswith("must not be '..'")


@pytest.mark.parametrize(("path", "column"), [(SECRETS, 2), (CONFIG_MAPS, 1)])
async def test_the_count_of_keys_is_a_number_in_a_column_of_text(
    server: Api, path: str, column: int
) -> None:
    """That is how clients know the column."""
    await server.make(path, {"metadata": {"name": "x"}})
    table = await server.call("GET", f"{path}/x", headers=TABLE)

    assert table.json["columnDefinitions"][column]["type"] == "string"
    assert table.json["rows"][0]["cells"][column] == 0


# --- Leases ---------------------------------------------------------------------------------------


async def test_a_lease_changes_only_for_those_who_saw_it(server: Api) -> None:
    """An update names the version it means, lest two holders renew over each other."""
    await server.make(LEASES, {"metadata": {"name": "l"}})
    blind = await server.call("PUT", f"{LEASES}/l", {"metadata": {"name": "l"}})

    assert blind.status == 422
    assert blind.json["details"]["causes"][0]["field"] == "metadata.resourceVersion"


@pytest.mark.parametrize(
    "spec",
    [
        {"renewTime": "2020-01-01T00:00:00Z"},
        {"renewTime": "2020-01-01T00:00:00.1Z"},
        {"renewTime": "2020-13-01T00:00:00.000000Z"},
        {"leaseDurationSeconds": 2**31},
    ],
)
async def test_times_of_a_lease_have_microseconds_and_numbers_have_32_bits(
    server: Api, spec: dict[str, Any]
) -> None:
    """Values that other clients could not read are refused."""
    answer = await server.call("POST", LEASES, {"metadata": {"name": "l"}, "spec": spec})

    assert answer.status == 400
    assert "Lease in version" in answer.json["message"]


async def test_times_of_a_lease_are_kept_in_utc(server: Api) -> None:
    """In any time zone."""
    made = await server.make(
        LEASES,
        {"metadata": {"name": "l"}, "spec": {"renewTime": "2020-01-01T02:00:00.100000+02:00"}},
    )

    assert made["spec"] == {"renewTime": "2020-01-01T00:00:00.100000Z"}


async def test_nobody_steers_an_election_that_does_not_exist(server: Api) -> None:
    """Strategy and preferred holder are read and dropped."""
    made = await server.make(
        LEASES, {"metadata": {"name": "l"}, "spec": {"strategy": "x", "preferredHolder": "y"}}
    )

    assert made["spec"] == {}


async def test_a_finalizer_of_a_lease_needs_no_prefix(server: Api) -> None:
    """Of a Lease any well-formed finalizer will do."""
    await server.make(LEASES, {"metadata": {"name": "l", "finalizers": ["plain"]}})


async def test_the_prefix_of_a_lease_that_is_there_may_be_anything(server: Api) -> None:
    """Its generateName names nothing any more; only that of a new one must be a prefix."""
    new = await server.call(
        "POST", LEASES, {"metadata": {"name": "l", "generateName": "Bad_"}, "spec": {}}
    )
    await server.make(LEASES, {"metadata": {"name": "l"}, "spec": {}})
    changed = await server.call(
        "PATCH", f"{LEASES}/l", {"metadata": {"generateName": "Bad_"}}, headers=MERGE
    )

    assert (new.status, changed.status) == (422, 200)
    assert changed.json["metadata"]["generateName"] == "Bad_"


async def test_a_put_that_only_tries_to_create_keeps_the_version_it_was_sent(server: Api) -> None:
    """Nothing is stored, so it has no version of its own; a real one gets its own."""
    body = {"metadata": {"name": "l", "resourceVersion": "5"}, "spec": {}}
    tried = await server.call("PUT", f"{LEASES}/l?dryRun=All", body)
    real = await server.call("PUT", f"{LEASES}/l", body)

    assert (tried.status, tried.json["metadata"]["resourceVersion"]) == (201, "5")
    assert real.status == 201
    assert real.json["metadata"]["resourceVersion"] != "5"


async def test_a_put_into_another_namespace_is_a_mistake_before_its_uid(server: Api) -> None:
    """Where an object goes is looked at first, also where a PUT would create it."""
    meta = {"name": "l", "namespace": "other", "uid": "u"}
    answer = await server.call("PUT", f"{LEASES}/l", {"metadata": meta, "spec": {}})

    assert answer.status == 400
    assert "does not match the namespace" in answer.json["message"]


async def test_a_put_that_names_a_uid_creates_nothing(server: Api) -> None:
    """A PUT with a uid needs an existing object."""
    answer = await server.call(
        "PUT", f"{LEASES}/l", {"metadata": {"name": "l", "uid": "x"}, "spec": {}}
    )

    assert answer.status == 409
    assert (await server.call("GET", f"{LEASES}/l")).status == 404


# --- Namespaces -----------------------------------------------------------------------------------


async def test_the_label_of_a_namespace_belongs_to_who_made_it(server: Api) -> None:
    """It is put in as if the client had sent it."""
    made = await server.make(NAMESPACES, {"metadata": {"name": "n"}})
    labels = made["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"]["f:labels"]

    assert [f"f:{name}" for name in made["metadata"]["labels"]] == [*labels][1:]


async def test_the_status_of_a_namespace_fits_its_life(server: Api) -> None:
    """Only one on its way out is Terminating, and nothing is anything else."""
    await server.make(NAMESPACES, {"metadata": {"name": "n"}})
    status = f"{NAMESPACES}/n/status"
    wrong = await server.call("PATCH", status, {"status": {"phase": "Gone"}}, headers=MERGE)
    body = {"status": {"conditions": [{"type": "T", "status": "True"}]}}
    right = await server.call("PATCH", status, body, headers=MERGE)

    assert wrong.status == 422
    assert wrong.json["details"]["causes"][0]["field"] == "status.Phase"
    assert right.json["status"]["conditions"] == [
        {"type": "T", "status": "True", "lastTransitionTime": None}
    ]


async def test_finalizers_of_a_namespace_are_checked_where_they_are_written(server: Api) -> None:
    """On create at the list, at the finalize endpoint at the element."""
    body = {"metadata": {"name": "n"}, "spec": {"finalizers": ["nope"]}}
    made = await server.call("POST", NAMESPACES, body)
    await server.make(NAMESPACES, {"metadata": {"name": "n"}})
    written = await server.call("PUT", f"{NAMESPACES}/n/finalize", body)

    assert made.json["details"]["causes"][0]["field"] == "spec.finalizers"
    assert written.json["details"]["causes"][0]["field"] == "spec.finalizers[0]"


async def test_marking_a_namespace_is_no_new_generation(server: Api) -> None:
    """The spec of a namespace is unchanged by the mark; other kinds count the mark as a change."""
    meta = {"name": "n", "generation": 3, "finalizers": ["example.com/a"]}
    await server.make(NAMESPACES, {"metadata": meta})
    await server.make(CONFIG_MAPS, {"metadata": meta})
    namespace = await server.call("DELETE", f"{NAMESPACES}/n")
    config_map = await server.call("DELETE", f"{CONFIG_MAPS}/n")

    assert namespace.json["metadata"]["generation"] == 3
    assert config_map.json["metadata"]["generation"] == 4


async def test_the_generation_counts_changes_of_the_spec(server: Api) -> None:
    """It begins with 1, whatever a client sends; other fields and the status do not count."""
    meta = {"name": "p", "generation": 7}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    await server.make(
        "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}}
    )
    made = await server.call("POST", PODS, {"metadata": meta, "spec": spec})
    labelled = await server.call(
        "PATCH", f"{PODS}/p", {"metadata": {"labels": {"a": "b"}, "generation": 5}}, headers=MERGE
    )
    changed = await server.call("PATCH", f"{PODS}/p", {"spec": {"nodeName": "n1"}}, headers=MERGE)
    reported = await server.call(
        "PATCH", f"{PODS}/p/status", {"status": {"phase": "Running"}}, headers=MERGE
    )

    answers = (made, labelled, changed, reported)
    assert [one.json["metadata"]["generation"] for one in answers] == [1, 1, 2, 2]


# --- Events ---------------------------------------------------------------------------------------

EVENTS = "/api/v1/namespaces/default/events"
SERIES_EVENT = {
    "eventTime": "2026-01-02T03:04:05.000000Z",
    "reportingComponent": "example.com/controller",
    "reportingInstance": "controller-1",
    "action": "Signed",
    "reason": "Approved",
}


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({}, []),
        ({"reportingComponent": "a/b/c"}, ["reportingComponent"]),
        ({"reportingComponent": ""}, ["reportingComponent"] * 3),
        ({"action": "", "reason": ""}, ["action", "reason"]),
        ({"reportingInstance": ""}, ["reportingInstance"]),
        ({"reportingInstance": "x" * 129}, ["reportingInstance"]),
        ({"action": "é" * 65, "reason": "x" * 128}, ["action"]),
        ({"message": "x" * 1025}, ["message"]),
        ({"eventTime": None, "action": "", "message": "x" * 1025}, []),
    ],
)  # fmt: skip
async def test_an_event_with_an_event_time_needs_reporter_action_and_reason(
    server: Api, change: Any, fields: list[str]
) -> None:
    """Older events may leave all of that out."""
    body = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Node"}, **SERIES_EVENT, **change}
    answer = await server.call("POST", EVENTS, body)

    assert answer.status == (422 if fields else 201)
    causes = answer.json["details"]["causes"] if fields else []
    assert [cause["field"] for cause in causes] == fields


@pytest.mark.parametrize(
    ("place", "about", "older", "newer"),
    [
        ("default", "", 201, 201),
        ("orch-system", "", 422, 201),
        ("elsewhere", "", 422, 422),
        ("elsewhere", "elsewhere", 201, 201),
        ("elsewhere", "other", 422, 201),
    ],
)
async def test_where_an_event_is_and_where_its_object_is(
    server: Api, place: str, about: str, older: int, newer: int
) -> None:
    """Older events are beside their object; newer ones only need to be about a namespace."""
    events = f"/api/v1/namespaces/{place}/events"
    about_pod = {"involvedObject": {"kind": "Pod", "namespace": about}}
    old = await server.call("POST", events, {"metadata": {"name": "old"}, **about_pod})
    new = await server.call(
        "POST", events, {"metadata": {"name": "new"}, **about_pod, **SERIES_EVENT}
    )

    assert (old.status, new.status) == (older, newer)
