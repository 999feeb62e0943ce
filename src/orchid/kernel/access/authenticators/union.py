"""All authenticators in order, as one.

`UnionTokenAuthenticator` returns the user of a token; requests and TokenReview share it.
`UnionAuthenticator` returns the user of a request. The rules of both:

- The first success wins; the others are not called.
- A refusal does not end the search: with a bad certificate and a good token the token counts.
- Without a success the refusals are returned. Anonymous is reached only without any refusal: a
  wrong credential is never better than none.

An authenticated user is cached for the next request with exactly the same headers on the
connection, if `Authenticated.still_valid` allows it, and each request checks it again. The cache is
beside the headers (`Presented.memo`): no token is stored or compared for it, and it ends with them.
Refusals, anonymous, and users with a client certificate are never cached here.
"""

from collections.abc import Sequence

from orchid.kernel.access.authenticators.audiences import shared, with_authenticated_group
from orchid.kernel.engine.interfaces import (
    Authenticated,
    Authenticator,
    Presented,
    Rejected,
    TokenAuthenticator,
)
from orchid.kernel.wire.user import AUTHENTICATED


class UnionTokenAuthenticator:
    """Call each token authenticator in turn."""

    def __init__(self, members: Sequence[TokenAuthenticator]) -> None:
        self._members = tuple(members)

    async def authenticate_token(
        self, token: str, audiences: tuple[str, ...]
    ) -> Authenticated | None:
        refusals: list[str] = []
        for member in self._members:
            try:
                caller = await member.authenticate_token(token, audiences)
            except Rejected as refusal:
                refusals.extend(refusal.reasons)
                continue
            if caller is not None:
                is_in = AUTHENTICATED in caller.user.groups
                return caller if is_in else with_authenticated_group(caller)
        if refusals:
            raise Rejected(*refusals)
        return None


class UnionAuthenticator:
    """Call each authenticator in turn, anonymous last."""

    def __init__(
        self,
        members: Sequence[Authenticator],
        api_audiences: tuple[str, ...],
        anonymous: Authenticator | None = None,
    ) -> None:
        self._members = tuple(members)
        self._audiences = api_audiences
        self._anonymous = anonymous

    async def authenticate(self, presented: Presented) -> Authenticated | None:
        """The user of a request; None means 401."""
        memo = presented.memo
        cached = memo.caller
        if cached is not None:
            still_valid = cached.still_valid
            if still_valid is True or (still_valid and await still_valid()):
                return cached
            memo.caller = None
        caller = await self._ask_all(presented)
        if caller is not None and caller.still_valid and presented.peer.certificate is None:
            memo.caller = caller
        return caller

    async def _ask_all(self, presented: Presented) -> Authenticated | None:
        refusals: list[str] = []
        for member in self._members:
            try:
                caller = await member.authenticate(presented)
            except Rejected as refusal:
                refusals.extend(refusal.reasons)
                continue
            if caller is not None:
                self._refuse_foreign(caller)
                return with_authenticated_group(caller)
        if refusals:
            raise Rejected(*refusals)
        return await self._anonymous.authenticate(presented) if self._anonymous else None

    def _refuse_foreign(self, caller: Authenticated) -> None:
        """Refuse a credential with other audiences than ours."""
        if caller.audiences is None or caller.audiences == self._audiences:
            return
        if self._audiences and not shared(caller.audiences, self._audiences):
            raise Rejected("the credential is meant for other audiences")


_: type[TokenAuthenticator] = UnionTokenAuthenticator
__: type[Authenticator] = UnionAuthenticator
