"""The parts of authorities: their keys, the signers that they have, and their policies."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from orchid.features.accounts.token_secrets import TokenSecrets
from orchid.features.authorities.authorities_metrics import AuthorityEnds
from orchid.features.authorities.authority_keys import AuthorityKeyIndex
from orchid.features.authorities.authorizers.authority_secrets import AuthoritySecrets
from orchid.features.authorities.file_authorities import FileAuthorityObjects
from orchid.features.authorities.file_signers import file_authorities, signing_certificates
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.authorities.platform_authority import PlatformAuthority
from orchid.features.authorities.platform_issuers import PlatformIssuers
from orchid.features.authorities.policies.authority_names import AuthorityNames
from orchid.features.authorities.policies.dependents import AuthorityDependents
from orchid.features.authorities.policies.own_signers import OwnSigners
from orchid.features.authorities.policies.unsealed_keys import REFUSAL, UnsealedKeys
from orchid.features.authorities.settings import AuthoritySettings, stores_authority
from orchid.features.authorities.signer_authorities import SignerAuthorities
from orchid.features.objects.server_leases import ServerLeases
from orchid.features.revocation.revocations import Revocations
from orchid.features.sealing.settings import is_unsealed
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.features.token_keys.long_tokens import LongTokens
from orchid.features.token_keys.policies.conditions import (
    AuthorityKeyConditions,
    KeyConditions,
    TokenKeyConditions,
)
from orchid.features.token_keys.ports import HsmKeys, KeysOfAuthorities
from orchid.features.token_keys.settings import TokenKeySettings, keys_elsewhere
from orchid.features.trust_bundles.kinds.published_bundle import PublishedBundle
from orchid.kernel.base.metrics import Metric
from orchid.kernel.context import AuthorizerOffer, Components, Context, ServerPart
from orchid.kernel.credentials.authorities.hsm import NO_HSM, Hsm, HsmSettings, KeysOfHsm
from orchid.kernel.engine.interfaces import AdmissionPolicy
from orchid.kernel.feature import Background
from orchid.kernel.settings.checking import Settings
from orchid.kernel.wire.references import SecretReference, belongs_to
from orchid.kernel.wire.signing_key_status import KeyDependents


class CertificatesInUse(NamedTuple):
    """Counts of valid certificates in the inventory, which a later feature has."""

    of_signer: Callable[[str], int]
    # The number of a key's certificates, and the last expiry; with the signers of its authority.
    of_key: Callable[[str, Iterable[str]], tuple[int, float]]


def hsm_of(settings: Settings) -> KeysOfHsm:
    """The HSM of the settings. A process has one: two would end each other's sessions."""
    options = settings.given.of(AuthoritySettings)
    if not options.pkcs11_module:
        return NO_HSM
    module, pin_file = Path(options.pkcs11_module), Path(options.pkcs11_pin_file)
    return Hsm(HsmSettings(module, options.pkcs11_token, pin_file))


def _signer_authorities(context: Context) -> SignerAuthorities:
    return SignerAuthorities(context.feed.of(CertificateAuthority), context.naming)


def _key_index(context: Context) -> AuthorityKeyIndex:
    return AuthorityKeyIndex(
        context.feed.of(SigningKey),
        context.feed.of(CertificateAuthority),
        context.naming,
        has_hsm=bool(context.settings.given.of(AuthoritySettings).pkcs11_module),
    )


def _platform(context: Context) -> PlatformAuthority | None:
    """The authority `cluster`; None if the CAs of the platform are files."""
    if not stores_authority(context.settings.given):
        return None
    return PlatformAuthority(
        context.naming,
        context.feed,
        context.port(AuthorityKeyIndex),
        context.port(Revocations),
        context.files.ca_certificate,
        hsm=context.port(HsmKeys).keys,
    )


def _file_objects(context: Context) -> FileAuthorityObjects:
    return FileAuthorityObjects(
        file_authorities(context.settings, context.files),
        context.feed,
        context.store,
        clock=context.clock,
        randomness=context.random,
        keys=context.port(AuthorityKeyIndex),
        shown=context.port(SignerAuthorities),
        servers=context.port(ServerLeases).live,
    )


