"""Tokens reviewed by a webhook, and the lifetime of its cached answers."""

import asyncio
import datetime
import json
from typing import Any

import pytest

from orchid.features.revocation.revocations import Revocations
from orchid.features.sign_in.authenticators import webhook_token
from orchid.features.sign_in.authenticators.webhook_token import (
    MOST_AT_ONCE,
    WebhookTimes,
    WebhookTokenAuthenticator,
)
from orchid.kernel.engine.interfaces import Rejected
from orchid.kernel.outbound.failures import CallFailed, ServerUnreachable
from orchid.kernel.wire.naming import KUBERNETES, ORCH
from orchid.kernel.wire.revoked_credentials import RevokedCertificate, RevokedToken, RevokedUser
from tests.unit.kernel.access.presenting import API, START, FakeClock
from tests.unit.kernel.access.world import REVOCABLE, revocation, world_of

JANE = {
    "authenticated": True,
    "user": {"username": "jane", "uid": "u-1", "groups": ["devs"], "extra": {"k": ["v"]}},
}


class Remote:
    """Answers with a status, or fails."""

    def __init__(self, status: Any = None, failure: CallFailed | None = None) -> None:
        self.status = status
        self.failure = failure
        self.sent: list[dict[str, Any]] = []

    async def post(self, body: bytes) -> bytes:
        self.sent.append(json.loads(body))
        if self.failure:
            raise self.failure
        if isinstance(self.status, bytes):
            return self.status
        return json.dumps({"kind": "TokenReview", "status": self.status}).encode()


def authenticator(
    remote: Remote, clock: FakeClock | None = None, times: WebhookTimes | None = None
) -> WebhookTokenAuthenticator:
    times = times or WebhookTimes()
    return WebhookTokenAuthenticator(remote.post, clock or FakeClock(), API, ORCH, times)


async def test_answer_makes_the_user() -> None:
    """Name, uid, groups and extra are taken over; no audiences mean the API's own."""
    remote = Remote(JANE)

    found = await authenticator(remote).authenticate_token("t", API)

    assert found is not None
    assert found.user.username == "jane"
    assert found.user.groups == ("devs",)
    assert found.user.extra == {"k": ("v",)}
    assert found.audiences == API
    assert remote.sent[0]["spec"] == {"token": "t", "audiences": list(API)}
    assert remote.sent[0]["apiVersion"] == "authentication.orch.io/v1"


async def test_kubernetes_naming_speaks_to_stock_webhooks() -> None:
    """With that naming the review carries the group that they expect."""
    remote = Remote(JANE)
    tokens = WebhookTokenAuthenticator(remote.post, FakeClock(), API, KUBERNETES)

    await tokens.authenticate_token("t", API)

    assert remote.sent[0]["apiVersion"] == "authentication.k8s.io/v1"


async def test_foreign_audiences_are_a_plain_no() -> None:
    """A token that the webhook accepts for others is not good here."""
    remote = Remote({**JANE, "audiences": ["elsewhere"]})

    assert await authenticator(remote).authenticate_token("t", API) is None


async def test_refusal_with_a_reason_gives_the_reason_without_control_characters() -> None:
    """The remote's words reach the review, short and printable."""
    remote = Remote({"authenticated": False, "error": "gone\r\nSet-Cookie: x" + "y" * 999})

    with pytest.raises(Rejected) as refusal:
        await authenticator(remote).authenticate_token("t", API)

    assert str(refusal.value).startswith("goneSet-Cookie")
    assert len(str(refusal.value)) <= 256


async def test_yes_and_no_are_remembered_for_their_own_times() -> None:
    """After its time the remote is asked again."""
    clock = FakeClock()
    times = WebhookTimes(datetime.timedelta(seconds=60), datetime.timedelta(seconds=5))
    yes, no = Remote(JANE), Remote({"authenticated": False})
    good, bad = authenticator(yes, clock, times), authenticator(no, clock, times)

    for seconds in (0, 4, 4, 51, 2):
        clock.advance(seconds)
        assert await good.authenticate_token("t", API) is not None
        assert await bad.authenticate_token("t", API) is None

    assert len(yes.sent) == 2
    assert len(no.sent) == 3


async def test_verdict_for_one_audience_is_not_used_for_another() -> None:
    """The cache key is token and audiences together."""
    remote = Remote(JANE)
    tokens = authenticator(remote)

    await tokens.authenticate_token("t", API)
    await tokens.authenticate_token("t", (*API, "x"))
    await tokens.authenticate_token("u", API)

    assert len(remote.sent) == 3


