"""The authorizers as configured: from the file (--authorization-config) or from flags."""

from collections.abc import Callable
from pathlib import Path

from orchid.assembly.features import CONTROLLERS
from orchid.features.authorities.authorizers.authority_secrets import AuthoritySecrets
from orchid.features.nodes.authorizers.node import NodeAuthorizer
from orchid.features.rights.authorizers.configuration import (
    WEBHOOK,
    AuthorizerSettings,
    default_name,
)
from orchid.features.rights.authorizers.configured import ROLES, Authorization, Wanted
from orchid.features.rights.authorizers.implied_rights import ImpliedRights
from orchid.features.rights.authorizers.rbac import RBAC
from orchid.features.rights.authorizers.union import ListingAuthorizer
from orchid.features.rights.authorizers.webhook import WebhookSettings
from orchid.kernel.base.clock import Clock
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.settings.given import Given
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.references import SecretReference

FLAGS = (
    "authorization_mode",
    "authorization_webhook_config_file",
    "authorization_webhook_version",
    "authorization_webhook_cache_authorized_ttl",
    "authorization_webhook_cache_unauthorized_ttl",
)


def authorization(
    settings: Settings,
    feed: Feed,
    rbac: RBAC,
    holds_authority_key: Callable[[SecretReference], bool],
    clock: Clock,
) -> Authorization:
    """The authorizers of the settings; raises BadSettings."""
    names, file = settings.names, settings.given.authorization_config
    types: dict[str, Callable[[], ListingAuthorizer]] = {
        ROLES: lambda: rbac,
        "Node": lambda: NodeAuthorizer(names, feed),
    }
    source = _file(settings.given) if file else _flags(settings)
    try:
        return Authorization(
            source,
            types,
            (
                AuthoritySecrets(feed, holds_authority_key, _key_readers(names)),
                ImpliedRights(names, rbac),
            ),
            names=names,
            server=settings.url,
            clock=clock,
        )
    except (ValueError, Refusal) as problem:
        flag = "authorization-config" if file else "authorization-webhook-config-file"
        raise BadSettings(f"--{flag}: {problem}") from None


def _file(given: Given) -> Path:
    usual = Given()
    for name in FLAGS:
        if getattr(given, name) != getattr(usual, name):
            flag = name.replace("_", "-")
            raise BadSettings(f"--authorization-config: not to be given with --{flag}")
    return Path(given.authorization_config)


def _flags(settings: Settings) -> Wanted:
    return tuple(
        _webhook(settings) if mode == WEBHOOK else AuthorizerSettings(mode, default_name(mode))
        for mode in settings.given.authorization_mode
    )


def _webhook(settings: Settings) -> AuthorizerSettings:
    given = settings.given
    if not given.authorization_webhook_config_file:
        raise BadSettings("--authorization-mode: Webhook needs --authorization-webhook-config-file")
    webhook = WebhookSettings(
        version=given.authorization_webhook_version,
        allowed_seconds=settings.webhook_allowed_ttl,
        refused_seconds=settings.webhook_refused_ttl,
        kubeconfig=given.authorization_webhook_config_file,
    )
    return AuthorizerSettings(WEBHOOK, "default", webhook)


def _key_readers(names: Naming) -> list[str]:
    """The users of the controllers that use the keys of certificate authorities."""
    prefix = f"system:serviceaccount:{names.system_namespace}:"
    return [prefix + one.account_name(names) for one in CONTROLLERS if one.reads_authority_keys]
