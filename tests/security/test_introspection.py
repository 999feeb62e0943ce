"""The attack: to learn about tokens of others by introspection, or to pass an invalid token."""

import base64
import json
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from tests.api.world import ADMIN, ALICE, BOB, Answer, Api
from tests.security.certified import cluster_authority, issued
from tests.security.test_revocations import jti_of, revoked
from tests.security.test_revoked_users import allowed, grant

PATH = "/oauth2/introspect"
FORM = {"content-type": "application/x-www-form-urlencoded"}
VAULT, OTHER = "https://vault.example", "https://other.example"
INACTIVE = {"active": False}


async def introspect(
    server: Api, token: str, caller: str | None = ADMIN, body: bytes | None = None, **headers: str
) -> Answer:
    sent = urlencode({"token": token}).encode() if body is None else body
    return await server.call("POST", PATH, sent, token=caller, headers={**FORM, **headers})


async def may_introspect(server: Api, user: str, *audiences: str) -> None:
    rule = allowed("audiences", "introspect", group="identity.orch.io", names=audiences)
    await grant(server, user, rule)


@pytest.fixture
async def robot(server: Api) -> str:
    """The token of an account for two audiences."""
    await server.account("robot")
    return await server.token("robot", audiences=[VAULT, OTHER])


async def test_a_valid_token_is_described(server: Api, robot: str) -> None:
    """By its claims, and by its user as other requests see it; nothing may store the answer."""
    answer = await introspect(server, robot)
    found = answer.json

    assert answer.status == 200
    assert answer.header("cache-control") == "no-store"
    assert found["active"] is True
    assert found["aud"] == [VAULT, OTHER]
    assert found["username"] == found["sub"] == "system:serviceaccount:default:robot"
    assert found["jti"] == jti_of(robot)
    assert found["exp"] > found["iat"]
    assert "system:serviceaccounts" in found["groups"]
    assert found["uid"]


@pytest.mark.parametrize("change", ["revoked", "account", "forged", "opaque", "unreadable"])
async def test_an_invalid_token_is_inactive_and_nothing_more(
    server: Api, robot: str, change: str
) -> None:
    """As soon as a TokenReview would refuse it."""
    token = robot
    if change == "revoked":
        await revoked(server, "leaked", token={"jti": jti_of(robot)})
    elif change == "account":
        await server.call("DELETE", "/api/v1/namespaces/default/serviceaccounts/robot")
    elif change == "forged":
        token = robot[:-8] + "AAAAAAAA"
    elif change == "opaque":
        token = "nonsense"
    else:
        payload = base64.urlsafe_b64encode(b'{"iss":["x"],"aud":{"a":1}}').decode().rstrip("=")
        token = f"e30.{payload}.e30"

    answer = await introspect(server, token)

    assert (answer.status, answer.json) == (200, INACTIVE)


async def test_a_right_on_one_audience_reveals_nothing_about_another(
    server: Api, robot: str
) -> None:
    """The answer names only the audience of the right; a token without it is inactive."""
    await may_introspect(server, "bob", VAULT)
    only_other = await server.token("robot", audiences=[OTHER])
    for_api = await server.token("robot")

    assert (await introspect(server, robot, BOB)).json["aud"] == [VAULT]
    assert (await introspect(server, only_other, BOB)).json == INACTIVE
    assert (await introspect(server, for_api, BOB)).json == INACTIVE
    assert (await introspect(server, "nonsense", BOB)).json == INACTIVE


async def test_a_caller_without_any_right_is_refused_whatever_the_token(
    server: Api, robot: str
) -> None:
    """403, also for a token of the caller."""
    found = [await introspect(server, token, ALICE) for token in (robot, "nonsense", ALICE)]

    assert [one.status for one in found] == [403, 403, 403]
    assert {one.json["error"] for one in found} == {"access_denied"}


async def test_the_right_to_review_tokens_covers_every_audience(server: Api, robot: str) -> None:
    """As for a TokenReview."""
    await grant(server, "bob", allowed("tokenreviews", "create", group="authentication.orch.io"))

    assert (await introspect(server, robot, BOB)).json["aud"] == [VAULT, OTHER]


async def test_the_first_sixteen_audiences_of_a_token_are_checked(server: Api) -> None:
    """Each is a question to the authorizers, and the holder of a token chooses how many."""
    await server.account("robot")
    others = [f"https://{number}.example" for number in range(15)]
    await may_introspect(server, "bob", VAULT)

    last = await server.token("robot", audiences=[*others, VAULT])
    beyond = await server.token("robot", audiences=[*others, OTHER, VAULT])

    assert (await introspect(server, last, BOB)).json["aud"] == [VAULT]
    assert (await introspect(server, beyond, BOB)).json == INACTIVE


def basic(name: str, secret: str) -> str:
    text = f"{quote(name, safe='')}:{quote(secret, safe='')}"
    return f"Basic {base64.b64encode(text.encode()).decode()}"


