"""The token keys of one server, as objects or as files, and those that use them.

`FollowedKeys.changed` are functions that are called with the keys that verify, when they change.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from orchid.features.revocation.revocations import Revocations
from orchid.features.token_keys.files.signing_key_file import signing_key_file
from orchid.features.token_keys.settings import TokenKeySettings, stores_token_keys
from orchid.features.token_keys.token_keys import FileKeys, StoredKeys, TokenKeys
from orchid.kernel.context import Context
from orchid.kernel.credentials import keys
from orchid.kernel.credentials.tokens import KeySet
from orchid.kernel.settings.checking import Settings

LOOK_AT_KEYS_EVERY = 5.0


def unverified_tokens(settings: Settings) -> str:
    """Whether the key that signs tokens does not verify them."""
    named = [Path(path) for path in settings.given.of(TokenKeySettings).service_account_key_file]
    if stores_token_keys(settings.given) or not named:
        return ""
    path = signing_key_file(settings)
    signing = keys.load_signing_key(path)
    verifying = {key.kid for path in named for key in keys.load_verification_keys(path)}
    if signing.kid in verifying:
        return ""
    return (
        f"the key that signs tokens ({path}) is not among those that verify them: "
        "every new token is refused; add it to --service-account-key-file"
    )


class FollowedKeys:
    """The token keys; they may change while the server runs."""

    def __init__(self, context: Context) -> None:
        self.changed: list[Callable[[KeySet], None]] = []
        self.keys = self._token_keys(context)

    def _token_keys(self, context: Context) -> TokenKeys:
        settings, naming = context.settings, context.naming
        issuer, options = settings.issuers[0], settings.given.of(TokenKeySettings)
        if stores_token_keys(settings.given):
            return StoredKeys(
                context.feed,
                context.port(Revocations),
                issuer,
                naming,
                self._use,
                publish_seconds=options.token_key_publish_time.seconds,
            )
        paths = [Path(path) for path in options.service_account_key_file]
        signing = signing_key_file(settings)
        return FileKeys(signing, paths or [signing], issuer, naming)

    def _use(self, keys: KeySet) -> None:
        for changed in self.changed:
            changed(keys)

    async def follow(self, changed: Callable[[], Awaitable[None]]) -> None:
        """Use other token keys when their files change, until cancelled."""
        while isinstance(self.keys, FileKeys):
            await asyncio.sleep(LOOK_AT_KEYS_EVERY)
            if self.keys.reload():
                self._use(self.keys.verifying)
                await changed()