def _keys_of_authorities(context: Context) -> KeysOfAuthorities:
    return KeysOfAuthorities(context.port(AuthorityKeyIndex).of, _conditions(context), REFUSAL)


def _platform_issuers(context: Context) -> PlatformIssuers:
    return PlatformIssuers(signing_certificates(context.settings, context.files))


PARTS = (
    ServerPart(SignerAuthorities, _signer_authorities),
    ServerPart(AuthorityKeyIndex, _key_index),
    ServerPart(PlatformAuthority, _platform),
    ServerPart(HsmKeys, lambda context: HsmKeys(hsm_of(context.settings))),
    ServerPart(PlatformIssuers, _platform_issuers),
    ServerPart(FileAuthorityObjects, _file_objects),
    ServerPart(KeysOfAuthorities, _keys_of_authorities),
)


def _conditions(context: Context) -> Callable[[SigningKey], KeyConditions]:
    """The conditions of the steps of SigningKeys, by purpose: counts and waiting times."""
    settings, feed, keys = context.settings, context.feed, context.port(AuthorityKeyIndex)
    in_use = context.port(CertificatesInUse)
    publish = settings.given.of(TokenKeySettings).token_key_publish_time.delta
    authorities, bundles = feed.of(CertificateAuthority), feed.of(PublishedBundle)
    default_hint = timedelta(seconds=PublishedBundle().refresh_seconds)

    def live_certificates(key: SigningKey) -> KeyDependents:
        entry = authorities.get("", key.spec.authority)
        is_owned = entry is not None and belongs_to(key, entry.object)
        signers = entry.object.signers if entry and is_owned else ()
        live, end = in_use.of_key(key.key_id, signers)
        return KeyDependents(live=live, end=datetime.fromtimestamp(end, UTC) if live else None)

    def refresh_hint(authority: str) -> timedelta:
        bundle, owner = bundles.get("", authority), authorities.get("", authority)
        # Nobody owns the bundles of the platform; the server creates them at its first start.
        if bundle is None or owner is None:
            return default_hint
        is_own = owner.object.is_platform or belongs_to(bundle.object, owner.object)
        return timedelta(seconds=bundle.object.refresh_seconds) if is_own else default_hint

    tokens, secrets_of = context.port(LongTokens), TokenSecrets(feed, context.naming).of_key
    of_tokens = TokenKeyConditions(tokens.dependents, secrets_of, publish, keys_elsewhere(settings))
    of_authorities = AuthorityKeyConditions(
        live_certificates, keys.of, keys.below, publish, refresh_hint
    )
    return lambda key: of_authorities if key.spec.authority else of_tokens


def authorizers(context: Context) -> Iterable[AuthorizerOffer]:
    """Secrets with the keys of authorities can be read by few."""
    naming = context.naming
    prefix = f"system:serviceaccount:{naming.system_namespace}:"
    readers = [
        prefix + each.account_name(naming)
        for each in context.port(Components).all
        if each.reads_authority_keys
    ]

    def holds_key(secret: SecretReference) -> bool:
        """Whether the key of an authority is in a Secret."""
        authorities, keys = context.port(SignerAuthorities), context.port(AuthorityKeyIndex)
        return authorities.is_named(secret) or keys.is_named(secret)

    yield AuthorizerOffer("", lambda: AuthoritySecrets(context.feed, holds_key, readers))


def policies(context: Context) -> Iterable[AdmissionPolicy]:
    if is_unsealed(context.settings.given):
        yield UnsealedKeys()
    yield OwnSigners(
        context.naming,
        context.authorizer,
        context.feed,
        context.port(SignerAuthorities).of,
        stores_platform=stores_authority(context.settings.given),
    )
    yield AuthorityNames(context.feed, context.port(AuthorityKeyIndex).named)
    yield AuthorityDependents(context.feed, context.port(CertificatesInUse).of_signer)


def metrics(context: Context) -> Iterable[Metric]:
    return (AuthorityEnds(context.feed.of(CertificateAuthority)),)


def background(context: Context, controls: bool) -> Iterable[Background]:
    if controls:
        yield Background(run=context.port(FileAuthorityObjects).run)