async def test_a_client_secret_is_a_token_of_the_user_who_is_named(server: Api, robot: str) -> None:
    """In a header or in the form; also of clients that do not encode the colons of the name."""
    await server.account("web")
    own = await server.token("web")
    name = "system:serviceaccount:default:web"
    await may_introspect(server, name, VAULT)
    form = urlencode({"token": robot, "client_id": name, "client_secret": own}).encode()

    raw = base64.b64encode(f"{name}:{own}".encode()).decode()

    header = await introspect(server, robot, None, authorization=basic(name, own))
    unencoded = await introspect(server, robot, None, authorization=f"Basic {raw}")
    posted = await introspect(server, "", None, form)

    for answer in (header, unencoded, posted):
        assert answer.json["active"] is True


async def test_two_credentials_in_one_request_are_refused(server: Api, robot: str) -> None:
    """Else a proxy could look at one, and the server at the other (RFC 6749, section 2.3)."""
    form = urlencode({"token": robot, "client_id": "alice", "client_secret": ALICE}).encode()

    for header in (basic("alice", ALICE), f"Bearer {ALICE}"):
        answer = await introspect(server, "", None, form, authorization=header)

        assert answer.status == 400
        assert answer.json["error"] == "invalid_request"


@pytest.mark.parametrize(
    ("name", "secret"),
    [("admin", ALICE), ("alice", "wrong"), ("", ALICE), ("alice", ""), ("alice ", ALICE)],
)
async def test_a_client_secret_of_somebody_else_is_refused(
    server: Api, robot: str, name: str, secret: str
) -> None:
    """401 with a challenge, in a header and in the form."""
    form = urlencode({"token": robot, "client_id": name, "client_secret": secret}).encode()

    header = await introspect(server, robot, None, authorization=basic(name, secret))
    posted = await introspect(server, "", None, form)

    for answer in (header, posted):
        assert answer.status == 401
        assert answer.json["error"] == "invalid_client"
        assert "Basic" in (answer.header("www-authenticate") or "")


async def test_a_client_secret_for_another_service_is_refused(server: Api, robot: str) -> None:
    """A service could otherwise use the tokens that it receives."""
    name = "system:serviceaccount:default:robot"
    await may_introspect(server, name, VAULT)

    foreign = await introspect(server, robot, None, authorization=basic(name, robot))
    own = await server.token("robot")
    good = await introspect(server, robot, None, authorization=basic(name, own))

    assert (foreign.status, good.status) == (401, 200)


@pytest.mark.parametrize("text", ["", "!!", base64.b64encode(b"no colon").decode(), "a" * 70_000])
async def test_a_malformed_header_is_refused(server: Api, robot: str, text: str) -> None:
    """401; the header of a request is bounded before."""
    answer = await introspect(server, robot, None, authorization=f"Basic {text}")

    assert answer.status in (401, 431)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"token=", 400),
        (b"other=x", 400),
        (b"token=a&token=b", 400),
        (b"token=%FF", 400),
        (b"token", 400),
        (b"\xff\xfe", 400),
        (b"&".join(b"p%d=x" % n for n in range(40)), 400),
        (b"token=" + b"x" * (32 << 10), 400),
    ],
)
async def test_a_malformed_form_is_refused(server: Api, body: bytes, status: int) -> None:
    """With the error of RFC 6749 and a sentence."""
    answer = await introspect(server, "", ADMIN, body)

    assert answer.status == status
    assert answer.json["error"] == "invalid_request"
    assert answer.json["error_description"]


async def test_other_methods_and_media_types_are_refused(server: Api, robot: str) -> None:
    """A token in a query would be in the logs of proxies."""
    got = await server.call("GET", f"{PATH}?token={robot}")
    typed = await server.call("POST", PATH, {"token": robot})

    assert got.status == 405
    assert (typed.status, typed.json["error"]) == (400, "invalid_request")


async def test_a_certificate_authenticates_a_caller(server: Api, robot: str) -> None:
    """With the right of its user."""
    jane = issued(cluster_authority(server.server.files.path), "jane")
    await may_introspect(server, "jane", VAULT)
    body = urlencode({"token": robot}).encode()

    answer = await server.call("POST", PATH, body, token=None, peer=jane.peer, headers=FORM)

    assert answer.json["active"] is True


async def test_a_static_token_is_described_without_claims(server: Api) -> None:
    """It has a user and the audiences of the API."""
    answer = await introspect(server, ALICE)

    assert answer.json["username"] == "alice"
    assert "exp" not in answer.json


async def test_the_metadata_name_the_endpoint(server: Api) -> None:
    """A client configures itself from them, without a credential."""
    answer = await server.call("GET", "/.well-known/oauth-authorization-server", token=None)
    found: dict[str, Any] = json.loads(answer.body)
    openid = (await server.call("GET", "/.well-known/openid-configuration")).json

    assert answer.status == 200
    assert found["issuer"] == openid["issuer"]
    assert found["jwks_uri"] == openid["jwks_uri"]
    assert found["introspection_endpoint"] == f"{openid['issuer']}{PATH}"
    assert "client_secret_basic" in found["introspection_endpoint_auth_methods_supported"]
