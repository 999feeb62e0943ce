"""The programme that compares two servers: it sees what differs, and nothing where all is alike."""

import asyncio
import json
import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.comparison.__main__ import read_tokens
from tests.comparison.comparing import Comparison
from tests.comparison.decisions import DECISIONS, LISTED, decision_for
from tests.comparison.differences import class_of, differences
from tests.comparison.found import Found
from tests.comparison.grammar import Asked, Grammar
from tests.comparison.normalising import normalised
from tests.comparison.operations import Operation, common_operations
from tests.comparison.sending import Answer, Client, Request
from tests.comparison.values import POD_SPEC, spoiled
from tests.conformance.exchanges import TOKENS
from tests.e2e.serving import running_server
from tests.unit.kernel.store import etcd_process

REQUESTS = 400
ISSUER = "https://orchid.test"
FLAGS = (
    *("--naming", "kubernetes", "--namespaces", "strict", "--controllers", ""),
    *("--token-auth-file", str(TOKENS)),
    *("--service-account-issuer", ISSUER, "--api-audiences", ISSUER),
)
SECRETS = Operation(
    "POST",
    "/api/v1/namespaces/{namespace}/secrets",
    "post",
    group="",
    version="v1",
    kind="Secret",
    parameters=("dryRun", "pretty"),
    schema={"properties": {"type": {"type": "string"}}},
)


@pytest.mark.system_package("etcd")
def test_a_server_on_a_file_answers_as_one_on_etcd(tmp_path: Path) -> None:
    """Many random requests, and not one answer that differs."""
    tokens = read_tokens(TOKENS)
    admin = next(iter(tokens.values()))
    with ExitStack() as stack:
        cluster = stack.enter_context(etcd_process.running())
        asyncio.run(cluster.wait_healthy())
        on_etcd = ("--etcd-servers", cluster.urls[0])
        servers = [
            stack.enter_context(running_server(tmp_path / "file", *FLAGS)),
            stack.enter_context(running_server(tmp_path / "etcd", *FLAGS, *on_etcd)),
        ]
        first, second = (Client(server.url) for server in servers)
        operations, missing = common_operations(first, second, admin)
        # The names of certificates are their serial numbers, which no two servers share.
        operations = [one for one in operations if one.resource != "certificatesearches"]
        grammar = Grammar(operations, tokens, "cmp", seed=11)
        comparison = Comparison((first, second), admin, "cmp")
        comparison.prepare(grammar.namespaces, grammar.rights())
        for _ in range(REQUESTS):
            comparison.ask(grammar.request())
        first.close()
        second.close()

    assert missing == ""
    assert len({one.resource for one in operations}) > 20
    assert list(comparison.found) == []
    assert comparison.statuses.keys() >= {200, 201, 400, 403, 404, 422}


def test_the_seed_decides_every_request() -> None:
    """The same seed asks the same, another something else."""

    def asked(seed: int) -> list[Asked]:
        grammar = Grammar([SECRETS], {"admin": "t", "alice": "u", "bob": "v"}, "cmp", seed)
        return [grammar.request() for _ in range(50)]

    assert asked(1) == asked(1)
    assert asked(1) != asked(2)


def answer(status: int = 200, **body: Any) -> Answer:
    return Answer(status, {"content-type": "application/json"}, json.dumps(body).encode())


def test_the_object_of_a_creation_is_known_whatever_form_its_body_has() -> None:
    """So that it can be taken away from a server when the other one has refused it."""
    grammar = Grammar([SECRETS], {"admin": "a"}, "cmp", seed=5)
    made = [grammar.request() for _ in range(300)]

    with_name = [one for one in made if isinstance(named_in(one.request.body), str)]

    assert {one.request.headers["Content-Type"] for one in with_name} >= {
        "application/json",
        "application/yaml",
    }
    assert all(one.key.endswith(f"/{named_in(one.request.body)}") for one in with_name)


def named_in(body: bytes | None) -> Any:
    try:
        return yaml.safe_load(body or b"")["metadata"]["name"] or None
    except (yaml.YAMLError, UnicodeError, KeyError, TypeError):
        return None


def test_what_no_two_servers_share_is_not_compared() -> None:
    """Uids, times, revisions, tokens and addresses; a time that was sent is."""
    mine = answer(
        metadata={"uid": "0b1f0c4e-1111-4222-8333-444455556666", "resourceVersion": "7"},
        time="2026-11-15T20:00:00Z",
        sent="2020-01-02T03:04:05Z",
        message="at 127.0.0.1:1 with resourceVersion=7",
    )
    theirs = answer(
        metadata={"uid": "0b1f0c4e-9999-4222-8333-444455556666", "resourceVersion": "900"},
        time="2026-11-15T20:00:09Z",
        sent="2020-01-02T03:04:05Z",
        message="at 127.0.0.1:2 with resourceVersion=900",
    )

    one = normalised(mine, "cmp", ["127.0.0.1:1"])
    other = normalised(theirs, "cmp", ["127.0.0.1:2"])

    assert one == other
    assert one["body"]["sent"] == "2020-01-02T03:04:05Z"


