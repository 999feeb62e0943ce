"""The pages about tokens: OAuth introspection and revocation, and the documents of the issuer."""

import logging
from typing import NamedTuple

from orchid.features.accounts.account_tokens import AccountTokens
from orchid.features.introspection import introspection, metadata, revocation
from orchid.features.introspection.callers import Callers
from orchid.features.introspection.introspection import Introspection
from orchid.features.introspection.revocation import TokenRevocation
from orchid.features.rights.parts import ListedRights
from orchid.features.token_keys.followed_keys import FollowedKeys
from orchid.features.token_keys.settings import TokenKeySettings
from orchid.kernel.context import SERVER, Context
from orchid.kernel.credentials.tokens import KeySet
from orchid.kernel.server.pages import openid
from orchid.kernel.server.pages.site import Page, openid_page

log = logging.getLogger(__name__)


class TokenEndpoint(NamedTuple):
    """The endpoint of token exchange, which a later feature may have."""

    path: str


def pages(context: Context) -> dict[str, Page]:
    return {**_oauth_pages(context), **_issuer_documents(context)}


def _oauth_pages(context: Context) -> dict[str, Page]:
    """Introspection and revocation of tokens, by path."""
    settings, tokens = context.settings, context.tokens
    audiences = settings.api_audiences
    callers = Callers(tokens, audiences)
    return {
        introspection.PATH: Introspection(
            context.naming,
            callers,
            tokens,
            context.port(ListedRights).authorizer,
            issuers=settings.issuers,
            api_audiences=audiences,
        ),
        revocation.PATH: TokenRevocation(
            context.naming,
            callers,
            context.port(AccountTokens).authenticator,
            acting=context.clients.acting,
            server=SERVER,
            monotonic=context.clock.monotonic,
        ),
    }


def _issuer_documents(context: Context) -> dict[str, Page]:
    """Documents about the issuer of tokens; none if its URL or a key does not allow them."""
    settings, keys = context.settings, context.port(FollowedKeys).keys
    issuer = settings.issuers[0]
    published = settings.given.of(TokenKeySettings)
    uri = str(published.service_account_jwks_uri) or openid.default_jwks_uri(issuer)
    problem = openid.problem_with(issuer, uri)
    if problem:
        log.warning("openid.not_served: %s", problem)
        return {}

    def verifying() -> KeySet:
        return keys.verifying

    exchanges = context.optional(TokenEndpoint) is not None
    age = published.service_account_jwks_max_age.seconds
    described = metadata.document(issuer, uri, exchanges=exchanges)
    return {
        openid.CONFIGURATION_PATH: openid_page(
            verifying, lambda keys: openid.configuration(issuer, uri, keys.keys), age
        ),
        openid.KEY_SET_PATH: openid_page(verifying, lambda keys: openid.key_set(keys.keys), age),
        metadata.PATH: openid_page(verifying, lambda _: described, age),
    }
