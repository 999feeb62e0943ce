"""TokenReview: authenticates a token and returns its user and audiences. TokenReviewBatch: many.

Uses the authenticators of the server. A refused token is a normal response: `authenticated` is
missing and `error` has the reason. A review never results in the anonymous user: a blank token is
a bad request.

The results of a batch are those of a TokenReview of each token, word for word: a bad token changes
its own result only. Equal tokens are reviewed once. A batch has one seat
(kernel/server/fairness.py) for every 100 tokens, and other requests are served between its
portions.
"""

import asyncio
from collections.abc import Callable
from typing import Annotated, Final

from msgspec import field

from orchid.kernel.base.scheduling.seat import SEAT
from orchid.kernel.engine.interfaces import Authenticated, Rejected, TokenAuthenticator
from orchid.kernel.engine.kind import LARGEST_REVIEW, Kind, Scope
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.errors import BadRequest, ErrorSubject, InternalError, Invalid
from orchid.kernel.wire.fields import Path, required
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.struct import Wire, at_most, confidential, describe, proto, replace
from orchid.kernel.wire.user import UserInfo

# Prefix of every refusal, and the whole message for an unknown token.
UNKNOWN_TOKEN = "invalid bearer token"  # noqa: S105 - a message, not a token
BLANKS = " \t\r\n"
TOKENS: Final = Path() / "spec" / "tokens"
MOST_TOKENS: Final = 1_000
LARGEST_BATCH: Final = 2 << 20  # bytes
TOKENS_PER_SEAT: Final = 100
PORTION: Final = 0.005  # seconds of work before other requests are served


class TokenReviewSpec(Wire):
    """The token to review."""

    token: Annotated[str, proto(1), confidential(), describe("The token.")] = ""
    audiences: Annotated[
        tuple[str, ...],
        proto(2),
        describe("The required audiences. Default: this server."),
    ] = ()


class TokenReviewStatus(Wire):
    """The user of the token."""

    authenticated: Annotated[bool, proto(1), describe("Whether the token is valid.")] = False
    user: Annotated[UserInfo, proto(2), describe("The user of the token.")] = field(
        default_factory=UserInfo
    )
    audiences: Annotated[
        tuple[str, ...], proto(4), describe("The requested audiences for which it is valid.")
    ] = ()
    error: Annotated[str, proto(3), describe("The reason for a refusal.")] = ""


class TokenReview(Object):
    """Authenticates a token. Nothing is stored."""

    spec: Annotated[TokenReviewSpec, proto(2), describe("The token to review.", required=True)] = (
        field(default_factory=TokenReviewSpec)
    )
    status: Annotated[TokenReviewStatus, proto(3), describe("The result.")] = field(
        default_factory=TokenReviewStatus
    )


class TokenReviewBatchSpec(Wire):
    """The tokens to review."""

    audiences: Annotated[
        tuple[str, ...],
        proto(1),
        describe("The required audiences of every token. Default: this server."),
    ] = ()
    tokens: Annotated[
        tuple[str, ...],
        at_most(MOST_TOKENS),
        proto(2),
        confidential(),
        describe("The tokens, 1 to 1,000.", required=True),
    ] = ()


class TokenReviewBatchStatus(Wire):
    """The users of the tokens."""

    results: Annotated[
        tuple[TokenReviewStatus, ...],
        proto(1),
        describe("What a TokenReview returns for each token, in the order of the tokens."),
    ] = ()


class TokenReviewBatch(Object):
    """Authenticates many tokens in one call. Nothing is stored."""

    spec: Annotated[
        TokenReviewBatchSpec, proto(2), describe("The tokens to review.", required=True)
    ] = field(default_factory=TokenReviewBatchSpec)
    status: Annotated[TokenReviewBatchStatus, proto(3), describe("The results.")] = field(
        default_factory=TokenReviewBatchStatus
    )


