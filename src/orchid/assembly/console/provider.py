"""The OpenID Connect provider of the console: one of the external issuers of the server."""

from pathlib import Path
from typing import Final

from orchid.features.console.settings import ConsoleSettings
from orchid.features.console.sign_in.openid import OpenIdProvider, OpenIdSettings, calling
from orchid.features.console.sign_in.served import CALLBACK
from orchid.features.sign_in import outside_issuers
from orchid.features.sign_in.oidc.configuration import IssuerSettings
from orchid.kernel.base.clock import Monotonic
from orchid.kernel.credentials.files import read_private
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.secret import SecretValue
from orchid.kernel.outbound.remote import InvalidRemote, Remote, trusting
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.errors import BadSettings

LARGEST_SECRET: Final = 4096


def openid_provider(settings: Settings, monotonic: Monotonic) -> OpenIdProvider:
    """The provider of the configured issuer; raises BadSettings."""
    options = settings.given.of(ConsoleSettings)
    issuer = _issuer(settings)
    client = options.console_oidc_client_id or (
        issuer.audiences[0] if len(issuer.audiences) == 1 else ""
    )
    if client not in issuer.audiences:
        raise BadSettings(
            f"--console-oidc-client-id: {client!r} is not an audience of {issuer.url}, so the "
            "server would not accept the tokens"
        )
    secret_file = options.console_oidc_client_secret_file
    try:
        tls = trusting(issuer.authorities)
    except InvalidRemote as problem:
        raise BadSettings(f"--console-oidc-issuer: {problem}") from None
    if secret_file:
        _secret(Path(secret_file))
    return OpenIdProvider(
        OpenIdSettings(
            issuer.url,
            issuer.configuration_url,
            client,
            f"{options.console_url.rstrip('/')}{CALLBACK}",
            options.console_oidc_scopes,
        ),
        calling(lambda url: Remote(url, tls)),
        monotonic,
        lambda: _secret(Path(secret_file)) if secret_file else None,
    )


def _issuer(settings: Settings) -> IssuerSettings:
    issuers = outside_issuers.read(settings).issuers
    url = settings.given.of(ConsoleSettings).console_oidc_issuer
    if not url and len(issuers) == 1:
        url = issuers[0].url
    match = next((issuer for issuer in issuers if issuer.url == url), None)
    if match is None:
        names = ", ".join(issuer.url for issuer in issuers) or "none"
        raise BadSettings(
            f"--console-oidc-issuer: {url!r} is not an external issuer of this server: {names}"
        )
    return match


def _secret(path: Path) -> SecretValue:
    try:
        return SecretValue(read_private(path, LARGEST_SECRET).decode("ascii").strip())
    except (Refusal, UnicodeDecodeError) as problem:
        raise BadSettings(f"--console-oidc-client-secret-file: {problem}") from None
