"""Introspection: which right answers for which audience, and what the answer has."""

import base64
import json
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest

from orchid.features.introspection.callers import Callers
from orchid.features.introspection.forms import FORM, OAuthRefusal
from orchid.features.introspection.introspection import (
    MOST_AUDIENCES,
    Introspection,
    audiences_of,
    unverified_claims,
)
from orchid.kernel.engine.interfaces import Authenticated, Decision, Rejected, Verdict
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import UserInfo
from tests.unit.kernel.server.request_states import state_of

OURS, API, VAULT = "https://ours.example", "https://orchid.test", "https://vault.example"
CALLER = UserInfo(username="web")
USER = UserInfo(username="jane", uid="u1", groups=("dev",))
REVIEW = "create tokenreviews"


def token_of(**claims: Any) -> str:
    payload = json.dumps({"iss": OURS, "aud": [VAULT], **claims}).encode()
    return f"e30.{base64.urlsafe_b64encode(payload).decode().rstrip('=')}.e30"


class Tokens:
    """A token that is valid for some audiences, or refused."""

    def __init__(self, *, refuses: bool = False, found: Any = None) -> None:
        self.asked: list[tuple[str, ...]] = []
        self._refuses, self._found = refuses, found

    async def authenticate_token(self, token: str, audiences: tuple[str, ...]) -> Any:
        self.asked.append(audiences)
        if self._refuses:
            raise Rejected("expired")
        return self._found or Authenticated(USER, audiences)


class Rights:
    """Allows the given `verb name`, and lists the given rules."""

    def __init__(self, *allowed: str, rules: Any = (), incomplete: bool = False) -> None:
        self._allowed, self.asked = allowed, list[Target]()
        self._listed = SimpleNamespace(resource_rules=rules, incomplete=incomplete)

    async def authorize(self, user: UserInfo, target: Target) -> Decision:
        assert user == CALLER
        self.asked.append(target)
        right = f"{target.verb} {target.name or target.resource}"
        return Decision(Verdict.ALLOW if right in self._allowed else Verdict.NO_OPINION)

    def rules_for(self, user: UserInfo, namespace: str) -> Any:
        assert (user, namespace) == (CALLER, "")
        return self._listed


def page(tokens: Tokens, rights: Any) -> Introspection:
    known: Any = tokens
    return Introspection(
        ORCH, Callers(known, (API,)), known, rights, issuers=(OURS,), api_audiences=(API,)
    )


async def introspected(rights: Rights, token: str, tokens: Tokens | None = None) -> Any:
    used = tokens or Tokens()
    return json.loads(await page(used, rights)._introspected(CALLER, token)), used.asked


async def test_a_reviewer_introspects_every_token() -> None:
    """Asked once, for all audiences of the token; without any, for the API."""
    rights = Rights(REVIEW)

    answer, asked = await introspected(rights, token_of(aud=[VAULT, "other", 7]))
    _, other = await introspected(rights, token_of(aud=None))

    assert (answer["aud"], asked, other) == ([VAULT, "other"], [(VAULT, "other")], [(API,)])
    review = rights.asked[0]
    assert (review.group, review.version, review.is_resource) == (ORCH.authentication, "v1", True)


async def test_another_caller_introspects_the_audiences_it_may() -> None:
    rights = Rights(f"introspect {VAULT}")

    answer, asked = await introspected(rights, token_of(aud=["other", VAULT]))

    assert (answer["active"], asked) == (True, [(VAULT,)])
    right = rights.asked[-1]
    assert (right.group, right.resource, right.verb) == (ORCH.identity, "audiences", "introspect")


def rule(**fields: list[str]) -> Any:
    whole = {"verbs": ["introspect"], "api_groups": [ORCH.identity], "resources": ["audiences"]}
    return SimpleNamespace(**{**whole, **fields})


@pytest.mark.parametrize(
    ("rights", "is_refused"),
    [
        (Rights(), True),
        (Rights(rules=[rule()]), False),
        (Rights(rules=[rule(verbs=["get"])]), True),
        (Rights(rules=[rule(api_groups=["x"])]), True),
        (Rights(rules=[rule(resources=["pods"])]), True),
        (Rights(rules=[rule(verbs=["*"], api_groups=["*"], resources=["*"])]), False),
        (Rights(rules=[rule(verbs=["get"]), rule()]), False),
        (Rights(incomplete=True), False),
    ],
)
async def test_only_a_caller_without_any_right_is_refused(rights: Rights, is_refused: bool) -> None:
    """Others learn nothing of a token that is not for them."""
    if not is_refused:
        assert await introspected(rights, token_of()) == ({"active": False}, [])
        return
    with pytest.raises(OAuthRefusal) as refusal:
        await introspected(rights, token_of())
    assert (refusal.value.status, refusal.value.code) == (403, "access_denied")


async def test_an_invalid_token_is_inactive() -> None:
    """For a reviewer and for one who may introspect its audience alike."""
    for rights in (Rights(REVIEW), Rights(f"introspect {VAULT}", rules=[rule()])):
        answer, asked = await introspected(rights, token_of(), Tokens(refuses=True))
        assert (answer, asked) == ({"active": False}, [(VAULT,)])


async def test_the_answer_has_the_claims_and_the_user() -> None:
    claims = {"sub": "s", "exp": 9, "iat": 1, "nbf": 2, "jti": "j", "act": {}, "cnf": {}, "x": 1}

    answer, _ = await introspected(Rights(REVIEW), token_of(**claims))

    del claims["x"]
    assert answer == {
        **claims,
        "iss": OURS,
        "aud": [VAULT],
        "active": True,
        "token_type": "Bearer",
        "username": "jane",
        "uid": "u1",
        "groups": ["dev"],
    }
    plain = Tokens(found=Authenticated(UserInfo(username="bob"), None))
    answer, _ = await introspected(Rights(REVIEW), token_of(), plain)
    assert (answer["aud"], answer["username"]) == ([VAULT], "bob")
    assert not {"uid", "groups"} & answer.keys()


async def test_a_request_needs_a_token() -> None:
    exchange = state_of(
        "POST",
        "/oauth2/introspect",
        urlencode({"token": " "}).encode(),
        content_type=FORM,
        user="web",
    )

    with pytest.raises(OAuthRefusal) as refusal:
        await page(Tokens(), Rights(REVIEW))(exchange)
    assert (refusal.value.status, refusal.value.code) == (400, "invalid_request")


async def test_the_answer_is_not_stored() -> None:
    body = urlencode({"token": token_of()}).encode()
    exchange = state_of("POST", "/oauth2/introspect", body, content_type=FORM, user="web")

    answer = await page(Tokens(), Rights(REVIEW))(exchange)

    assert answer.status == 200
    assert b"no-store" in answer.headers
    assert json.loads(answer.body)["active"]


@pytest.mark.parametrize("token", ["", "a.b", "a.b.c.d", "e30.!.e30", "e30.W10.e30", "e30.e3.e30"])
def test_what_is_no_token_has_no_claims(token: str) -> None:
    assert unverified_claims(token) == {}


def test_audiences_are_texts_and_few() -> None:
    assert audiences_of({}) == ()
    assert audiences_of({"aud": "one"}) == ("one",)
    assert audiences_of({"aud": {"a": 1}}) == ()
    many = [str(number) for number in range(MOST_AUDIENCES + 1)]
    assert audiences_of({"aud": many}) == tuple(many[:-1])
