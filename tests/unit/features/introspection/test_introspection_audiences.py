"""Introspection of tokens of other issuers: their audiences mean nothing to this server."""

import base64
import json
from typing import Any

from orchid.features.introspection.callers import Callers
from orchid.features.introspection.introspection import Introspection
from orchid.kernel.engine.interfaces import Authenticated, Decision, Verdict
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import UserInfo

API = ("https://orchid.test",)
USER = UserInfo(username="jane")


class Tokens:
    """Accept every token, for the audiences that are asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    async def authenticate_token(self, token: str, audiences: tuple[str, ...]) -> Authenticated:
        self.asked.append(audiences)
        return Authenticated(USER, audiences)


class Rights:
    """Allow one audience."""

    def __init__(self, audience: str) -> None:
        self._audience = audience

    async def authorize(self, user: UserInfo, target: Target) -> Decision:
        is_allowed = target.name == self._audience
        return Decision(Verdict.ALLOW if is_allowed else Verdict.NO_OPINION)

    def rules_for(self, user: UserInfo, namespace: str) -> Any:
        raise AssertionError("only for an inactive token")


def token_of(issuer: str) -> str:
    payload = json.dumps({"iss": issuer, "aud": "https://vault.example"}).encode()
    return f"e30.{base64.urlsafe_b64encode(payload).decode().rstrip('=')}.e30"


async def introspected(issuer: str, right: str) -> tuple[Any, list[tuple[str, ...]]]:
    tokens = Tokens()
    page = Introspection(
        ORCH,
        Callers(tokens, API),
        tokens,
        Rights(right),
        issuers=("https://ours.example",),
        api_audiences=API,
    )
    return json.loads(await page._introspected(USER, token_of(issuer))), tokens.asked


async def test_a_token_of_another_issuer_is_for_this_server_only() -> None:
    """Its claim `aud` is for its issuer; only ours names services that a right is granted for."""
    ours, asked = await introspected("https://ours.example", "https://vault.example")
    assert (ours["aud"], asked) == (["https://vault.example"], [("https://vault.example",)])

    other, asked = await introspected("https://other.example", "https://orchid.test")
    assert (other["aud"], asked) == ([*API], [API])
