"""A token of an account: kept while it is for the right audience and accepted."""

import base64
import datetime
import json
from types import SimpleNamespace
from typing import cast

import pytest

from orchid.features.hosts.agent.calls import ApiRefused, Clocks, IdentityRefused
from orchid.features.hosts.agent.outputs.content import Round
from orchid.features.hosts.agent.outputs.token import fresh_token, token_life

NEW = b"new"
NOW = 1_800_000_000.0


def token(audience: str | list[str], parts: int = 3, lasts: float = 3600.0) -> bytes:
    times = json.dumps({"iat": NOW, "exp": NOW + lasts, "aud": audience}).encode()
    payload = base64.urlsafe_b64encode(times).rstrip(b"=")
    return b".".join((b"e30", payload, b"c2ln", b"more")[:parts])


class Calls:
    """A server that judges a token, or refuses to, and then issues another one."""

    naming = SimpleNamespace(authentication="authentication.orch.io")

    def __init__(self, judgement: object) -> None:
        self._judgement = judgement
        self.bodies: list[dict[str, dict[str, object]]] = []

    def group(self, *parts: str) -> str:
        return "/".join(parts)

    def post(self, url: str, body: dict[str, dict[str, object]]) -> dict[str, object]:
        self.bodies.append(body)
        if url.endswith("/token"):
            return {"status": {"token": NEW.decode()}}
        if isinstance(self._judgement, Exception):
            raise self._judgement
        return {"status": self._judgement}


def current(calls: Calls) -> Round:
    clocks = Clocks(lambda: datetime.datetime.fromtimestamp(NOW, datetime.UTC))
    identity = SimpleNamespace(host="")
    return cast(Round, SimpleNamespace(calls=calls, clocks=clocks, identity=identity))


def kept(held: bytes, judgement: object, audience: str = "vault") -> bool:
    return fresh_token(held, current(Calls(judgement)), "web/front", audience, 0) == held


@pytest.mark.parametrize(
    ("held", "audience", "is_readable"),
    [
        (token("vault"), "vault", True),
        (token(["vault", "other"]), "vault", True),
        (token("other"), "vault", False),
        (token("vaults"), "vault", False),
        (token(["other"]), "vault", False),
        (token("other"), "", True),
        (token("vault", parts=2), "vault", False),
        (token("vault", parts=4), "vault", False),
        (b"", "vault", False),
    ],
)
def test_a_token_has_three_parts_and_the_audience(
    held: bytes, audience: str, is_readable: bool
) -> None:
    """One for this server has whatever audience the server gave it."""
    assert (token_life(held, audience) is not None) == is_readable


@pytest.mark.parametrize(
    ("held", "judgement", "is_kept"),
    [
        (token("vault"), {"authenticated": True}, True),
        (token("vault"), ApiRefused(403, "may not ask"), True),
        (token("vault"), {"authenticated": False}, False),
        (token("vault"), {"authenticated": "true"}, False),
        (token("vault"), {}, False),
        (token("vault"), None, False),
        (token("vault", lasts=-1.0), {"authenticated": True}, False),
        (token("other"), {"authenticated": True}, False),
    ],
)
def test_a_token_is_kept_while_it_is_accepted(
    held: bytes, judgement: object, is_kept: bool
) -> None:
    """An agent that may not ask keeps it; one that is due or for another audience is replaced."""
    assert kept(held, judgement) == is_kept


@pytest.mark.parametrize(
    "failure", [ApiRefused(500, "broken"), ApiRefused(429, "busy"), IdentityRefused(401, "who?")]
)
def test_a_server_that_cannot_judge_has_not_accepted(failure: Exception) -> None:
    """The round fails and is repeated; the file stays as it is until then."""
    with pytest.raises(ApiRefused):
        kept(token("vault"), failure)


@pytest.mark.parametrize(("audience", "spec"), [("vault", {"audiences": ["vault"]}), ("", {})])
def test_the_server_judges_for_the_audience(audience: str, spec: dict[str, object]) -> None:
    """Without one, for itself."""
    calls, held = Calls({"authenticated": True}), token("vault")

    fresh_token(held, current(calls), "web/front", audience, 0)

    assert [body["spec"] for body in calls.bodies] == [{"token": held.decode(), **spec}]
