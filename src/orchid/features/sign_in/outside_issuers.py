"""External issuers of tokens: OIDC, from the file or from the flags."""

from pathlib import Path

from orchid.features.revocation.revocations import Revocations
from orchid.features.sign_in.oidc.authenticator import OidcAuthenticator
from orchid.features.sign_in.oidc.configuration import Configuration, from_flags, read_configuration
from orchid.features.sign_in.settings import SignInSettings
from orchid.kernel.base.clock import Clock
from orchid.kernel.credentials.files import read_bounded
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.settings.trusted_files import authorities


def configured(
    settings: Settings, clock: Clock, revocations: Revocations
) -> tuple[OidcAuthenticator | None, tuple[str, ...] | None]:
    """The authenticator of their tokens, and the anonymous paths of the file, if it has any."""
    configuration = read(settings)
    if not configuration.issuers:
        return None, configuration.anonymous_paths
    audiences, naming = settings.api_audiences, settings.naming
    oidc = OidcAuthenticator(
        configuration.issuers, clock, audiences, naming, revocations=revocations
    )
    return oidc, configuration.anonymous_paths


def read(settings: Settings) -> Configuration:
    """The configured issuers; raises BadSettings."""
    options = settings.given.of(SignInSettings)
    try:
        return _read(options, settings)
    except BadSettings:
        raise
    except (ValueError, Refusal) as problem:
        flag = "authentication-config" if options.authentication_config else "oidc-issuer-url"
        raise BadSettings(f"--{flag}: {problem}") from None


def _read(options: SignInSettings, settings: Settings) -> Configuration:
    own = settings.issuers
    if options.authentication_config:
        text = read_bounded(Path(options.authentication_config))
        return read_configuration(text, settings.naming, own)
    issuer = from_flags(
        issuer_url=options.oidc_issuer_url,
        client_id=options.oidc_client_id,
        username_claim=options.oidc_username_claim,
        username_prefix=options.oidc_username_prefix,
        groups_claim=options.oidc_groups_claim,
        groups_prefix=options.oidc_groups_prefix,
        required_claims=options.oidc_required_claim,
        signing_algorithms=options.oidc_signing_algs,
        authorities=authorities("oidc-ca-file", options.oidc_ca_file),
        own_issuers=own,
    )
    return Configuration((issuer,))
