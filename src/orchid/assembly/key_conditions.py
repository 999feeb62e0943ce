"""Conditions of the steps of SigningKeys: the counts and waiting times of each purpose."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from orchid.access.authority_keys import AuthorityKeyIndex
from orchid.access.token_secrets import TokenSecrets
from orchid.admission.signing_keys.conditions import (
    AuthorityKeyConditions,
    KeyConditions,
    TokenKeyConditions,
)
from orchid.engine.cache.feed import Feed
from orchid.issuance.metrics.inventory import IssuedCounts
from orchid.issuance.token_keys.long_tokens import LongTokens
from orchid.kinds.certificate_authority import CertificateAuthority
from orchid.kinds.published_bundle import PublishedBundle
from orchid.kinds.signing_key import SigningKey
from orchid.settings.checking import Settings
from orchid.wire.signing_key_status import KeyDependents


def key_conditions(
    settings: Settings,
    feed: Feed,
    *,
    tokens: LongTokens,
    issued: IssuedCounts,
    authority_keys: AuthorityKeyIndex,
) -> Callable[[SigningKey], KeyConditions]:
    """The conditions for a key, by its purpose."""
    publish = timedelta(seconds=settings.token_key_publish_time)
    authorities, bundles = feed.of(CertificateAuthority), feed.of(PublishedBundle)

    def live_certificates(key: SigningKey) -> KeyDependents:
        authority = authorities.get("", key.spec.authority)
        signers = authority.object.signers if authority else ()
        found = issued.of_key(key.key_id, signers)
        end = datetime.fromtimestamp(found.end, UTC) if found.live else None
        return KeyDependents(live=found.live, end=end)

    def refresh_hint(authority: str) -> timedelta:
        bundle = bundles.get("", authority)
        return timedelta(seconds=(bundle.object if bundle else PublishedBundle()).refresh_seconds)

    secrets_of = TokenSecrets(feed, settings.names).of_key
    of_tokens = TokenKeyConditions(tokens.dependents, secrets_of, publish, settings.keys_elsewhere)
    of_authorities = AuthorityKeyConditions(
        live_certificates, authority_keys.of, authority_keys.below, publish, refresh_hint
    )
    return lambda key: of_authorities if key.spec.authority else of_tokens
