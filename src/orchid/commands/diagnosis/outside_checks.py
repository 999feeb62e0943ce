"""Checks of external issuers (OpenID Connect): their keys can be fetched and used."""

import asyncio
from collections.abc import Iterator
from typing import Final

from orchid.features.exchange import parts as token_exchange
from orchid.features.exchange.settings import ExchangeSettings
from orchid.features.sign_in import outside_issuers
from orchid.features.sign_in.oidc.keys import KeyLocation, KeySource, fetching
from orchid.features.sign_in.settings import SignInSettings
from orchid.kernel.base.clock import SystemClock
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.terminal.findings import Check, Finding, Installation, good, wrong

SECONDS: Final = 10.0


def issuers(here: Installation) -> Iterator[Finding]:
    """Each issuer publishes a key that the settings accept; fetched as the server does."""
    try:
        configured = [*_configured(here)]
    except BadSettings as problem:
        yield wrong(str(problem))
        return
    for settings in configured:
        if reason := asyncio.run(_problem(settings)):
            yield wrong(f"the keys of {settings.url} are not available: {reason}")
        else:
            yield good(f"{settings.url} publishes keys that verify its tokens")


def _configured(here: Installation) -> Iterator[KeyLocation]:
    """The issuers of users of the API, and those whose tokens can be exchanged."""
    if here.settings.given.of(SignInSettings).has_outside_issuers:
        yield from outside_issuers.read(here.settings).issuers
    if here.settings.given.of(ExchangeSettings).token_exchange_config:
        yield from token_exchange.issuers(here.settings)


async def _problem(settings: KeyLocation) -> str:
    fetch = fetching(settings, timeout=SECONDS)
    source = KeySource(settings, fetch, SystemClock(), lambda _issuer, _keys: None)
    await source.refresh()
    return source.problem


OUTSIDE_CHECKS: Final[dict[str, Check]] = {"outside issuers": issuers}
