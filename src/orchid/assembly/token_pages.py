"""Pages about tokens: OAuth introspection and revocation, and the documents of the issuer."""

import logging

from orchid.assembly.access import Access
from orchid.features.introspection import introspection, metadata, revocation
from orchid.features.introspection.callers import Callers
from orchid.features.introspection.introspection import Introspection
from orchid.features.introspection.revocation import Acting, TokenRevocation
from orchid.features.token_keys.token_keys import TokenKeys
from orchid.kernel.base.clock import Monotonic
from orchid.kernel.credentials.tokens import KeySet
from orchid.kernel.server.pages import openid
from orchid.kernel.server.pages.site import Page, openid_page
from orchid.kernel.settings.checking import Settings
from orchid.kernel.wire.user import UserInfo

log = logging.getLogger(__name__)


def oauth_pages(
    settings: Settings, access: Access, *, acting: Acting, server: UserInfo, monotonic: Monotonic
) -> dict[str, Page]:
    """Introspection and revocation of tokens, by path."""
    audiences, tokens = settings.api_audiences, access.tokens
    callers = Callers(tokens, audiences)
    return {
        introspection.PATH: Introspection(
            settings.names,
            callers,
            tokens,
            access.authorizer,
            issuers=settings.issuers,
            api_audiences=audiences,
        ),
        revocation.PATH: TokenRevocation(
            settings.names,
            callers,
            access.account_tokens,
            acting=acting,
            server=server,
            monotonic=monotonic,
        ),
    }


def issuer_documents(settings: Settings, keys: TokenKeys, *, exchanges: bool) -> dict[str, Page]:
    """Documents about the issuer of tokens; none if its URL or a key does not allow them."""
    issuer = settings.issuers[0]
    uri = str(settings.given.service_account_jwks_uri) or openid.default_jwks_uri(issuer)
    problem = openid.problem_with(issuer, uri)
    if problem:
        log.warning("openid.not_served: %s", problem)
        return {}

    def verifying() -> KeySet:
        return keys.verifying

    age, described = settings.jwks_max_age, metadata.document(issuer, uri, exchanges=exchanges)
    return {
        openid.CONFIGURATION_PATH: openid_page(
            verifying, lambda found: openid.configuration(issuer, uri, found.keys), age
        ),
        openid.KEY_SET_PATH: openid_page(verifying, lambda found: openid.key_set(found.keys), age),
        metadata.PATH: openid_page(verifying, lambda _: described, age),
    }
