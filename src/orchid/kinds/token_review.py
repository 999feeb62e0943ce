"""TokenReview: asks the server whose token this is, and for which audiences it is good.

Every token that the server itself would accept can be reviewed, by the same authenticators. A
refused token is a normal answer: `authenticated` stays out and `error` says why. A review never
comes out as anonymous: a token of blanks alone is no token, and that is a bad request.
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

# Every refusal begins with this; a token that nobody knows has no other reason.
UNKNOWN_TOKEN = "invalid bearer token"  # noqa: S105 - a message, not a token
BLANKS = " \t\r\n"


class TokenReviewSpec(Wire):
    """The token in question."""

    token: Annotated[str, proto(1), confidential(), describe("The token.")] = ""
    audiences: Annotated[
        tuple[str, ...],
        proto(2),
        describe("For whom it should be good. By default, for this server."),
    ] = ()


class TokenReviewStatus(Wire):
    """Whose token it is."""

    authenticated: Annotated[bool, proto(1), describe("Whether the token is good.")] = False
    user: Annotated[UserInfo, proto(2), describe("Whose token it is.")] = field(
        default_factory=UserInfo
    )
    audiences: Annotated[
        tuple[str, ...], proto(4), describe("For whom of those asked about it is good.")
    ] = ()
    error: Annotated[str, proto(3), describe("Why it is not good.")] = ""


class TokenReview(Object):
    """Asks whose token this is. Nothing is stored."""

    spec: Annotated[
        TokenReviewSpec, proto(2), describe("The token in question.", required=True)
    ] = field(default_factory=TokenReviewSpec)
    status: Annotated[TokenReviewStatus, proto(3), describe("The answer.")] = field(
        default_factory=TokenReviewStatus
    )


class ReviewToken:
    """Judge a token by the authenticators that guard the front door."""

    def __init__(self, tokens: TokenAuthenticator, api_audiences: tuple[str, ...]) -> None:
        self._tokens = tokens
        self._api_audiences = api_audiences

    async def create(self, new: TokenReview, request: Request) -> TokenReview:
        # Only the first word counts, as it would in an Authorization header.
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
