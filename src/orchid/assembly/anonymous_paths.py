"""The paths that anonymous requests may use, from all settings about them."""

from typing import Final

from orchid.settings.errors import BadSettings
from orchid.settings.given import Given

EXCHANGE_PATH: Final = "/oauth2/token"


def anonymous_paths(given: Given, configured: tuple[str, ...] | None) -> tuple[str, ...]:
    """`configured`: the paths of --authentication-config, or None; raises BadSettings."""
    exchange = (EXCHANGE_PATH,) if given.token_exchange_config else ()
    if exchange and configured == ():
        raise BadSettings(
            "--token-exchange-config: clients of the exchange are anonymous, which "
            "--authentication-config forbids"
        )
    if configured is None:
        return (*given.anonymous_paths, *exchange)
    if given.anonymous_paths != Given().anonymous_paths:
        raise BadSettings(
            "--anonymous-paths: not to be given when --authentication-config speaks of "
            "anonymous callers"
        )
    return (*configured, *exchange)
