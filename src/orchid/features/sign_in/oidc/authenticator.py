"""External issuers (OpenID Connect): accepts their tokens, and maps claims to users.

Start with `OidcAuthenticator`; its `run` refreshes the keys of every issuer and needs an owner. An
issuer is identified by the exact string in `iss` and has its own keys: no issuer can sign for
another. A token of another issuer is left to other authenticators and costs only parsing its
payload. The cache of verified signatures (kernel/credentials/tokens.py) includes the mapped user,
which depends on claims and settings only (mapping.py). Times and revocations are checked at every
use.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from orchid.features.revocation.revocations import Revocations
from orchid.features.sign_in.oidc.configuration import ALGORITHMS, IssuerSettings
from orchid.features.sign_in.oidc.keys import Fetch, KeySource, fetching
from orchid.features.sign_in.oidc.mapping import user_of, username_of
from orchid.kernel.access.authenticators.audiences import Audiences, shared
from orchid.kernel.base.clock import Clock
from orchid.kernel.credentials.keys import VerificationKey, b64url_decode
from orchid.kernel.credentials.refusals import NotAToken, TokenRefused, UnknownKey, WrongIssuer
from orchid.kernel.credentials.token_claims import Payload
from orchid.kernel.credentials.tokens import KeySet, Verified, Verifier
from orchid.kernel.engine.interfaces import Authenticated, Rejected
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.text import quote
from orchid.kernel.wire.user import UserInfo

NOT_BEFORE_LEEWAY = 60


class _Token(msgspec.Struct):
    """The claims of a token and the mapped user: both are cached with its signature."""

    claims: Payload
    outcome: UserInfo | str | None = None  # a str is the reason for a refusal


class OidcAuthenticator:
    """Authenticate tokens of configured issuers."""

    def __init__(
        self,
        issuers: Sequence[IssuerSettings],
        clock: Clock,
        api_audiences: Audiences,
        naming: Naming,
        *,
        fetch: Callable[[IssuerSettings], Fetch] = fetching,
        revocations: Revocations | None = None,
    ) -> None:
        self._clock = clock
        self._audiences = api_audiences
        self._naming = naming
        self._revocations = revocations
        self._settings = {issuer.url: issuer for issuer in issuers}
        self._keys = {issuer.url: KeySet(()) for issuer in issuers}
        self._verifier: Verifier[_Token] = Verifier(self._keys, _Token)
        self.sources = {
            issuer.url: KeySource(issuer, fetch(issuer), clock, self._take_keys)
            for issuer in issuers
        }

    async def run(self) -> None:
        """Refresh the keys of every issuer, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for source in self.sources.values():
                group.create_task(source.run())

    async def authenticate_token(self, token: str, audiences: Audiences) -> Authenticated | None:
        good = shared(self._audiences, audiences)
        if not good:
            return None
        try:
            verified = await self._open(token)
        except (NotAToken, WrongIssuer):
            return None
        except TokenRefused as refusal:
            raise Rejected(f"oidc: verify token: {refusal}") from None
        settings = self._settings[verified.issuer]
        self._check(verified, settings)
        if self._revocations is not None:
            await self._revocations.fresh()
        user = self._user(verified.claims, settings)
        if self._revocations is not None:
            claims = verified.claims.claims
            self._revocations.refuse_outside_token(verified.issuer, claims, user.username)
        return Authenticated(user, good)

    def username_of(self, issuer: str, claims: Payload) -> str:
        """The user of a verified token, also one for another audience; "" if it has none."""
        settings = self._settings.get(issuer)
        return username_of(claims, settings) if settings else ""

    async def _open(self, token: str) -> Verified[_Token]:
        try:
            return self._verifier.open(token, self._clock.now().timestamp())
        except UnknownKey:
            issuer = unverified_issuer(token)
            _refuse_algorithm(token, self._settings[issuer].algorithms)
            source = self.sources[issuer]
            # The issuer may have begun to sign with a new key, or its keys are not yet loaded.
            refreshed = await source.newer()
            if not source.ready:
                raise Rejected("oidc: authenticator not initialized") from None
            if not refreshed:
                raise
        return self._verifier.open(token, self._clock.now().timestamp())

    def _take_keys(self, issuer: str, keys: tuple[VerificationKey, ...]) -> None:
        self._keys = {**self._keys, issuer: KeySet(keys)}
        self._verifier.replace_issuers(self._keys)

    def _check(self, verified: Verified[_Token], settings: IssuerSettings) -> None:
        """Audience, then times: no leeway at the end, a minute at the beginning."""
        meant = verified.claims.claims.get("aud")
        listed = meant if isinstance(meant, list) else [meant]
        if not any(audience in settings.audiences for audience in listed):
            expected = " ".join(quote(audience) for audience in settings.audiences)
            raise Rejected(f"oidc: verify token: none of the expected audiences [{expected}] found")
        now = self._clock.now().timestamp()
        if verified.expires is None or now > verified.expires:
            raise Rejected("oidc: verify token: token is expired")
        if verified.not_before is not None and now + NOT_BEFORE_LEEWAY < verified.not_before:
            raise Rejected("oidc: verify token: token is not valid yet")

    def _user(self, token: _Token, settings: IssuerSettings) -> UserInfo:
        if token.outcome is None:
            try:
                token.outcome = user_of(token.claims, settings, self._naming)
            except Rejected as refusal:
                token.outcome = str(refusal)
        if isinstance(token.outcome, str):
            raise Rejected(token.outcome)
        return token.outcome


def unverified_algorithm(token: str) -> str:
    """The signature algorithm in the header of a token; raises NotAToken."""
    return _unverified(token, 0, "alg")


def unverified_issuer(token: str) -> str:
    """The issuer in an unverified token; only for choosing the keys."""
    return _unverified(token, 1, "iss")


def _refuse_algorithm(token: str, accepted: Collection[str]) -> None:
    """Refuse algorithms that are not accepted; a new key of an accepted one may still come."""
    algorithm = unverified_algorithm(token)
    if algorithm in ALGORITHMS and algorithm not in accepted:
        raise Rejected(
            f"oidc: verify token: the signature algorithm {algorithm} is not accepted from this "
            f"issuer, only {', '.join(accepted)} (--oidc-signing-algs)"
        )


def _unverified(token: str, part: int, member: str) -> str:
    try:
        contents: Any = msgspec.json.decode(b64url_decode(token.split(".")[part].encode("ascii")))
        value = contents[member]
    except (ValueError, IndexError, KeyError, TypeError, msgspec.MsgspecError, RecursionError):
        raise NotAToken("a part of the token cannot be read") from None
    if not isinstance(value, str):
        raise NotAToken(f"the member {member} of the token is not a string")
    return value