class ReviewToken:
    """Authenticate a token with the authenticators of the server."""

    def __init__(self, tokens: TokenAuthenticator, api_audiences: tuple[str, ...]) -> None:
        self._tokens = tokens
        self._api_audiences = api_audiences

    async def create(self, new: TokenReview, request: Request) -> TokenReview:
        return replace(new, status=await self.review(new.spec.token, new.spec.audiences))

    async def review(self, text: str, audiences: tuple[str, ...]) -> TokenReviewStatus:
        # Only the first word counts, as in an Authorization header.
        token = text.strip(BLANKS).partition(" ")[0]
        if not token:
            raise BadRequest("token is required for TokenReview in authentication")
        expected = audiences or self._api_audiences
        try:
            identity = await self._tokens.authenticate_token(token, expected)
        except Rejected as refusal:
            return refused(*refusal.reasons)
        return accepted(identity, expected) if identity else refused()


class ReviewTokens:
    """Authenticate the tokens of a batch, one after the other."""

    def __init__(self, one: ReviewToken, group: str, monotonic: Callable[[], float]) -> None:
        self._one = one
        self._about = ErrorSubject(group, TokenReviewBatch.__name__)
        self._monotonic = monotonic

    async def create(self, new: TokenReviewBatch, request: Request) -> TokenReviewBatch:
        tokens = new.spec.tokens
        if not tokens:
            raise Invalid(self._about, [required(TOKENS)])
        seat, more = SEAT.get(), (len(tokens) - 1) // TOKENS_PER_SEAT
        if seat is None or not more:
            results = await self._results(tokens, new.spec.audiences)
        else:
            seat.occupy(more)
            try:
                results = await self._results(tokens, new.spec.audiences)
            finally:
                seat.vacate(more)
        status = TokenReviewBatchStatus(results=tuple(results[token] for token in tokens))
        return replace(new, status=status)

    async def _results(
        self, tokens: tuple[str, ...], audiences: tuple[str, ...]
    ) -> dict[str, TokenReviewStatus]:
        """The result of each token."""
        results: dict[str, TokenReviewStatus] = {}
        until = self._monotonic() + PORTION
        for token in tokens:
            if token not in results:
                results[token] = await self._result(token, audiences)
                if self._monotonic() > until:
                    await asyncio.sleep(0)
                    until = self._monotonic() + PORTION
        return results

    async def _result(self, token: str, audiences: tuple[str, ...]) -> TokenReviewStatus:
        try:
            return await self._one.review(token, audiences)
        except (BadRequest, InternalError) as problem:
            return TokenReviewStatus(error=str(problem))


def declare(
    naming: Naming,
    tokens: TokenAuthenticator,
    api_audiences: tuple[str, ...],
    monotonic: Callable[[], float],
) -> tuple[Kind[TokenReview], Kind[TokenReviewBatch]]:
    review = ReviewToken(tokens, api_audiences)
    kind = Kind(
        type=TokenReview,
        group=naming.authentication,
        version="v1",
        known_versions=("v1beta1",),
        plural="tokenreviews",
        scope=Scope.CLUSTER,
        acts=review,
        writes=("metadata", "spec"),
        verbs=("create",),
        largest_body=LARGEST_REVIEW,
    )
    batch = Kind(
        type=TokenReviewBatch,
        group=naming.identity,
        version="v1alpha1",
        versions=("v1beta1",),
        plural="tokenreviewbatches",
        scope=Scope.CLUSTER,
        acts=ReviewTokens(review, naming.identity, monotonic),
        writes=("metadata", "spec"),
        verbs=("create",),
        largest_body=LARGEST_BATCH,
    )
    return kind, batch


def accepted(identity: Authenticated, requested: tuple[str, ...]) -> TokenReviewStatus:
    audiences = requested if identity.audiences == requested else ()
    if identity.audiences is not None and not audiences:
        audiences = tuple(filter(frozenset(identity.audiences).__contains__, requested))
        if not audiences:
            raise InternalError("error validating audiences")
    return TokenReviewStatus(authenticated=True, user=identity.user, audiences=audiences)


def refused(*reasons: str) -> TokenReviewStatus:
    return TokenReviewStatus(error=str(Rejected(UNKNOWN_TOKEN, *reasons)))
