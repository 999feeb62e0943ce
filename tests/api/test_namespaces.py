"""Namespaces: made on first use, or asked for; what is in one that goes."""

from pathlib import Path

from tests.api.world import Api, api

MERGE = {"content-type": "application/merge-patch+json"}


def accounts(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/serviceaccounts"


async def test_one_comes_into_being_with_its_first_object(server: Api) -> None:
    """A create makes the namespace; reading and dry runs do not."""
    assert (await server.call("GET", accounts("new"))).json["items"] == []
    assert (await server.call("GET", "/api/v1/namespaces/new")).status == 404
    await server.account("a", "new")
    made = await server.call("GET", "/api/v1/namespaces/new")

    assert made.status == 200
    assert made.json["status"] == {"phase": "Active"}
    assert made.json["metadata"]["labels"]


async def test_the_creator_owns_the_label_with_the_name(server: Api) -> None:
    """It is a default, put in before anybody looks who set what."""
    made = await server.call("POST", "/api/v1/namespaces", {"metadata": {"name": "named"}})
    (entry,) = made.json["metadata"]["managedFields"]

    assert entry["fieldsV1"]["f:metadata"]["f:labels"] == {
        ".": {},
        **{f"f:{label}": {} for label in made.json["metadata"]["labels"]},
    }


async def test_an_event_owns_its_object_as_a_whole(server: Api) -> None:
    """And says so when it does not know when it happened."""
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "n"}}
    made = await server.call("POST", "/api/v1/namespaces/n/events", event)
    (entry,) = made.json["metadata"]["managedFields"]

    assert entry["fieldsV1"]["f:involvedObject"] == {}
    assert (made.json["firstTimestamp"], made.json["lastTimestamp"]) == (None, None)


async def test_a_bad_name_makes_no_namespace(server: Api) -> None:
    """A name that no namespace can have is refused, and nothing is left behind."""
    answer = await server.call("POST", accounts("Bad_Name"), {"metadata": {"name": "a"}})

    assert answer.status in (404, 422)
    assert (await server.call("GET", "/api/v1/namespaces/Bad_Name")).status == 404


async def test_strict_servers_want_them_to_exist(server_files: Path) -> None:
    """As the reference does: a 404 on the namespace itself."""
    async with api(server_files, namespaces="strict") as server:
        answer = await server.call("POST", accounts("new"), {"metadata": {"name": "a"}})
        there = await server.call("POST", accounts("default"), {"metadata": {"name": "a"}})

    assert answer.status == 404
    assert answer.json["message"] == 'namespaces "new" not found'
    assert answer.json["details"] == {"name": "new", "kind": "namespaces"}
    assert there.status == 201


async def test_one_that_goes_has_no_grace(server: Api) -> None:
    """Its finalizers say when it goes, not a time."""
    await server.account("a", "old")
    marked = await server.call("DELETE", "/api/v1/namespaces/old")

    assert marked.json["metadata"]["deletionTimestamp"]
    assert "deletionGracePeriodSeconds" not in marked.json["metadata"]


async def test_one_that_goes_is_not_changed_by_another_deletion(server: Api) -> None:
    """The first one has decided about what depends on it."""
    await server.account("a", "old")
    marked = await server.call("DELETE", "/api/v1/namespaces/old")
    orphan = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Orphan"}

    again = await server.call("DELETE", "/api/v1/namespaces/old", orphan)

    assert (again.status, again.json) == (200, marked.json)


async def test_a_status_without_a_phase_is_that_of_an_active_one(server: Api) -> None:
    """So it is accepted where that is true, and refused where it is not."""
    made = await server.make("/api/v1/namespaces", {"metadata": {"name": "x"}})
    status = "/api/v1/namespaces/x/status"
    made["status"] = {}
    kept = await server.call("PUT", status, made)
    await server.call("DELETE", "/api/v1/namespaces/x")
    del made["metadata"]["resourceVersion"]
    refused = await server.call("PUT", status, made)

    assert (kept.status, kept.json["status"]) == (200, {"phase": "Active"})
    assert refused.status == 422
    assert "Invalid value: \"Active\": may only be 'Terminating'" in refused.json["message"]


async def test_deleting_one_only_marks_it(server: Api) -> None:
    """It is Terminating until it is empty; new content is refused, changes are not."""
    made = await server.account("a", "old")
    marked = await server.call("DELETE", "/api/v1/namespaces/old")
    refused = await server.call("POST", accounts("old"), {"metadata": {"name": "b"}})
    changed = await server.call(
        "PATCH", f"{accounts('old')}/a", b'{"metadata":{"labels":{"x":"y"}}}', headers=MERGE
    )

    assert marked.json["status"]["phase"] == "Terminating"
    assert refused.status == 403
    assert refused.json["message"].endswith(
        "unable to create new content in namespace old because it is being terminated"
    )
    assert refused.json["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    assert changed.status == 200
    assert changed.json["metadata"]["uid"] == made["metadata"]["uid"]


async def test_finalizing_ends_it(server: Api) -> None:
    """Without its finalizer, taken away through the endpoint, a marked namespace goes."""
    await server.account("a", "old")
    await server.call("DELETE", f"{accounts('old')}/a")
    marked = (await server.call("DELETE", "/api/v1/namespaces/old")).json
    kept = await server.call("PUT", "/api/v1/namespaces/old", {**marked, "spec": {}})
    done = await server.call("PUT", "/api/v1/namespaces/old/finalize", {**marked, "spec": {}})

    assert kept.json["spec"]["finalizers"]  # the main endpoint does not write them
    assert done.status == 200
    assert (await server.call("GET", "/api/v1/namespaces/old")).status == 404


async def test_there_is_no_deletecollection_of_namespaces(server: Api) -> None:
    """As in the reference, namespaces go one by one."""
    assert (await server.call("DELETE", "/api/v1/namespaces")).status == 405


async def test_a_namespace_in_the_body_must_agree(server: Api) -> None:
    """The URL decides."""
    answer = await server.call(
        "POST", accounts("default"), {"metadata": {"name": "a", "namespace": "other"}}
    )

    assert answer.status == 400
    assert "does not match the namespace sent on the request" in answer.json["message"]
