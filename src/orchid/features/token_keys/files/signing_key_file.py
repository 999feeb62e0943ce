"""The file with the key that signs tokens."""

from pathlib import Path

from orchid.features.token_keys.settings import TokenKeySettings, stores_token_keys
from orchid.kernel.credentials import keys
from orchid.kernel.credentials.files import write_private
from orchid.kernel.settings.checking import Settings


def signing_key_file(settings: Settings) -> Path:
    """The file of a setting, or that of the data directory."""
    configured = settings.given.of(TokenKeySettings).service_account_signing_key_file
    return settings.path(configured, "token-signing.key")


def create(settings: Settings, *, shares: bool) -> None:
    """Create the key, unless it exists, or a setting names one, or token keys are objects."""
    path, options = signing_key_file(settings), settings.given.of(TokenKeySettings)
    if stores_token_keys(settings.given) and not shares:
        return
    if not options.service_account_signing_key_file and not path.exists():
        write_private(path, keys.generate().pem().reveal().encode())
