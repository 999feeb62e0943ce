"""DELETE: optional body `DeleteOptions` and query parameters; the specification lists both."""

from typing import Any

import pytest

from tests.api.world import Api

SA = "/api/v1/namespaces/default/serviceaccounts"
PLAIN = {"kind": "DeleteOptions", "apiVersion": "v1"}
IGNORE = "ignoreStoreReadErrorWithClusterBreakingPotential"


async def names(server: Api) -> list[str]:
    items = (await server.call("GET", SA)).json["items"]
    return [item["metadata"]["name"] for item in items]


@pytest.mark.parametrize("target", [SA, f"{SA}/a"], ids=["collection", "object"])
@pytest.mark.parametrize(
    ("query", "body"),
    [
        ("?dryRun=All", None),
        ("?dryRun=All", PLAIN),
        ("", {**PLAIN, "dryRun": ["All"]}),
        ("?dryRun=All", {"dryRun": ["All"]}),
    ],
    ids=["query", "query beside a body", "body", "both"],
)
async def test_a_dry_run_is_one_wherever_it_is_said(
    server: Api, target: str, query: str, body: Any
) -> None:
    """A dry run keeps nothing of what it does."""
    await server.account("a")
    answer = await server.call("DELETE", target + query, body)

    assert answer.status == 200
    assert await names(server) == ["a"]


@pytest.mark.parametrize("target", [SA, f"{SA}/a"], ids=["collection", "object"])
async def test_the_query_says_what_the_body_leaves_out(server: Api, target: str) -> None:
    """Each option may be in the query or in the body."""
    made = await server.account("a")
    uid = made["metadata"]["uid"]
    answer = await server.call(
        "DELETE", f"{target}?propagationPolicy=Foreground", {"preconditions": {"uid": uid}}
    )
    marked = (await server.call("GET", f"{SA}/a")).json["metadata"]

    assert answer.status == 200
    assert marked["finalizers"] == ["foregroundDeletion"]


async def test_preconditions_of_both_hold(server: Api) -> None:
    """The uid from one place and the version from the other."""
    made = (await server.account("a"))["metadata"]
    body = {"preconditions": {"uid": made["uid"]}}
    wrong = await server.call("DELETE", f"{SA}/a?resourceVersion=1", body)
    right = await server.call("DELETE", f"{SA}/a?resourceVersion={made['resourceVersion']}", body)

    assert (wrong.status, right.status) == (409, 200)


@pytest.mark.parametrize(
    ("query", "body", "message"),
    [
        (
            "gracePeriodSeconds=5",
            {"gracePeriodSeconds": 0},
            "gracePeriodSeconds: the body says 0 and the query says 5",
        ),
        (
            "propagationPolicy=Orphan",
            {"propagationPolicy": "Background"},
            "propagationPolicy: the body says Background and the query says Orphan",
        ),
        ("uid=a", {"preconditions": {"uid": "b"}}, "uid: the body says b and the query says a"),
        (
            f"{IGNORE}=false",
            {IGNORE: True},
            f"{IGNORE}: the body says True and the query says False",
        ),
    ],
)
@pytest.mark.parametrize("target", [SA, f"{SA}/a"], ids=["collection", "object"])
async def test_two_that_disagree_are_refused(
    server: Api, target: str, query: str, body: Any, message: str
) -> None:
    """Nobody knows what was meant, so nothing is done."""
    await server.account("a")
    answer = await server.call("DELETE", f"{target}?{query}", body)

    assert (answer.status, answer.json["message"]) == (400, message)
    assert await names(server) == ["a"]


async def test_the_version_of_a_collection_is_that_of_a_list(server: Api) -> None:
    """Objects that did not exist at that version stay; the others may have changed since."""
    made = await server.account("a")
    await server.account("b")
    version = made["metadata"]["resourceVersion"]
    old = f"{SA}?resourceVersion={version}&resourceVersionMatch=Exact"
    answer = await server.call("DELETE", old)

    assert answer.status == 200
    assert await names(server) == ["b"]

    whatever = await server.call("DELETE", f"{SA}?resourceVersion=0", PLAIN)

    assert whatever.status == 200
    assert await names(server) == []


@pytest.mark.parametrize("value", ["true", "false"])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_initial_events_are_for_watches(server: Api, method: str, value: str) -> None:
    """`sendInitialEvents` of a list or a deletecollection is forbidden, whatever it says."""
    await server.account("a")
    answer = await server.call(method, f"{SA}?sendInitialEvents={value}")

    assert answer.status == 422
    assert answer.json["details"]["causes"] == [
        {
            "reason": "FieldValueForbidden",
            "message": "Forbidden: sendInitialEvents is forbidden for list",
            "field": "sendInitialEvents",
        }
    ]
    assert await names(server) == ["a"]


@pytest.mark.parametrize("verb", ["GET", "DELETE", "WATCH"])
async def test_options_are_judged_before_the_fields_of_a_selector(server: Api, verb: str) -> None:
    """A field that cannot be selected by comes second; a selector that cannot be read, first."""
    watch = "&watch=1" if verb == "WATCH" else ""
    method = "DELETE" if verb == "DELETE" else "GET"
    unknown = f"{SA}?resourceVersionMatch=Foo&propagationPolicy=Foo{watch}&fieldSelector=x"
    answers = [await server.call(method, f"{unknown}{end}") for end in ("%3Dy", "")]

    assert [answer.status for answer in answers] == [422, 400]
    assert answers[0].json["details"]["kind"] == "ListOptions"
