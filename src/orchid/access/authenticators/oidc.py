"""Outside issuers (OpenID Connect): accept their tokens, and map their claims to users of ours.

Start with `OidcAuthenticator`; its `run` keeps every issuer's keys fresh and needs an owner.
Each issuer is found by the exact string in `iss` and has keys of its own: no issuer can sign for
another. A token of none of them is not ours to judge and costs nothing but reading its payload.
Signatures may be remembered (credentials/tokens.py), times and claims are checked in every use.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from orchid.access.authenticators.audiences import Audiences, shared
from orchid.access.authenticators.oidc_keys import Fetch, KeySource, fetching
from orchid.access.authenticators.oidc_settings import ClaimMapping, IssuerSettings
from orchid.credentials.keys import VerificationKey, b64url_decode
from orchid.credentials.refusals import NotAToken, TokenRefused, UnknownKey, WrongIssuer
from orchid.credentials.tokens import KeySet, Payload, Verified, Verifier
from orchid.engine.interfaces import Authenticated, Clock, Rejected
from orchid.wire.naming import Naming
from orchid.wire.text import quote
from orchid.wire.user import UserInfo

NOT_BEFORE_LEEWAY = 60


class OidcAuthenticator:
    """Know the tokens of configured issuers."""

    def __init__(
        self,
        issuers: Sequence[IssuerSettings],
        clock: Clock,
        api_audiences: Audiences,
        names: Naming,
        fetch: Callable[[IssuerSettings], Fetch] = fetching,
    ) -> None:
        self._clock = clock
        self._audiences = api_audiences
        self._credential_id = names.credential_id
        self._settings = {one.url: one for one in issuers}
        self._keys = {one.url: KeySet(()) for one in issuers}
        self._verifier: Verifier[Payload] = Verifier(self._keys, dict)
        self.sources = {
            one.url: KeySource(one, fetch(one), clock, self._take_keys) for one in issuers
        }

    async def run(self) -> None:
        """Keep the keys of every issuer fresh, until cancelled."""
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
        return Authenticated(self._user(verified.claims, settings), good)

    async def _open(self, token: str) -> Verified[Payload]:
        try:
            return self._verifier.open(token, self._clock.now().timestamp())
        except UnknownKey:
            source = self.sources[unverified_issuer(token)]
            # The issuer may have begun to sign with a new key, or not have answered us yet.
            refreshed = await source.newer()
            if not source.ready:
                raise Rejected("oidc: authenticator not initialized") from None
            if not refreshed:
                raise
        return self._verifier.open(token, self._clock.now().timestamp())

    def _take_keys(self, issuer: str, keys: tuple[VerificationKey, ...]) -> None:
        self._keys = {**self._keys, issuer: KeySet(keys)}
        self._verifier.replace_issuers(self._keys)

    def _check(self, verified: Verified[Payload], settings: IssuerSettings) -> None:
        """Audience, then times: no leeway at the end, a minute at the beginning."""
        meant = verified.claims.get("aud")
        listed = meant if isinstance(meant, list) else [meant]
        if not any(audience in settings.audiences for audience in listed):
            wanted = " ".join(quote(audience) for audience in settings.audiences)
            raise Rejected(f"oidc: verify token: none of the expected audiences [{wanted}] found")
        now = self._clock.now().timestamp()
        if verified.expires is None or now > verified.expires:
            raise Rejected("oidc: verify token: token is expired")
        if verified.not_before is not None and now + NOT_BEFORE_LEEWAY < verified.not_before:
            raise Rejected("oidc: verify token: token is not valid yet")

    def _user(self, claims: Payload, settings: IssuerSettings) -> UserInfo:
        user = UserInfo(
            username=_username(claims, settings.username),
            groups=_groups(claims, settings.groups) if settings.groups else (),
            uid=_uid(claims, settings.uid_claim) if settings.uid_claim else "",
            extra=self._extra(claims),
        )
        for claim, wanted in settings.required_claims:
            _require(claims, claim, wanted)
        return user

    def _extra(self, claims: Payload) -> dict[str, tuple[str, ...]]:
        jti = claims.get("jti")
        return {self._credential_id: (f"JTI={jti}",)} if isinstance(jti, str) and jti else {}


def unverified_issuer(token: str) -> str:
    """Who a token says it is from; good for choosing whose keys to fetch and nothing else."""
    try:
        payload: Any = msgspec.json.decode(b64url_decode(token.split(".")[1].encode("ascii")))
        issuer = payload["iss"]
    except (ValueError, IndexError, KeyError, TypeError, msgspec.MsgspecError, RecursionError):
        raise NotAToken("the payload of the token cannot be read") from None
    if not isinstance(issuer, str):
        raise NotAToken("the issuer of the token is no text")
    return issuer


def _username(claims: Payload, mapping: ClaimMapping) -> str:
    place = f"oidc: parse username claims {quote(mapping.claim)}"
    value = claims.get(mapping.claim)
    if value is None:
        raise Rejected(f"{place}: claim not present")
    if not isinstance(value, str) or not value:
        raise Rejected(f"{place}: claim is not a string with content")
    if mapping.claim == "email":
        _refuse_unverified_email(claims)
    return mapping.prefix + value


def _refuse_unverified_email(claims: Payload) -> None:
    # Absent is accepted, as in the reference: many issuers never say.
    if claims.get("email_verified") is not None and claims["email_verified"] is not True:
        raise Rejected("oidc: email not verified")


def _groups(claims: Payload, mapping: ClaimMapping) -> tuple[str, ...]:
    value = claims.get(mapping.claim)
    if value is None:
        return ()
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise Rejected(f"oidc: parse groups claim {quote(mapping.claim)}: not a list of strings")
    return tuple(mapping.prefix + one for one in listed)


def _uid(claims: Payload, claim: str) -> str:
    value = claims.get(claim)
    if not isinstance(value, str):
        raise Rejected(f"oidc: parse uid claim {quote(claim)}: claim not present or not a string")
    return value


def _require(claims: Mapping[str, Any], claim: str, wanted: str) -> None:
    value = claims.get(claim)
    if value is None:
        raise Rejected(f"oidc: required claim {claim} not present in ID token")
    if not isinstance(value, str):
        raise Rejected(f"oidc: required claim {claim} is not a string")
    if value != wanted:
        shown = quote(value[:256])
        raise Rejected(
            f"oidc: required claim {claim} value does not match. Got = {shown}, want = {wanted}"
        )
