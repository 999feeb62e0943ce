"""Token exchange (RFC 8693): tokens of outside issuers for tokens of accounts.

Kinds      TokenExchangePolicy, TokenExchangeReview
Pages      /oauth2/token
Uses       ledger, rights, revocation, sign_in, approval, accounts, introspection
Read first exchanger.py
"""

from collections.abc import Collection, Iterable
from typing import Any, Final

from orchid.features.exchange.kinds import token_exchange_policy, token_exchange_review
from orchid.features.exchange.policies.exchange_policy_authors import ExchangePolicyAuthors
from orchid.features.exchange.ports import ConfiguredExchange
from orchid.features.exchange.roles import roles
from orchid.features.exchange.settings import ExchangeSettings
from orchid.features.introspection.parts import TokenEndpoint
from orchid.kernel.base.metrics import Metric
from orchid.kernel.context import Context, ServerPart
from orchid.kernel.engine.interfaces import AdmissionPolicy
from orchid.kernel.engine.kind import Kind
from orchid.kernel.feature import Background, Feature
from orchid.kernel.server.pages.site import Page

PATH: Final = "/oauth2/token"


def _settings(context: Context) -> ExchangeSettings:
    return context.settings.given.of(ExchangeSettings)


def _exchange(context: Context) -> ConfiguredExchange | None:
    if not _settings(context).token_exchange_config:
        return None
    from orchid.features.exchange.parts import TokenExchangeParts  # noqa: PLC0415 -- often off

    return ConfiguredExchange(TokenExchangeParts(context))


def _endpoint(context: Context) -> TokenEndpoint | None:
    return TokenEndpoint(PATH) if _settings(context).token_exchange_config else None


def _policies(context: Context) -> Iterable[AdmissionPolicy]:
    options = _settings(context)

    def issuers() -> Collection[str]:
        exchange = context.optional(ConfiguredExchange)
        return exchange.issuers if exchange else ()

    yield ExchangePolicyAuthors(
        context.authorizer,
        issuers,
        is_on=bool(options.token_exchange_config),
        is_strict=options.token_exchange_strict,
    )


def _served_kinds(context: Context) -> Iterable[Kind[Any]]:
    def explainer() -> token_exchange_review.ExchangeExplainer | None:
        exchange = context.optional(ConfiguredExchange)
        return exchange.parts.explainer if exchange else None

    yield token_exchange_review.declare(context.naming, explainer)


def _anonymous_paths(context: Context) -> tuple[str, ...]:
    """Clients of the exchange have no credential of this server."""
    return (PATH,) if _settings(context).token_exchange_config else ()


def _pages(context: Context) -> dict[str, Page]:
    exchange = context.optional(ConfiguredExchange)
    return {PATH: exchange.parts.page} if exchange else {}


def _metrics(context: Context) -> Iterable[Metric]:
    exchange = context.optional(ConfiguredExchange)
    return (exchange.parts.exchanger.exchanges,) if exchange else ()


def _background(context: Context, controls: bool) -> Iterable[Background]:
    exchange = context.optional(ConfiguredExchange)
    if exchange is not None:
        yield Background(run=exchange.parts.run, leave=exchange.parts.leave)


FEATURE = Feature(
    name="exchange",
    kinds=(token_exchange_policy.declare,),
    roles=roles,
    permission_kinds=(token_exchange_policy.TokenExchangePolicy,),
    served_kinds=_served_kinds,
    provides=(ServerPart(ConfiguredExchange, _exchange), ServerPart(TokenEndpoint, _endpoint)),
    policies=_policies,
    pages=_pages,
    pages_by_address=(PATH,),
    anonymous_paths=_anonymous_paths,
    metrics=_metrics,
    background=_background,
    documentation="ci.md",
)
