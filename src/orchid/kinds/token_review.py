"""TokenReview: authenticates a token and returns its user and audiences.

Uses the authenticators of the server. A refused token is a normal response: `authenticated` is
missing and `error` has the reason. A review never results in the anonymous user: a blank token is
a bad request.
"""

from typing import Annotated

from msgspec import field

from orchid.engine.interfaces import Authenticated, Rejected, TokenAuthenticator
from orchid.engine.kind import LARGEST_REVIEW, Kind, Scope
from orchid.engine.request import Request
from orchid.wire.errors import BadRequest, InternalError
from orchid.wire.meta import Object
from orchid.wire.naming import Naming
from orchid.wire.struct import Wire, confidential, describe, proto, replace
from orchid.wire.user import UserInfo

# Prefix of every refusal, and the whole message for an unknown token.
UNKNOWN_TOKEN = "invalid bearer token"  # noqa: S105 - a message, not a token
BLANKS = " \t\r\n"


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


class ReviewToken:
    """Authenticate a token with the authenticators of the server."""

    def __init__(self, tokens: TokenAuthenticator, api_audiences: tuple[str, ...]) -> None:
        self._tokens = tokens
        self._api_audiences = api_audiences

    async def create(self, new: TokenReview, request: Request) -> TokenReview:
        # Only the first word counts, as in an Authorization header.
        token = new.spec.token.strip(BLANKS).partition(" ")[0]
        if not token:
            raise BadRequest("token is required for TokenReview in authentication")
        wanted = new.spec.audiences or self._api_audiences
        try:
            found = await self._tokens.authenticate_token(token, wanted)
        except Rejected as refusal:
            return replace(new, status=refused(*refusal.reasons))
        return replace(new, status=accepted(found, wanted) if found else refused())


def declare(
    names: Naming, tokens: TokenAuthenticator, api_audiences: tuple[str, ...]
) -> Kind[TokenReview]:
    return Kind(
        type=TokenReview,
        group=names.authentication,
        version="v1",
        known_versions=("v1beta1",),
        plural="tokenreviews",
        scope=Scope.CLUSTER,
        acts=ReviewToken(tokens, api_audiences),
        creates=("metadata", "spec"),
        verbs=("create",),
        largest_body=LARGEST_REVIEW,
    )


def accepted(found: Authenticated, wanted: tuple[str, ...]) -> TokenReviewStatus:
    audiences = wanted if found.audiences == wanted else ()
    if found.audiences is not None and not audiences:
        audiences = tuple(filter(frozenset(found.audiences).__contains__, wanted))
        if not audiences:
            raise InternalError("error validating audiences")
    return TokenReviewStatus(authenticated=True, user=found.user, audiences=audiences)


def refused(*reasons: str) -> TokenReviewStatus:
    return TokenReviewStatus(error=str(Rejected(UNKNOWN_TOKEN, *reasons)))
