"""Token revocation (RFC 7009): POST /oauth2/revoke creates a CredentialRevocation.

The holder of a token may revoke it: a request without another credential, or with the token itself
as credential. Any other caller needs the verb `revoke` on the account of the token. The answer is
200 for any token; nothing is stored for one that no key of ours signed, or that has expired.
Whether it is accepted now is not asked: a hold is lifted, and a restored backup brings an account
or a bound object back, and the token must stay revoked.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from math import ceil
from typing import Final, Protocol

from orchid.features.introspection.callers import Callers, presented_secret
from orchid.features.introspection.forms import (
    FORBIDDEN,
    NO_STORE,
    UNAVAILABLE_STATUS,
    OAuthRefusal,
    read_form,
)
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.kernel.base.rate_limits import RateLimit
from orchid.kernel.client.client import Client
from orchid.kernel.credentials.token_claims import AccountToken
from orchid.kernel.http.messages import Response
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.server.respond import head
from orchid.kernel.wire.errors import AlreadyExists, Forbidden
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.revoked_credentials import RevokedToken
from orchid.kernel.wire.user import UserInfo

PATH: Final = "/oauth2/revoke"
BY_HOLDER: Final = 20  # tokens of one account, an hour
HOUR: Final = 3600.0
LAST: Final = 253_402_300_799  # seconds; a later time cannot be written

Acting = Callable[[UserInfo, str], AbstractContextManager[Client]]


class SignedTokens(Protocol):
    """Tokens that keys of this server signed."""

    async def signed(self, token: str) -> AccountToken | None: ...


class TokenRevocation:
    """The page; call it with an exchange."""

    def __init__(
        self,
        naming: Naming,
        callers: Callers,
        tokens: SignedTokens,
        *,
        acting: Acting,
        server: UserInfo,
        monotonic: Callable[[], float],
    ) -> None:
        """`acting`: a client of a user at an address. `server`: the user of the server's writes."""
        self._callers = callers
        self._tokens = tokens
        self._acting = acting
        self._server = server
        self._limit: RateLimit[str] = RateLimit(BY_HOLDER, HOUR, monotonic)
        self._by_holder = naming.own("revoked-by-holder")

    async def __call__(self, state: RequestState) -> Response:
        form = read_form(state)
        token = form.token("token")
        if not token:
            raise OAuthRefusal("invalid_request", "the parameter token is missing")
        secret = presented_secret(state, form)
        user = None if secret in ("", token) else await self._callers.user_of(state, form)
        await self._revoke(state, token, user)
        return Response(200, head(state, b"", cache=NO_STORE))

    async def _revoke(self, state: RequestState, token: str, user: UserInfo | None) -> None:
        """Revoke a token that we signed; `user` is None for its holder."""
        signed = await self._tokens.signed(token)
        if signed is None:
            return
        namespace, name = signed.account.namespace, signed.account.serviceaccount.name
        jti, expires = signed.claims.jti, signed.claims.exp
        if not (namespace and name and jti and expires):
            return
        if user is None:
            self._limit_holder(f"{namespace}/{name}")
            if state.request is not None:
                state.request.annotate(self._by_holder, f"JTI={jti}")
        new = CredentialRevocation(
            metadata=ObjectMeta(generate_name=f"token-{jti}-"),
            spec=CredentialRevocationSpec(
                token=RevokedToken(
                    jti=jti,
                    namespace=namespace,
                    name=name,
                    expires=datetime.fromtimestamp(min(expires, LAST), UTC),
                ),
                message="revoked by its holder" if user is None else "",
            ),
        )
        await asyncio.sleep(0)  # the client needs a task, which a handler has only from here on
        try:
            with self._acting(user or self._server, state.http.peer.address) as client:
                await client.create(new)
        except AlreadyExists:
            return  # the server found another revocation of this token
        except Forbidden:
            text = "the user may not revoke tokens of this account"
            raise OAuthRefusal("access_denied", text, status=FORBIDDEN) from None

    def _limit_holder(self, account: str) -> None:
        wait = self._limit.wait_for(account)
        if wait:
            raise OAuthRefusal(
                "temporarily_unavailable",
                f"{BY_HOLDER} tokens of this account were revoked by their holders in an hour",
                status=UNAVAILABLE_STATUS,
                headers=b"Retry-After: %d\r\n" % ceil(wait),
            )
