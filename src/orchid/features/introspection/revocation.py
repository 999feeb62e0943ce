"""Token revocation (RFC 7009): POST /oauth2/revoke creates a CredentialRevocation.

The holder of a token may revoke it: a request without another credential, or with the token itself
as credential. Any other caller needs the verb `revoke` on the account of the token. The answer is
200 for any token; nothing is stored for one that is not ours, or has expired. One that is revoked
already may be under a hold, which can be lifted: it is revoked for good.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from math import ceil
from typing import Any, Final

from orchid.features.introspection.callers import Callers, presented_secret
from orchid.features.introspection.forms import (
    FORBIDDEN,
    NO_STORE,
    UNAVAILABLE_STATUS,
    OAuthRefusal,
    read_form,
)
from orchid.features.introspection.introspection import audiences_of, unverified_claims
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.kernel.base.rate_limits import RateLimit
from orchid.kernel.client.client import Client
from orchid.kernel.engine.interfaces import Rejected, TokenAuthenticator
from orchid.kernel.server.exchange import Exchange
from orchid.kernel.server.respond import head
from orchid.kernel.server.sockets.messages import Response
from orchid.kernel.wire.errors import AlreadyExists, Forbidden
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.revoked_credentials import RevokedToken
from orchid.kernel.wire.user import UserInfo, account_of

PATH: Final = "/oauth2/revoke"
BY_HOLDER: Final = 20  # tokens of one account, an hour
HOUR: Final = 3600.0

Acting = Callable[[UserInfo, str], AbstractContextManager[Client]]


class TokenRevocation:
    """The page; call it with an exchange."""

    def __init__(
        self,
        names: Naming,
        callers: Callers,
        tokens: TokenAuthenticator,
        *,
        issuers: Collection[str],
        api_audiences: tuple[str, ...],
        acting: Acting,
        server: UserInfo,
        revoked: Collection[str],
        monotonic: Callable[[], float],
    ) -> None:
        """`acting`: a client of a user at an address. `server`: the user of the server's writes.

        `revoked`: the reasons of `tokens` to refuse a token that is revoked.
        """
        self._callers = callers
        self._tokens = tokens
        self._issuers = frozenset(issuers)
        self._api_audiences = api_audiences
        self._acting = acting
        self._server = server
        self._revoked = frozenset(revoked)
        self._limit: RateLimit[str] = RateLimit(BY_HOLDER, HOUR, monotonic)
        self._by_holder = names.own("revoked-by-holder")

    async def __call__(self, exchange: Exchange) -> Response:
        form = read_form(exchange)
        token = form.token("token")
        if not token:
            raise OAuthRefusal("invalid_request", "the parameter token is missing")
        secret = presented_secret(exchange, form)
        user = None if secret in ("", token) else await self._callers.user_of(exchange, form)
        await self._revoke(exchange, token, user)
        return Response(200, head(exchange, b"", cache=NO_STORE))

    async def _revoke(self, exchange: Exchange, token: str, user: UserInfo | None) -> None:
        """Revoke a valid token of ours; `user` is None for its holder."""
        claims = unverified_claims(token)
        username = await self._username(token, claims)
        account = account_of(username)
        jti, expires = claims.get("jti"), claims.get("exp")
        if account is None or not isinstance(jti, str) or not expires:
            return
        if user is None:
            self._limit_holder(username)
            if exchange.request is not None:
                exchange.request.annotate(self._by_holder, f"JTI={jti}")
        new = CredentialRevocation(
            metadata=ObjectMeta(generate_name=f"token-{jti}-"),
            spec=CredentialRevocationSpec(
                token=RevokedToken(
                    jti=jti,
                    namespace=account[0],
                    name=account[1],
                    expires=datetime.fromtimestamp(int(expires), UTC),
                ),
                message="revoked by its holder" if user is None else "",
            ),
        )
        await asyncio.sleep(0)  # the client needs a task, which a handler has only from here on
        try:
            with self._acting(user or self._server, exchange.http.peer.address) as client:
                await client.create(new)
        except AlreadyExists:
            return  # the server found another revocation of this token
        except Forbidden:
            text = "the user may not revoke tokens of this account"
            raise OAuthRefusal("access_denied", text, status=FORBIDDEN) from None

    async def _username(self, token: str, claims: dict[str, Any]) -> str:
        """The user of a token of ours; "" if it is not valid, were it not revoked."""
        issuer = claims.get("iss")
        if not isinstance(issuer, str) or issuer not in self._issuers:
            return ""
        wanted = audiences_of(claims) or self._api_audiences
        try:
            found = await self._tokens.authenticate_token(token, wanted)
        except Rejected as refusal:
            # Revocations are checked last: everything else about the token is verified.
            return str(claims.get("sub")) if self._revoked & {*refusal.reasons} else ""
        return found.user.username if found else ""

    def _limit_holder(self, username: str) -> None:
        wait = self._limit.take(username)
        if wait:
            raise OAuthRefusal(
                "temporarily_unavailable",
                f"{BY_HOLDER} tokens of this account were revoked by their holders in an hour",
                status=UNAVAILABLE_STATUS,
                headers=b"Retry-After: %d\r\n" % ceil(wait),
            )
