"""Certificate requests: the list, and each condition of a decision."""

import base64
import hashlib
from typing import Any

import pytest

from orchid.features.console.api import Refused
from orchid.features.console.page import Retry, Succeeded
from orchid.features.console.pages import requests
from orchid.features.console.pages.requests import decide
from orchid.kernel.wire.user import MASTERS
from tests.unit.features.console.pages.asked import IDENTITY, REQUESTS, Server, object_of, visit

DATA = b"a request"
SHOWN = {"uid": "u1", "version": "7", "sha256": hashlib.sha256(DATA).hexdigest()}
APPROVAL = f"{REQUESTS}/web/approval"


def stored(*types: str, **spec: Any) -> Any:
    one = object_of("web", spec={"request": base64.b64encode(DATA).decode(), **spec})
    one["metadata"] |= {"uid": "u1", "resourceVersion": "7"}
    return {**one, "status": {"conditions": [{"type": word} for word in types]}}


async def decided(one: Any = None, status: int = 200, **form: Any) -> tuple[Any, Server]:
    server = Server()
    server.get(f"{REQUESTS}/web", one or stored())
    server.on("PUT", APPROVAL, lambda sent: (status, {**sent, "message": "no"}))
    given = {**SHOWN, "decision": "approve", **form}
    return await decide(visit(server, names={"name": "web"}, form=given)), server


@pytest.mark.parametrize(
    ("form", "notice", "condition"),
    [
        (
            {"decision": "approve"},
            "approved",
            ("Approved", "DecidedByHand", "Approved in the console."),
        ),
        (
            {"decision": "deny", "message": " no ", "reason": "Wrong"},
            "denied",
            ("Denied", "Wrong", "no"),
        ),
        (
            {"decision": "approve", "message": "x" * 1024, "reason": "y" * 64},
            "approved",
            ("Approved", "y" * 64, "x" * 1024),
        ),
    ],
)
async def test_a_decision_is_a_condition_of_what_was_shown(
    form: dict[str, Any], notice: str, condition: tuple[str, str, str]
) -> None:
    """And leads back to the list."""
    done, server = await decided(**form, back="state=Waiting&x=%26")

    assert done == Succeeded("/console/requests/web?back=state%3DWaiting%26x%3D%2526", notice)
    (sent,) = server.sent("PUT")
    assert sent["metadata"]["resourceVersion"] == "7"
    (made,) = sent["status"]["conditions"]
    assert (made["type"], made["reason"], made["message"]) == condition
    assert made["status"] == "True"


@pytest.mark.parametrize(
    ("form", "problem", "status"),
    [
        ({"decision": "x"}, "Choose to approve", 400),
        ({"decision": "deny", "message": " "}, "write a message", 400),
        ({"message": "x" * 1025}, "at most 1,024", 400),
        ({"reason": "x" * 65}, "one word", 400),
        ({"reason": "two words"}, "one word", 400),
        ({"uid": "u2"}, "It changed", 409),
        ({"version": "8"}, "It changed", 409),
        ({"sha256": "0"}, "It changed", 409),
    ],
)
async def test_each_refusal_of_a_decision(form: dict[str, Any], problem: str, status: int) -> None:
    done, server = await decided(**form)

    assert isinstance(done, Retry)
    assert problem in done.problem
    assert done.status == status
    assert not server.sent("PUT")


async def test_a_second_decision_is_refused() -> None:
    done, server = await decided(stored("Approved"))

    assert done == Retry("It has been decided already: approved.")
    assert not server.sent("PUT")


@pytest.mark.parametrize(("status", "problem"), [(409, requests.CHANGED), (403, "no")])
async def test_a_refused_write_shows_why(status: int, problem: str) -> None:
    done, _ = await decided(status=status)

    assert done == Retry(problem, status)


def row(name: str, created: str, condition: str, signer: str = "s", user: str = "bob") -> Any:
    meta = {"name": name, "creationTimestamp": created}
    return {"cells": [signer, user, condition], "object": {"metadata": meta}}


def listed() -> Server:
    server = Server()
    server.listed(
        REQUESTS,
        row("issued", "2026-01-01", "Approved,Issued"),
        row("second", "2026-01-03", "Pending"),
        row("first", "2026-01-02", "Pending", "t"),
        row("denied", "2026-01-04", "Denied", user="eve"),
        field="rows",
        columnDefinitions=[{"name": one} for one in ("SignerName", "Requestor", "Condition")],
    )
    return server


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({}, ["first", "second", "denied", "issued"]),
        ({"state": "Waiting"}, ["first", "second"]),
        ({"state": "Waiting", "signer": "s"}, ["second"]),
        ({"signer": " t "}, ["first"]),
        ({"requester": "eve"}, ["denied"]),
        ({"requester": " "}, ["first", "second", "denied", "issued"]),
    ],
)
async def test_the_oldest_that_wait_are_first(query: dict[str, str], names: list[str]) -> None:
    """Then the newest decisions; a filter is by equality."""
    found = (await requests.read_list(visit(listed(), query=query)))["requests"].value

    assert [one["name"] for one in found["rows"]] == names
    assert (found["all"], found["signers"]) == (4, ["s", "t"])


async def test_the_overview_shows_five_that_wait() -> None:
    server = listed()
    found = await requests.waiting(visit(server))
    assert [one["name"] for one in found["rows"]] == ["first", "second"]
    assert (found["total"], found["has_more"]) == (2, False)

    many = [row(f"r{number}", f"2026-01-0{9 - number}", "Pending") for number in range(7)]
    columns = [{"name": one} for one in ("SignerName", "Requestor", "Condition")]
    server.listed(REQUESTS, *many, field="rows", columnDefinitions=columns)
    found = await requests.waiting(visit(server))
    assert [one["name"] for one in found["rows"]] == ["r6", "r5", "r4", "r3", "r2"]
    assert found["total"] == 7


async def shown(one: Any, **options: Any) -> Any:
    server = Server()
    server.get(f"{REQUESTS}/web", one)
    server.searched()
    review = {"requestName": "web", "certificate": {"seconds": 3600}}
    server.on("POST", f"{IDENTITY}/approvalreviews", {"status": review})
    return await requests.read_one(visit(server, names={"name": "web"}, **options))


async def test_a_request_is_shown_with_what_protects_its_decision() -> None:
    """Uid, version and digest; and only a notice that is true."""
    values = await shown(stored(expirationSeconds=7200), query={"done": "approved"})

    assert (values["uid"], values["version"], values["sha256"]) == tuple(SHOWN.values())
    assert values["lifetime"] == "2 hours"
    assert values["pem"] == "a request"
    assert not values["done"]
    assert (await shown(stored("Approved"), query={"done": "approved"}))["done"]
    assert not (await shown(stored("Denied"), query={"done": "approved"}))["done"]
    assert (await shown(stored()))["lifetime"] == "default of the signer"


@pytest.mark.parametrize(
    ("user", "is_own"),
    [
        ({"username": "ann"}, True),
        ({"username": "ann", "groups": ["dev"]}, True),
        ({"username": "ann", "groups": [MASTERS]}, False),
        ({"username": "bob"}, False),
    ],
)
async def test_the_own_request_of_a_user_is_marked(user: Any, is_own: bool) -> None:
    assert (await shown(stored(username="ann"), user=user))["is_own"] is is_own


async def test_a_request_that_is_gone_is_refused() -> None:
    with pytest.raises(Refused):
        await requests.read_one(visit(Server(), names={"name": "gone"}))
