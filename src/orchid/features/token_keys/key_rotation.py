"""When stored token keys are replaced and removed, from settings."""

from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta

import msgspec

from orchid.features.revocation.settings import RevocationSettings
from orchid.features.token_keys.settings import (
    TokenKeySettings,
    keys_elsewhere,
    stores_token_keys,
)
from orchid.kernel.outbound import foreign
from orchid.kernel.outbound.failures import AnswerRefused, CallFailed
from orchid.kernel.outbound.remote import Remote, trusting
from orchid.kernel.settings.checking import Settings

FETCH_SECONDS = 10.0
KEY_SETS = "application/jwk-set+json, application/json"


class KeyRotation(msgspec.Struct, frozen=True):
    """When stored token keys are replaced and removed."""

    is_stored: bool  # otherwise token keys are files, and none of this applies
    period: timedelta  # how long a key signs; zero: it is replaced by hand
    publish_time: timedelta  # how long a key is published before it may sign
    retention: timedelta  # how long a Retired key is kept
    # Fetches the ids of the keys at --service-account-jwks-uri, if that is another server.
    elsewhere: Callable[[], Awaitable[Collection[str]]] | None = None


def key_rotation(settings: Settings) -> KeyRotation:
    options, elsewhere = settings.given.of(TokenKeySettings), keys_elsewhere(settings)
    return KeyRotation(
        stores_token_keys(settings.given),
        options.token_key_rotation.delta,
        options.token_key_publish_time.delta,
        settings.given.of(RevocationSettings).issued_retention.delta,
        _fetching(elsewhere) if elsewhere else None,
    )


def _fetching(url: str) -> Callable[[], Awaitable[Collection[str]]]:
    """Fetch the ids of published keys, with the authorities of the system."""

    async def fetch() -> set[str]:
        from orchid.kernel.access.json_endpoint import JsonEndpoint  # noqa: PLC0415 -- most need it not

        endpoint = JsonEndpoint(Remote(url, trusting()), timeout=FETCH_SECONDS, accept=KEY_SETS)
        try:
            document = foreign.decode(await endpoint.get(), _KeyIds)
        except AnswerRefused as problem:
            raise CallFailed(f"{url} has no key set: {problem}") from None
        return {key.kid for key in document.keys}

    return fetch


class _KeyId(msgspec.Struct):
    kid: str


class _KeyIds(msgspec.Struct):
    keys: list[_KeyId]
