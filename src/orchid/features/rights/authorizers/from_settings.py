"""The authorizers as configured: from the file (--authorization-config) or from flags."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from orchid.features.rights.authorizers.configuration import (
    WEBHOOK,
    AuthorizerSettings,
    default_name,
)
from orchid.features.rights.authorizers.configured import Authorization, Wanted
from orchid.features.rights.authorizers.union import ListingAuthorizer
from orchid.features.rights.authorizers.webhook import WebhookSettings
from orchid.features.rights.settings import RightsSettings
from orchid.kernel.base.clock import Clock
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.errors import BadSettings


def authorization(
    settings: Settings,
    types: Mapping[str, Callable[[], ListingAuthorizer]],
    after_roles: Iterable[ListingAuthorizer],
    clock: Clock,
) -> Authorization:
    """The authorizers of the settings; raises BadSettings.

    `types`: those that are no webhooks, by mode. `after_roles`: those that are asked after roles.
    """
    options = settings.given.of(RightsSettings)
    file = options.authorization_config
    source = _file(options) if file else _flags(options)
    try:
        return Authorization(
            source, types, after_roles, naming=settings.naming, server=settings.url, clock=clock
        )
    except (ValueError, Refusal) as problem:
        flag = "authorization-config" if file else "authorization-webhook-config-file"
        raise BadSettings(f"--{flag}: {problem}") from None


def _file(options: RightsSettings) -> Path:
    for field in msgspec.structs.fields(RightsSettings):
        is_flag = field.name != "authorization_config"
        if is_flag and getattr(options, field.name) != field.default:
            raise BadSettings(f"--authorization-config: not to be given with --{field.encode_name}")
    return Path(options.authorization_config)


def _flags(options: RightsSettings) -> Wanted:
    return tuple(
        _webhook(options) if mode == WEBHOOK else AuthorizerSettings(mode, default_name(mode))
        for mode in options.authorization_mode
    )


def _webhook(options: RightsSettings) -> AuthorizerSettings:
    if not options.authorization_webhook_config_file:
        raise BadSettings("--authorization-mode: Webhook needs --authorization-webhook-config-file")
    webhook = WebhookSettings(
        version=options.authorization_webhook_version,
        allowed_seconds=options.authorization_webhook_cache_authorized_ttl.seconds,
        refused_seconds=options.authorization_webhook_cache_unauthorized_ttl.seconds,
        kubeconfig=options.authorization_webhook_config_file,
    )
    return AuthorizerSettings(WEBHOOK, "default", webhook)
