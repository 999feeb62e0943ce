"""The parts of accounts: the issuer of tokens, their authenticator, and their policies."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from orchid.features.accounts.account_tokens import AccountTokens
from orchid.features.accounts.kinds import token_request, token_review
from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.accounts.policies.bound_object import BoundObject
from orchid.features.accounts.policies.service_account import PodAccount
from orchid.features.accounts.secret_token_uses import SecretTokenUses
from orchid.features.accounts.settings import AccountSettings
from orchid.features.accounts.token_issuer import (
    InvalidIssuingSettings,
    IssuingSettings,
    TokenIssuer,
)
from orchid.features.accounts.token_lifetimes import TokenLifetimes
from orchid.features.ledger.settings import LedgerSettings
from orchid.features.ledger.token_counts import TokenCounts
from orchid.features.objects.parts import ServerNamespaces
from orchid.features.revocation.revocations import Revocations
from orchid.features.token_keys.followed_keys import FollowedKeys
from orchid.features.token_keys.long_tokens import LongTokens
from orchid.features.token_keys.ports import AcceptedTokens
from orchid.kernel.context import SERVER, Context, ServerPart
from orchid.kernel.engine.interfaces import AdmissionPolicy, TokenAuthenticator
from orchid.kernel.engine.kind import Endpoint, Kind
from orchid.kernel.feature import Background
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.wire.meta import Object


class TokenRequestCounts(NamedTuple):
    """Counts the requests for tokens, as a later feature does."""

    counting: Callable[[Endpoint], Endpoint]


def _issuer(context: Context) -> TokenIssuer:
    settings, options = context.settings, context.settings.given.of(AccountSettings)
    try:
        issuing = IssuingSettings(
            api_audiences=settings.api_audiences,
            longest_seconds=int(options.service_account_max_token_expiration.seconds),
            extends_lifetime=options.service_account_extend_token_expiration,
        )
    except InvalidIssuingSettings as problem:
        raise BadSettings(str(problem)) from None
    issuer = TokenIssuer(
        issuing,
        context.port(FollowedKeys).keys.signer,
        context.feed,
        context.random,
        counted=context.port(TokenCounts).counter(settings.given.of(LedgerSettings).ledger_tokens),
        revocations=context.port(Revocations),
        lifetimes=context.port(TokenLifetimes),
        long_tokens=context.port(LongTokens),
    )
    context.closing.append(issuer.close)
    return issuer


def _lifetimes(context: Context) -> TokenLifetimes:
    return TokenLifetimes(context.feed, lambda: context.local, context.naming, context.clock)


def _secret_token_uses(context: Context) -> SecretTokenUses:
    return SecretTokenUses(context.clients.of_user(SERVER), context.clock, context.naming)


def _accepted(context: Context) -> AcceptedTokens:
    tokens = context.port(AccountTokens).authenticator
    return AcceptedTokens(tokens.verifications, context.port(TokenLifetimes).longest_until_now)


PARTS = (
    ServerPart(TokenLifetimes, _lifetimes),
    ServerPart(TokenIssuer, _issuer),
    ServerPart(AccountTokens, AccountTokens),
    ServerPart(SecretTokenUses, _secret_token_uses),
    ServerPart(AcceptedTokens, _accepted),
)


def token_authenticators(context: Context) -> Iterable[TokenAuthenticator]:
    yield context.port(AccountTokens).authenticator


def policies(context: Context) -> Iterable[AdmissionPolicy]:
    ensure = context.port(ServerNamespaces).on_use
    yield PodAccount(context.naming, context.feed, context.random, ensure)
    yield BoundObject(context.authorizer)


def served_kinds(context: Context) -> Iterable[Kind[Any]]:
    audiences, monotonic = context.settings.api_audiences, context.clock.monotonic
    yield from token_review.declare(context.naming, context.tokens, audiences, monotonic)


def endpoints(context: Context) -> Mapping[type[Object], Endpoint]:
    token = token_request.declare(context.naming, context.port(TokenIssuer))
    counts = context.optional(TokenRequestCounts)
    return {ServiceAccount: counts.counting(token) if counts else token}


async def prepare(context: Context) -> None:
    await context.port(TokenLifetimes).begin()


def background(context: Context, controls: bool) -> Iterable[Background]:
    yield Background(run=context.port(SecretTokenUses).run)
