"""TokenReview and SelfSubjectReview: the answers to the letter, for good tokens and bad."""

import datetime
import time

import pytest

from orchid.features.accounts.kinds import token_review
from orchid.features.accounts.kinds.token_review import (
    ReviewToken,
    TokenReview,
    TokenReviewSpec,
    TokenReviewStatus,
)
from orchid.features.sign_in.kinds import self_subject_review
from orchid.features.sign_in.kinds.self_subject_review import (
    SelfSubjectReview,
    SelfSubjectReviewStatus,
)
from orchid.kernel.engine.interfaces import Authenticated, Rejected
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.wire.codec.documents import encode
from orchid.kernel.wire.errors import BadRequest, InternalError
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import UserInfo

API = ("https://orchid.test",)
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=datetime.UTC)
JANE = UserInfo("jane", "u-1", ("devs", "system:authenticated"), {"k": ("v",)})
REQUEST = Request(Target("create"), JANE, NOW)


class Tokens:
    """Knows `good`, refuses `bad` and `worse`, has never heard of anything else."""

    def __init__(self, audiences: tuple[str, ...] | None = None) -> None:
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self._audiences = audiences

    async def authenticate_token(
        self, token: str, audiences: tuple[str, ...]
    ) -> Authenticated | None:
        self.asked.append((token, audiences))
        if token == "bad":
            raise Rejected("service account token has expired")
        if token == "worse":
            raise Rejected("too old", "too odd")
        return Authenticated(JANE, self._audiences or audiences) if token == "good" else None


async def review(
    token: str,
    *audiences: str,
    tokens: Tokens | None = None,
    status: TokenReviewStatus | None = None,
) -> TokenReview:
    sent = TokenReview(spec=TokenReviewSpec(token, audiences), status=status or TokenReviewStatus())
    return await ReviewToken(tokens or Tokens(), API).create(sent, REQUEST)


async def test_a_valid_token_returns_user_and_audiences() -> None:
    """The answer's bytes: spec as sent, then the status."""
    assert encode(await review("good")) == (
        b'{"metadata":{},"spec":{"token":"good"},"status":{"authenticated":true,'
        b'"user":{"username":"jane","uid":"u-1","groups":["devs","system:authenticated"],'
        b'"extra":{"k":["v"]}},"audiences":["https://orchid.test"]}}'
    )


@pytest.mark.parametrize(
    ("token", "error"),
    [
        ("unknown", "invalid bearer token"),
        ("bad", "[invalid bearer token, service account token has expired]"),
        ("worse", "[invalid bearer token, too old, too odd]"),
    ],
)
async def test_refused_token_is_a_normal_answer_with_the_reason(token: str, error: str) -> None:
    """`authenticated` is left out, `user` is there and empty."""
    found = await review(token)

    assert encode(found).endswith(b'"status":{"user":{},"error":"%b"}}' % error.encode())


async def test_wanted_audiences_default_to_the_apis() -> None:
    """And those that were asked for are handed on as they are."""
    tokens = Tokens()

    await review("good", tokens=tokens)
    await review("good", "x", "y", tokens=tokens)

    assert tokens.asked == [("good", API), ("good", ("x", "y"))]


async def test_shared_audiences_come_in_the_order_asked() -> None:
    """Those of the token that were wanted, repeats kept."""
    found = await review("good", "b", "x", "a", "b", tokens=Tokens(("a", "b")))

    assert found.status.audiences == ("b", "a", "b")


async def test_authenticator_that_overlooks_the_audiences_is_an_error_of_ours() -> None:
    """A verdict for nobody who was asked for is never passed on as a yes."""
    with pytest.raises(InternalError):
        await review("good", "x", tokens=Tokens(("a",)))


@pytest.mark.parametrize("token", ["", " ", "\t\r\n  "])
async def test_blank_token_is_refused_and_never_anonymous(token: str) -> None:
    """400: there is nothing to review."""
    tokens = Tokens()

    with pytest.raises(BadRequest, match="token is required for TokenReview in authentication"):
        await review(token, tokens=tokens)

    assert tokens.asked == []


@pytest.mark.parametrize("token", [" good", "good\n", "\tgood ", "good evil"])
async def test_token_is_trimmed_and_its_first_word_judged(token: str) -> None:
    """As in an Authorization header; the spec comes back as it was sent."""
    found = await review(token)

    assert found.status.authenticated
    assert found.spec.token == token


async def test_status_of_the_client_never_counts_as_ours() -> None:
    """A client that says it is authenticated is not."""
    sent = TokenReviewStatus(authenticated=True, user=UserInfo("root"), error="none")

    refused = await review("unknown", status=sent)
    accepted = await review("good", status=sent)

    assert refused.status == TokenReviewStatus(error="invalid bearer token")
    assert accepted.status.user == JANE
    assert accepted.status.error == ""


async def test_a_self_review_returns_the_caller_and_ignores_the_body() -> None:
    """A new object: creation time and user, in whole seconds."""
    sent = SelfSubjectReview(
        kind="SelfSubjectReview",
        api_version="authentication.orch.io/v1",
        metadata=ObjectMeta(name="x", labels={"a": "b"}),
        status=SelfSubjectReviewStatus(UserInfo("root")),
    )
    kind = self_subject_review.declare(ORCH)
    assert kind.acts is not None

    answer = await kind.acts.create(sent, REQUEST)

    assert encode(answer) == (
        b'{"kind":"SelfSubjectReview","apiVersion":"authentication.orch.io/v1",'
        b'"metadata":{"creationTimestamp":"2026-01-02T03:04:05Z"},"status":{"userInfo":'
        b'{"username":"jane","uid":"u-1","groups":["devs","system:authenticated"],'
        b'"extra":{"k":["v"]}}}}'
    )


def test_declarations_store_nothing_and_only_create() -> None:
    """All act; none can be listed, read or changed."""
    for kind in (
        self_subject_review.declare(ORCH),
        *token_review.declare(ORCH, Tokens(), API, time.monotonic),
    ):
        assert kind.verbs == ("create",)
        assert kind.acts is not None
        assert kind.group in ("authentication.orch.io", "identity.orch.io")
