"""Settings of the keys that sign tokens."""

from typing import Annotated, ClassVar

from orchid.features.sealing.settings import is_unsealed
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.settings.given import Given, Help, Many
from orchid.kernel.settings.section import Section
from orchid.kernel.settings.values import Choice, Duration, Url

STORED, FILES = "stored", "files"  # where token keys are


class TokenKeys(Choice):
    choices = ("", STORED, FILES)


class TokenKeySettings(Section, frozen=True):
    after: ClassVar = "api-audiences"

    service_account_signing_key_file: Annotated[
        str, Help(description="Key that signs tokens. Default: created in the data directory.")
    ] = ""
    service_account_key_file: Annotated[
        Many, Help(description="Keys that verify tokens. Default: the signing key.")
    ] = ()
    service_account_jwks_uri: Annotated[
        Url, Help(description="URL of the token keys. Default: under the first issuer.")
    ] = Url("")
    service_account_jwks_max_age: Annotated[
        Duration, Help(description="How long verifiers may cache the published keys.")
    ] = Duration("1h")
    token_keys: Annotated[
        TokenKeys,
        Help(
            description="stored: token keys are SigningKey objects and rotate; files: they are the "
            "files of the flags above. Default: stored, unless those flags are given or Secrets "
            "are not sealed."
        ),
    ] = TokenKeys("")
    token_key_rotation: Annotated[
        Duration,
        Help(
            description="How long a stored token key signs before its successor does; 0: by hand."
        ),
    ] = Duration("2160h")
    token_key_publish_time: Annotated[
        Duration,
        Help(
            description="How long a stored token key is published before it may sign; not below "
            "the max-age of the published keys."
        ),
    ] = Duration("24h")

    def refuse_contradictions(self, written: Given) -> None:
        if self.token_key_publish_time.seconds < self.service_account_jwks_max_age.seconds:
            raise BadSettings(
                "--token-key-publish-time: must not be below --service-account-jwks-max-age, for "
                "which verifiers cache the published keys"
            )
        if stores_token_keys(written) and is_unsealed(written):
            raise BadSettings(
                "--token-keys: stored keys are in Secrets, which are not sealed in etcd; start "
                "every server with the same --encryption-provider-config"
            )


def stores_token_keys(written: Given) -> bool:
    """Whether token keys are SigningKey objects; otherwise they are files."""
    options = written.of(TokenKeySettings)
    if options.token_keys:
        return options.token_keys == STORED
    has_files = options.service_account_signing_key_file or options.service_account_key_file
    return not has_files and not is_unsealed(written)


def keys_elsewhere(settings: Settings) -> str:
    """The URL of the published token keys, if it is not this server's."""
    uri = settings.given.of(TokenKeySettings).service_account_jwks_uri
    return "" if uri.startswith(settings.url) else uri
