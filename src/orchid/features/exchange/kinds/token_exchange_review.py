"""TokenExchangeReview: why policies of a namespace exchange a token, or do not. Issues no token.

Start with `ReviewExchange.create`. The subject is a token, which is verified, or its claims. The
caller needs the right to list the policies of the namespace, because the result has their terms.
"""

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, Protocol

from msgspec import field

from orchid.kernel.engine.kind import LARGEST_REVIEW, Kind, Scope
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.errors import BadRequest, ErrorSubject, refuse_if_any
from orchid.kernel.wire.fields import FieldError, Path, forbidden, required
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.struct import Wire, always, at_most, confidential, describe, proto, replace

SPEC: Final = Path() / "spec"
MOST_CLAIMS: Final = 256
MOST_AUDIENCES: Final = 16
OFF: Final = "token exchange is off: the server was started without --token-exchange-config"


class TokenExchangeReviewSpec(Wire):
    """The outside token, or its issuer and claims."""

    token: Annotated[str, proto(1), confidential(), describe("The outside token, a JWT.")] = ""
    issuer: Annotated[str, proto(2), describe("Without a token: its issuer.")] = ""
    claims: Annotated[
        dict[str, str],
        at_most(MOST_CLAIMS),
        proto(3),
        describe("Without a token: its claims, as text."),
    ] = field(default_factory=dict)
    account: Annotated[
        str, proto(4), describe("Only policies of this account. Default: all of the namespace.")
    ] = ""
    audiences: Annotated[
        tuple[str, ...],
        at_most(MOST_AUDIENCES),
        proto(5),
        describe("The requested audiences. Default: the first one of the policy."),
    ] = ()


class TokenExchangeCheck(Wire):
    """A single check of a policy."""

    field: Annotated[str, proto(1), describe("The field of the policy.")] = always(str)
    wanted: Annotated[str, proto(2), describe("The value that the policy wants.")] = ""
    seen: Annotated[str, proto(3), describe("The value that the token has.")] = ""
    allowed: Annotated[bool, proto(4), describe("Whether the check succeeded.")] = always(bool)
    message: Annotated[str, proto(5), describe("Why not.")] = ""


class TokenExchangeVerdict(Wire):
    """The result of one policy."""

    name: Annotated[str, proto(1), describe("The name of the policy.")] = always(str)
    revision: Annotated[str, proto(2), describe("Its resourceVersion.")] = ""
    account: Annotated[str, proto(3), describe("Its account.")] = ""
    allowed: Annotated[bool, proto(4), describe("Whether it exchanges the token.")] = always(bool)
    checks: Annotated[tuple[TokenExchangeCheck, ...], proto(5), describe("All checks.")] = ()


class TokenExchangeReviewStatus(Wire):
    """Whether the token would be exchanged."""

    allowed: Annotated[bool, proto(1), describe("Whether a policy exchanges it.")] = always(bool)
    message: Annotated[str, proto(2), describe("Why not, if no policy was evaluated.")] = ""
    subject: Annotated[str, proto(3), describe("The subject of the token.")] = ""
    policies: Annotated[
        tuple[TokenExchangeVerdict, ...],
        proto(4),
        describe("Policies for the issuer, those with the fewest failed checks first."),
    ] = ()


class TokenExchangeReview(Object):
    """Explains the exchange of a token. Nothing is stored or issued."""

    spec: Annotated[
        TokenExchangeReviewSpec, proto(2), describe("The token to explain.", required=True)
    ] = field(default_factory=TokenExchangeReviewSpec)
    status: Annotated[TokenExchangeReviewStatus, proto(3), describe("The result.")] = field(
        default_factory=TokenExchangeReviewStatus
    )


class ExchangeExplainer(Protocol):
    """Evaluates policies. Raises the ApiError for the caller."""

    async def explain(
        self, spec: TokenExchangeReviewSpec, request: Request
    ) -> TokenExchangeReviewStatus: ...


class ReviewExchange:
    """Evaluate the policies of the namespace, if exchange is on."""

    def __init__(self, group: str, explainer: Callable[[], ExchangeExplainer | None]) -> None:
        self._about = ErrorSubject(group, "TokenExchangeReview", "")
        self._explainer = explainer

    async def create(self, new: TokenExchangeReview, request: Request) -> TokenExchangeReview:
        refuse_if_any(self._about, [*spec_errors(new.spec)])
        explainer = self._explainer()
        if explainer is None:
            raise BadRequest(OFF)
        return replace(new, status=await explainer.explain(new.spec, request))


def spec_errors(spec: TokenExchangeReviewSpec) -> Iterator[FieldError]:
    if spec.token:
        for name, value in (("issuer", spec.issuer), ("claims", spec.claims)):
            if value:
                yield forbidden(SPEC / name, "not together with token")
    elif not spec.claims:
        yield required(SPEC, "token, or issuer and claims")
    elif not spec.issuer:
        yield required(SPEC / "issuer")


def declare(naming: Naming, explainer: Callable[[], ExchangeExplainer | None]) -> Kind[Any]:
    return Kind(
        type=TokenExchangeReview,
        group=naming.identity,
        version="v1alpha1",
        plural="tokenexchangereviews",
        scope=Scope.NAMESPACED,
        acts=ReviewExchange(naming.identity, explainer),
        creates=("metadata", "spec"),
        verbs=("create",),
        largest_body=LARGEST_REVIEW,
    )
