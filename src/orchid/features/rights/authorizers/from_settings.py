"""The authorizers as configured: from the file (--authorization-config) or from flags."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from orchid.features.rights.authorizers.configuration import (
    WEBHOOK,
    AuthorizerSettings,
    default_name,
)
from orchid.features.rights.authorizers.configured import Authorization, Wanted
from orchid.features.rights.authorizers.union import ListingAuthorizer
from orchid.features.rights.authorizers.webhook import WebhookSettings
from orchid.kernel.base.clock import Clock
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.settings.given import Given

FLAGS = (
    "authorization_mode",
    "authorization_webhook_config_file",
    "authorization_webhook_version",
    "authorization_webhook_cache_authorized_ttl",
    "authorization_webhook_cache_unauthorized_ttl",
)


def authorization(
    settings: Settings,
    types: Mapping[str, Callable[[], ListingAuthorizer]],
    after_roles: Iterable[ListingAuthorizer],
    clock: Clock,
) -> Authorization:
    """The authorizers of the settings; raises BadSettings.

    `types`: those that are no webhooks, by mode. `after_roles`: those that are asked after roles.
    """
    file = settings.given.authorization_config
    source = _file(settings.given) if file else _flags(settings)
    try:
        return Authorization(
            source, types, after_roles, naming=settings.naming, server=settings.url, clock=clock
        )
    except (ValueError, Refusal) as problem:
        flag = "authorization-config" if file else "authorization-webhook-config-file"
        raise BadSettings(f"--{flag}: {problem}") from None


def _file(options: Given) -> Path:
    usual = Given()
    for name in FLAGS:
        if getattr(options, name) != getattr(usual, name):
            flag = name.replace("_", "-")
            raise BadSettings(f"--authorization-config: not to be given with --{flag}")
    return Path(options.authorization_config)


def _flags(settings: Settings) -> Wanted:
    return tuple(
        _webhook(settings) if mode == WEBHOOK else AuthorizerSettings(mode, default_name(mode))
        for mode in settings.given.authorization_mode
    )


def _webhook(settings: Settings) -> AuthorizerSettings:
    options = settings.given
    if not options.authorization_webhook_config_file:
        raise BadSettings("--authorization-mode: Webhook needs --authorization-webhook-config-file")
    webhook = WebhookSettings(
        version=options.authorization_webhook_version,
        allowed_seconds=settings.webhook_allowed_ttl,
        refused_seconds=settings.webhook_refused_ttl,
        kubeconfig=options.authorization_webhook_config_file,
    )
    return AuthorizerSettings(WEBHOOK, "default", webhook)
