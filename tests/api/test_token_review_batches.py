"""TokenReviewBatch: many tokens in one call, with the results of as many TokenReviews."""

import asyncio
import itertools
from typing import Any

import pytest

from orchid.features.accounts.kinds.token_review import (
    ReviewToken,
    ReviewTokens,
    TokenReviewBatchSpec,
    TokenReviewStatus,
)
from orchid.kernel.engine.interfaces import Authenticated
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.user import UserInfo
from tests.api.world import ADMIN, ALICE, BOB, Api
from tests.security.test_revocations import jti_of, revoked
from tests.security.test_revoked_users import allowed, grant

BATCHES = "/apis/identity.orch.io/v1alpha1/tokenreviewbatches"
REVIEWS = "/apis/authentication.orch.io/v1/tokenreviews"


async def batch(server: Api, *tokens: str, audiences: tuple[str, ...] = ()) -> list[Any]:
    body = {"spec": {"tokens": [*tokens], "audiences": [*audiences]}}
    answer = await server.call("POST", BATCHES, body)
    assert answer.status == 201, answer.text
    results: list[Any] = answer.json["status"]["results"]
    return results


async def singly(server: Api, token: str, audiences: tuple[str, ...] = ()) -> Any:
    body = {"spec": {"token": token, "audiences": [*audiences]}}
    answer = await server.call("POST", REVIEWS, body)
    found = answer.json
    return found["status"] if answer.status == 201 else {"user": {}, "error": found["message"]}


@pytest.mark.parametrize("audiences", [(), ("x",), ("https://orchid.test", "x")])
async def test_a_batch_has_the_results_of_single_reviews(
    server: Api, audiences: tuple[str, ...]
) -> None:
    """Word for word and in their order: a bad token changes its own result only."""
    await server.account("robot")
    good, gone = await server.token("robot"), await server.token("robot")
    other = await server.token("robot", audiences=["x"])
    await revoked(server, "gone", token={"jti": jti_of(gone)})
    tokens = [
        good, ALICE, "", "\t \r\n", gone, other, "nonsense", "a.b.c", good[:-4] + "AAAA",
        f" {good} x", good, "abcdef.0123456789abcdef", "\ud7ff", "x" * 5000,
    ]  # fmt: skip

    assert await batch(server, *tokens, audiences=audiences) == [
        await singly(server, token, audiences) for token in tokens
    ]


async def test_equal_tokens_are_reviewed_once(server: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their results are equal, too."""
    await server.account("robot")
    token = await server.token("robot")
    tokens, asked = server.server.context.tokens, []
    original = type(tokens).authenticate_token

    async def counting(self: Any, token: str, audiences: tuple[str, ...]) -> Any:
        asked.append(token)
        return await original(self, token, audiences)

    monkeypatch.setattr(type(tokens), "authenticate_token", counting)
    results = await batch(server, *[token] * 500)

    assert len(results) == 500
    assert all(one["authenticated"] for one in results)
    assert asked.count(token) == 1


async def test_a_token_that_cannot_be_reviewed_fails_alone(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an authenticator that answers with audiences that nobody asked for."""
    tokens = server.server.context.tokens
    original = type(tokens).authenticate_token

    async def failing(self: Any, token: str, audiences: tuple[str, ...]) -> Any:
        if token == "broken":
            return Authenticated(UserInfo(username="x"), ("another",))
        return await original(self, token, audiences)

    monkeypatch.setattr(type(tokens), "authenticate_token", failing)
    broken, good = await batch(server, "broken", ALICE)

    assert "error validating audiences" in broken["error"]
    assert good["authenticated"] is True


async def test_other_requests_are_served_between_the_tokens_of_a_batch() -> None:
    """Every five milliseconds."""
    other = asyncio.Event()
    nobody: Any = None

    class Busy(ReviewToken):
        async def review(self, text: str, audiences: tuple[str, ...]) -> TokenReviewStatus:
            return TokenReviewStatus(error="served" if other.is_set() else "alone")

    async def serve() -> None:
        other.set()

    reviews = ReviewTokens(Busy(nobody, ()), "", itertools.count(0, 0.004).__next__)
    serving = asyncio.create_task(serve())
    found = await reviews._results(("a", "b", "c", "d"), ())
    await serving

    assert [one.error for one in found.values()] == ["alone", "alone", "served", "served"]


async def test_a_batch_has_one_to_a_thousand_tokens(server: Api) -> None:
    """Each with the field and the limit."""
    none = await server.call("POST", BATCHES, {"spec": {"tokens": []}})
    many = await server.call("POST", BATCHES, {"spec": {"tokens": ["x"] * 1001}})

    assert none.status == 422
    assert "spec.tokens: Required value" in none.json["message"]
    assert many.status == 400
    assert ".spec.tokens: there may be at most 1000 items" in many.json["message"]


async def test_a_batch_has_at_most_two_mebibytes(server: Api) -> None:
    """413 for more; a thousand long tokens fit."""
    long = await server.call("POST", BATCHES, {"spec": {"tokens": ["x" * 2000] * 1000}})
    longer = await server.call("POST", BATCHES, {"spec": {"tokens": ["x" * 2200] * 1000}})

    assert (long.status, longer.status) == (201, 413)


@pytest.mark.parametrize(
    ("rule", "status"),
    [
        (allowed("tokenreviews", "create", group="authentication.orch.io"), 201),
        (allowed("tokenreviewbatches", "create", group="identity.orch.io"), 201),
        (allowed("tokenreviews", "get", group="authentication.orch.io"), 403),
        (allowed("subjectaccessreviews", "create", group="authorization.orch.io"), 403),
    ],
)
async def test_the_right_to_review_tokens_is_enough(
    server: Api, rule: dict[str, Any], status: int
) -> None:
    """A batch returns nothing that single reviews would not."""
    await grant(server, "bob", rule)

    answer = await server.call("POST", BATCHES, {"spec": {"tokens": [ADMIN]}}, token=BOB)

    assert answer.status == status, answer.text


async def test_the_tokens_of_a_batch_are_confidential(server: Api) -> None:
    """No audit record and no log line has them, like the token of a TokenReview."""
    target = Target(
        "create", is_resource=True, group="identity.orch.io", resource="tokenreviewbatches"
    )

    assert server.server.catalog.is_confidential(target)
    assert ADMIN not in repr(TokenReviewBatchSpec(tokens=(ADMIN,)))


@pytest.mark.parametrize(("tokens", "seats"), [(1, 1), (100, 1), (101, 2), (1000, 10)])
async def test_a_batch_has_a_seat_for_every_hundred_tokens(
    server: Api, monkeypatch: pytest.MonkeyPatch, tokens: int, seats: int
) -> None:
    """Its caller cannot have as many batches at a time as single reviews."""
    await grant(server, "bob", allowed("tokenreviews", "create", group="authentication.orch.io"))
    taken = []
    original = ReviewToken.review

    async def watched(self: ReviewToken, text: str, audiences: tuple[str, ...]) -> Any:
        taken.append(sum(level.taken for level in server.server.fairness.levels.values()))
        return await original(self, text, audiences)

    monkeypatch.setattr(ReviewToken, "review", watched)
    body = {"spec": {"tokens": [f"token-{number}" for number in range(tokens)]}}
    answer = await server.call("POST", BATCHES, body, token=BOB)

    assert answer.status == 201
    assert set(taken) == {seats}
    assert sum(level.taken for level in server.server.fairness.levels.values()) == 0
