"""The parts of sign-in: tokens of files, of bootstrap Secrets, of OpenID Connect, of a webhook."""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from orchid.features.revocation.revocations import Revocations
from orchid.features.sign_in.authenticators.bootstrap_token import BootstrapTokenAuthenticator
from orchid.features.sign_in.authenticators.static_token import StaticTokenAuthenticator
from orchid.features.sign_in.authenticators.webhook_token import (
    WebhookTimes,
    WebhookTokenAuthenticator,
)
from orchid.features.sign_in.settings import SignInSettings
from orchid.kernel.access.json_endpoint import JsonEndpoint
from orchid.kernel.context import Context, ServerPart
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.token_claims import Payload
from orchid.kernel.engine.interfaces import TokenAuthenticator
from orchid.kernel.feature import Background
from orchid.kernel.outbound.remote import FollowedKubeconfig
from orchid.kernel.settings.errors import BadSettings

if TYPE_CHECKING:
    from orchid.features.sign_in.oidc.authenticator import OidcAuthenticator


class OutsideIssuers(NamedTuple):
    """The authenticator of tokens of external issuers, and the anonymous paths of its file."""

    authenticator: "OidcAuthenticator | None" = None
    anonymous_paths: tuple[str, ...] | None = None  # None: not configured

    @property
    def urls(self) -> Collection[str]:
        return self.authenticator.sources.keys() if self.authenticator else ()

    def username_of(self, issuer: str, claims: Payload) -> str:
        """The user of a verified token of an external issuer; "" if it authenticates none."""
        return self.authenticator.username_of(issuer, claims) if self.authenticator else ""


def _outside_issuers(context: Context) -> OutsideIssuers:
    if not context.settings.given.of(SignInSettings).has_outside_issuers:
        return OutsideIssuers()
    from orchid.features.sign_in import outside_issuers  # noqa: PLC0415 -- most servers have none

    return OutsideIssuers(
        *outside_issuers.configured(context.settings, context.clock, context.port(Revocations))
    )


PARTS = (ServerPart(OutsideIssuers, _outside_issuers),)


def token_authenticators(context: Context) -> Iterable[TokenAuthenticator]:
    options = context.settings.given.of(SignInSettings)
    audiences = context.settings.api_audiences
    revocations = context.port(Revocations)
    if options.token_auth_file:
        try:
            path = Path(options.token_auth_file)
            yield StaticTokenAuthenticator.load(path, audiences, revocations)
        except ValueError as problem:
            raise BadSettings(f"--token-auth-file: {problem}") from None
    yield BootstrapTokenAuthenticator(
        context.feed, context.clock, audiences, context.naming, revocations
    )
    oidc = context.port(OutsideIssuers).authenticator
    if oidc is not None:
        yield oidc
    if options.authentication_token_webhook_config_file:
        yield _webhook(context, options)


def _webhook(context: Context, options: SignInSettings) -> TokenAuthenticator:
    """A webhook, as its kubeconfig describes it now."""
    cached = options.authentication_token_webhook_cache_ttl.delta
    kubeconfig = Path(options.authentication_token_webhook_config_file)
    try:
        endpoint = JsonEndpoint(FollowedKubeconfig(kubeconfig, context.clock.monotonic))
    except (ValueError, Refusal) as problem:
        raise BadSettings(f"--authentication-token-webhook-config-file: {problem}") from None
    return WebhookTokenAuthenticator(
        endpoint.post_patiently,
        context.clock,
        context.settings.api_audiences,
        context.naming,
        WebhookTimes(cached, cached),
        revocations=context.port(Revocations),
    )


def background(context: Context, controls: bool) -> Iterable[Background]:
    oidc = context.port(OutsideIssuers).authenticator
    if oidc is not None:
        yield Background(run=oidc.run)