def test_managers_that_a_second_has_parted_are_the_same() -> None:
    """They are ordered by time, and a clock may tick between two requests to one server."""
    early = {"manager": "z", "time": "2026-11-15T20:00:00Z", "fieldsV1": {"f:metadata": {}}}
    late = {"manager": "a", "time": "2026-11-15T20:00:01Z", "fieldsV1": {"f:status": {}}}
    at_once = [late, {**early, "time": late["time"]}]

    one, other, another = (
        normalised(answer(metadata={"managedFields": managed}), "cmp", ())
        for managed in ([early, late], at_once, [early, {**late, "fieldsV1": {}}])
    )

    assert one == other
    assert one != another


def test_objects_of_others_are_left_out_of_lists() -> None:
    """A server may have what the run did not make."""
    found = normalised(answer(items=[{"name": "theirs"}, {"name": "cmp-n0"}]), "cmp", ())

    assert found["body"]["items"] == [{"name": "cmp-n0"}]


@pytest.mark.parametrize(
    ("one", "other", "places"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [".a"]),
        ({"a": 1}, {}, [".a"]),
        ({}, {"b": None}, [".b"]),
        ([{"x": 1}, {"x": 2}], [{"x": 1}, {"x": 3}], ["[].x"]),
        ([1], [1, 2], [""]),
        ({"a": True}, {"a": 1}, [".a"]),
    ],
)
def test_every_place_that_differs_is_found(one: Any, other: Any, places: list[str]) -> None:
    """In objects, in lists, and between true and one."""
    assert [place for place, _, _ in differences(one, other)] == places


def test_a_class_of_differences_names_field_and_values() -> None:
    """The status first, then the first place that differs; none where nothing does."""
    ours = {"status": 200, "body": {"a": 1}}

    assert class_of("get x", ours, ours) is None
    assert class_of("get x", ours, {"status": 404, "body": {"reason": "NotFound"}}) == (
        "get x: status 200 / 404 NotFound"
    )
    assert class_of("get x", ours, {"status": 200, "body": {"a": 2}}) == "get x: 200 .body.a"


def found(ours: dict[str, Any], theirs: dict[str, Any], body: bytes = b"{}") -> Found:
    headers = {"Authorization": "Bearer t"}
    return Found(Asked(Request("POST", "/x", headers, body), SECRETS, ""), (ours, theirs))


def test_a_decision_excuses_what_it_says_and_no_more() -> None:
    """Another sentence is fine where theirs shows internals, another field beside it is not."""
    ours = {"status": 400, "body": {"reason": "BadRequest", "message": "a number is expected"}}
    message = "json: cannot unmarshal string into Go struct field"
    theirs = {"status": 400, "body": {"reason": "BadRequest", "message": message}}
    plain = {"status": 400, "body": {"reason": "BadRequest", "message": "something else"}}
    otherwise = {"status": 400, "body": {"reason": "Invalid", "message": message}}

    assert "internals" in (decision_for(found(ours, theirs)) or "")
    assert decision_for(found(ours, plain)) is None
    assert decision_for(found(ours, otherwise)) is None
    assert decision_for(found(ours, {"status": 500, "body": ""}))
    assert decision_for(found({"status": 500, "body": ""}, theirs)) is None


def test_spoiling_changes_a_document() -> None:
    """Nearly always: a fault may happen to put back what was there."""
    chance = random.Random(1)
    document = {"a": {"b": ["c", 1]}, "d": True}

    changed = [spoiled(json.loads(json.dumps(document)), chance) != document for _ in range(100)]

    assert sum(changed) > 90


def test_a_fault_is_in_one_document_alone() -> None:
    """Later documents are made of the same parts, which stay unchanged."""
    chance = random.Random(1)
    before = json.dumps(POD_SPEC)
    faults = [json.dumps(spoiled(POD_SPEC, chance)) for _ in range(200)]

    assert json.dumps(POD_SPEC) == before
    assert len(set(faults)) > 1


def test_every_known_difference_stands_in_the_documentation_with_its_reason() -> None:
    """The page has the same two lists, in the same order, and a reason beside each."""
    page = (Path(__file__).parents[2] / "docs" / "differences.md").read_text()
    decided, left = page.split("## Known, and left")

    for listed, part in ((DECISIONS, decided), (LISTED, left)):
        rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line[:2] == "| "]
        assert [what for what, _why in rows[1:]] == list(listed)
        assert all(why for _what, why in rows)
