"""Token introspection (RFC 7662): whether a token is valid now, for a service that received it.

A caller who may create TokenReviews may introspect every token. Any other caller needs the verb
`introspect` on `audiences`, by name, so that a web server can have the right for its own audience
only. A caller with neither right gets 403. The answer is as current as that of a TokenReview. For a
token that is invalid, or whose audiences the caller may not introspect, it is `{"active": false}`
and nothing more.
"""

from collections.abc import Collection
from typing import Any, Final, Protocol

import msgspec

from orchid.features.introspection.callers import Callers
from orchid.features.introspection.forms import FORBIDDEN, JSON, NO_STORE, OAuthRefusal, read_form
from orchid.features.rights.kinds.self_subject_rules_review import RuleLister
from orchid.kernel.credentials.keys import b64url_decode
from orchid.kernel.engine.interfaces import Authenticated, Authorizer, Rejected, TokenAuthenticator
from orchid.kernel.engine.request import Target
from orchid.kernel.http.messages import Response
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.server.respond import head
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.user import UserInfo

PATH: Final = "/oauth2/introspect"
VERB, RESOURCE = "introspect", "audiences"
MOST_AUDIENCES: Final = 16
INACTIVE: Final = b'{"active":false}'
CLAIMS: Final = ("iss", "sub", "exp", "iat", "nbf", "jti", "act", "cnf")


class Rights(Authorizer, RuleLister, Protocol):
    """Decides about one right, and lists those of a user."""


class Introspection:
    """The page; call it with an exchange."""

    def __init__(
        self,
        naming: Naming,
        callers: Callers,
        tokens: TokenAuthenticator,
        rights: Rights,
        *,
        issuers: Collection[str],
        api_audiences: tuple[str, ...],
    ) -> None:
        """`issuers`: those of tokens that name their audiences themselves, ours."""
        self._group = naming.identity
        self._callers = callers
        self._tokens = tokens
        self._rights = rights
        self._issuers = frozenset(issuers)
        self._api_audiences = api_audiences
        self._review = Target(
            verb="create",
            is_resource=True,
            group=naming.authentication,
            version="v1",
            resource="tokenreviews",
        )

    async def __call__(self, state: RequestState) -> Response:
        form = read_form(state)
        user = await self._callers.user_of(state, form)
        token = form.token("token")
        if not token:
            raise OAuthRefusal("invalid_request", "the parameter token is missing")
        body = await self._introspected(user, token)
        return Response(200, head(state, JSON, cache=NO_STORE), body)

    async def _introspected(self, user: UserInfo, token: str) -> bytes:
        claims = unverified_claims(token)
        issuer = claims.get("iss")
        is_ours = isinstance(issuer, str) and issuer in self._issuers
        audiences = audiences_of(claims) if is_ours else ()
        audiences = audiences or self._api_audiences
        may_review = (await self._rights.authorize(user, self._review)).allowed
        if not may_review:
            audiences = await self._permitted(user, audiences)
        identity = await self._authenticated(token, audiences) if audiences else None
        if identity is not None:
            return msgspec.json.encode(described(identity, claims, audiences))
        if not may_review:
            self._refuse_without_right(user)
        return INACTIVE

    async def _permitted(self, user: UserInfo, wanted: tuple[str, ...]) -> tuple[str, ...]:
        """The audiences that the user may introspect."""
        return tuple([one for one in wanted if await self._may_introspect(user, one)])

    async def _may_introspect(self, user: UserInfo, audience: str) -> bool:
        target = Target(
            verb=VERB,
            is_resource=True,
            group=self._group,
            version="*",
            resource=RESOURCE,
            name=audience,
        )
        return (await self._rights.authorize(user, target)).allowed

    async def _authenticated(self, token: str, wanted: tuple[str, ...]) -> Authenticated | None:
        try:
            return await self._tokens.authenticate_token(token, wanted)
        except Rejected:
            return None

    def _refuse_without_right(self, user: UserInfo) -> None:
        """Raise OAuthRefusal (403) for a user who may introspect no audience at all."""
        listed = self._rights.rules_for(user, "")
        for rule in listed.resource_rules:
            matches = (
                not {VERB, "*"}.isdisjoint(rule.verbs)
                and not {self._group, "*"}.isdisjoint(rule.api_groups)
                and not {RESOURCE, "*"}.isdisjoint(rule.resources)
            )
            if matches:
                return
        if not listed.incomplete:
            text = "the user may neither create tokenreviews nor introspect audiences"
            raise OAuthRefusal("access_denied", text, status=FORBIDDEN)


def unverified_claims(token: str) -> dict[str, Any]:
    """The payload of a token, or nothing.

    Decides only for which audiences the token is authenticated; reported only if that succeeds.
    """
    parts = token.split(".")
    if len(parts) != len(("header", "payload", "signature")):
        return {}
    try:
        claims = msgspec.json.decode(b64url_decode(parts[1].encode("ascii")))
    except (ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def audiences_of(claims: dict[str, Any]) -> tuple[str, ...]:
    named = claims.get("aud")
    listed = named if isinstance(named, list) else [named]
    return tuple(one for one in listed[:MOST_AUDIENCES] if isinstance(one, str))


def described(
    identity: Authenticated, claims: dict[str, Any], audiences: tuple[str, ...]
) -> dict[str, Any]:
    """The answer for a valid token: its claims, and its user as other requests see it."""
    user = identity.user
    answer: dict[str, Any] = {"active": True, "token_type": "Bearer"}
    answer |= {name: claims[name] for name in CLAIMS if name in claims}
    answer |= {
        "aud": list(audiences if identity.audiences is None else identity.audiences),
        "username": user.username,
    }
    if user.uid:
        answer["uid"] = user.uid
    if user.groups:
        answer["groups"] = list(user.groups)
    return answer