async def test_failures_are_refusals_and_never_remembered() -> None:
    """An unreachable webhook accepts nobody, and is asked again at once."""
    remote = Remote(failure=ServerUnreachable("connection failed: refused"))
    tokens = authenticator(remote)

    for _ in range(2):
        with pytest.raises(Rejected, match="webhook token review failed"):
            await tokens.authenticate_token("t", API)

    assert len(remote.sent) == 2


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"nonsense s3cret", b'{"status":{"authenticated":"yes"}}', b"\xff"]
)
async def test_answer_that_is_no_review_is_a_refusal_that_quotes_nothing(body: bytes) -> None:
    """Whatever comes back, the token and the answer stay out of the text."""
    with pytest.raises(Rejected) as refusal:
        await authenticator(Remote(body)).authenticate_token("s3cret", API)

    assert "s3cret" not in str(refusal.value)


async def test_token_is_kept_nowhere() -> None:
    """The cache key is a keyed hash."""
    tokens = authenticator(Remote(JANE))

    await tokens.authenticate_token("s3cret-token", API)

    assert "s3cret" not in repr(vars(tokens))


async def test_text_that_cannot_be_sent_is_a_refusal() -> None:
    """Half a surrogate pair is no token."""
    with pytest.raises(Rejected):
        await authenticator(Remote(JANE)).authenticate_token("\ud800", API)


async def test_clock_that_steps_back_does_not_lengthen_a_verdict() -> None:
    """A yes of before the step is asked for again, or it would be good for an hour more."""
    remote, clock = Remote(JANE), FakeClock()
    webhook = authenticator(remote, clock)
    await webhook.authenticate_token("t", API)
    clock.advance(-3600)

    await webhook.authenticate_token("t", API)

    assert len(remote.sent) == 2


async def test_strangers_do_not_have_us_open_connections_without_number() -> None:
    """Beyond a limit, those who bring unknown tokens wait for their turn, and all get it."""
    under_way, most = 0, 0
    gate = asyncio.Event()

    async def post(body: bytes) -> bytes:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await gate.wait()
        under_way -= 1
        return b'{"status":{"authenticated":false}}'

    webhook = WebhookTokenAuthenticator(post, FakeClock(), API, ORCH)
    asking = [
        asyncio.create_task(webhook.authenticate_token(f"t{i}", API))
        for i in range(3 * MOST_AT_ONCE)
    ]
    await asyncio.sleep(0)
    assert under_way == MOST_AT_ONCE
    gate.set()

    assert await asyncio.gather(*asking) == [None] * len(asking)
    assert most == MOST_AT_ONCE


async def test_ever_new_tokens_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a number the oldest verdict is forgotten, and asked for again."""
    monkeypatch.setattr(webhook_token, "MOST_CACHED", 3)
    remote = Remote(JANE)
    tokens = authenticator(remote)

    for name in ("a", "b", "c", "d"):
        await tokens.authenticate_token(name, API)
    await tokens.authenticate_token("d", API)
    await tokens.authenticate_token("a", API)

    assert [sent["spec"]["token"] for sent in remote.sent] == ["a", "b", "c", "d", "a"]
    assert len(tokens._cache) == 3


@pytest.mark.parametrize(
    ("named", "target"),
    [
        ("JTI=j-1", RevokedToken(jti="j-1")),
        (f"X509SHA256={'a' * 64}", RevokedCertificate(sha256="a" * 64)),
        ("JTI=j-1", RevokedUser(username="jane", issued_before=START)),
    ],
)
async def test_a_revoked_credential_is_refused_though_the_answer_is_remembered(
    named: str, target: RevokedToken | RevokedCertificate | RevokedUser
) -> None:
    """By the id or the user in the answer; the other server may know nothing of our revocations."""
    user = {"username": "jane", "extra": {ORCH.credential_id: [named]}}
    remote = Remote({"authenticated": True, "user": user})
    async with world_of(*REVOCABLE) as here:
        tokens = WebhookTokenAuthenticator(
            remote.post, here.clock, API, ORCH, revocations=Revocations(here.feed)
        )
        assert await tokens.authenticate_token("t", API) is not None

        await here.put(revocation("r", target))

        with pytest.raises(Rejected, match=r"ha(s|ve) been revoked"):
            await tokens.authenticate_token("t", API)
    assert len(remote.sent) == 1
