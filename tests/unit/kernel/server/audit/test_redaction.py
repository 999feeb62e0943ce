"""Fields that an audit event omits, and fields that nobody can have omitted."""

import json
from typing import Any

import pytest

from orchid.kernel.access.impersonation.impersonation import Impersonated
from orchid.kernel.engine.interfaces import Authenticated
from orchid.kernel.http.messages import HttpRequest, Peer, Response
from orchid.kernel.server.audit.redaction import SECRET_FIELDS, shown_uri
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.wire.errors import ErrorSubject, NotFound
from orchid.kernel.wire.user import UserInfo
from tests.unit.kernel.server.audit.audited import ACCOUNTS, JWT, TOKEN, World

KEY = "-----BEGIN EC PRIVATE KEY-----\nabcd\n-----END EC PRIVATE KEY-----\n"


def patched(world: World) -> Any:
    return world.log.events[-1]["requestObject"]


async def test_patch_is_recorded_as_it_came() -> None:
    """The text of a patch is recorded, YAML as JSON, with confidential fields masked."""
    world = World({"level": "Request"})

    await world.send("PATCH", f"{ACCOUNTS}/a", b"a: 1\ntoken: abc\n")

    assert patched(world) == {"a": 1, "token": "***"}


@pytest.mark.parametrize("field", sorted(SECRET_FIELDS))
async def test_confidential_fields_are_hidden_in_every_type_of_patch(field: str) -> None:
    """Any value of such a field, at any depth, or set by an operation."""
    world = World({"level": "Request"})
    operation = {"op": "add", "path": f"/spec/{field}", "value": "hunter2"}

    for patch in ({"a": [{field: "hunter2"}]}, {field: {"a": "hunter2"}}, [operation]):
        await world.send("PATCH", f"{ACCOUNTS}/a", json.dumps(patch).encode())

        assert "hunter2" not in json.dumps(world.log.events)
        assert "***" in json.dumps(patched(world))


def test_these_fields_are_confidential() -> None:
    """Names under which clients keep credentials, in whatever they send."""
    expected = {"token", "password", "privateKey", "clientSecret", "stringData"}
    assert expected == SECRET_FIELDS


@pytest.mark.parametrize("credential", [TOKEN, JWT])
async def test_presented_token_is_hidden_wherever_it_is_repeated(credential: str) -> None:
    """A caller who puts their token into every text finds it in none of them."""
    world = World({"level": "RequestResponse"})

    def fail(state: RequestState) -> Response:
        raise NotFound(ErrorSubject("", "serviceaccounts", credential))

    world.answer = fail
    world.acting_as = Impersonated(UserInfo(username="bob", extra={"a": (credential,)}))
    await world.send(
        "PATCH",
        f"{ACCOUNTS}/a?fieldManager={credential}&{credential}",
        json.dumps({"a": {"b": [credential]}, credential: 1}).encode(),
        authorization=f"Bearer {credential}",
        user_agent=credential,
        impersonate_user="bob",
        audit_id=credential,
        x_forwarded_for=credential,
    )

    event = world.log.events[-1]
    assert event["responseStatus"]["details"].pop("name") == credential  # what was not found
    assert event["responseObject"]["details"].pop("name") == credential
    assert event["impersonatedUser"] == {"username": "bob", "extra": {"a": ["***"]}}
    assert credential not in json.dumps(event)
    assert credential.encode() not in world.log.lines[0]


async def test_token_shapes_are_hidden_without_being_presented() -> None:
    """A token or private key that is not the caller's own credential is hidden by its shape."""
    world = World({"level": "Request"})
    body = json.dumps({"metadata": {"annotations": {"a": JWT, "b": KEY}}, "c": "left"}).encode()

    await world.send("PATCH", f"{ACCOUNTS}/a?fieldManager={JWT}", body, user_agent=JWT)

    event = world.log.events[-1]
    assert event["requestURI"] == f"{ACCOUNTS}/a?fieldManager=***"
    assert event["userAgent"] == "***"
    assert patched(world) == {"metadata": {"annotations": {"a": "***", "b": "***\n"}}, "c": "left"}


async def test_nobody_hides_who_they_are_by_presenting_it() -> None:
    """Attributes of the caller stay, even if the caller presents them as a token."""
    world = World()
    world.caller = Authenticated(UserInfo(username="mallory-the-user"))

    await world.send(authorization="Bearer mallory-the-user")
    await world.send(authorization="Bearer sourceIPs")

    assert {event["user"]["username"] for event in world.log.events} == {"mallory-the-user"}
    assert {tuple(event["sourceIPs"]) for event in world.log.events} == {("10.0.0.9",)}


@pytest.mark.parametrize("name", [JWT, TOKEN])
async def test_nobody_hides_behind_a_name_that_looks_like_a_token(name: str) -> None:
    """Users, groups, paths, selectors and names in bodies are never redacted."""
    world = World({"level": "RequestResponse"})
    world.caller = Authenticated(UserInfo(username=name, groups=(name,)))
    world.acting_as = Impersonated(UserInfo(username=name, uid=name, groups=(name,)))
    subject = {"kind": "User", "name": name}
    body = {
        "metadata": {"name": name, "namespace": name, "labels": {name: name}},
        "subjects": [subject],
        "roleRef": subject,
        "rules": [{"resourceNames": [name], "verbs": [name], "resources": [name]}],
        "spec": {"user": name, "groups": [name], "signerName": name},
    }
    operations = [{"op": "replace", "path": "/subjects/0/name", "value": name}]
    target = f"/apis/{name}/v1/namespaces/{name}/{name}/{name}?fieldSelector=metadata.name%3D{name}"
    headers = {"authorization": f"Bearer {name}", "user-agent": name, "impersonate-user": name}

    for sent in (body, operations):
        await world.send("PATCH", target, json.dumps(sent).encode(), **headers)

        event = world.log.events[-1]
        assert event["requestURI"] == target
        assert event["user"] == {"username": name, "groups": [name]}
        assert event["impersonatedUser"] == {"username": name, "uid": name, "groups": [name]}
        assert {event["objectRef"][part] for part in ("namespace", "name", "resource")} == {name}
        assert event["userAgent"] == "***"
        assert patched(world) == sent


async def test_one_who_shows_a_certificate_hides_nothing_by_a_header() -> None:
    """The Authorization header is no credential of theirs: its text hides nothing."""
    world = World()

    await world.send(user_agent="curl-of-mallory", authorization="Bearer curl-of-mallory")
    hidden = world.log.events[-1]["userAgent"]
    for how in ({"certificate": b"der"}, {"sec_websocket_protocol": "x"}):
        more: Any = how
        await world.send(
            user_agent="curl-of-mallory", authorization="Bearer curl-of-mallory", **more
        )

        assert world.log.events[-1]["userAgent"] == "curl-of-mallory"
    assert hidden == "***"


def test_unknown_parameters_lose_their_values() -> None:
    """A secret in a parameter that the API does not know is not recorded."""
    query = "limit=5&access_token=abc&bare&labelSelector=a%3Db"

    shown = shown_uri(HttpRequest("GET", "/x", "/x", query, {}, Peer("10.0.0.9:4000")))

    assert shown == "/x?limit=5&access_token=***&***&labelSelector=a%3Db"
