"""Settings of token exchange."""

from typing import Annotated, ClassVar

from orchid.kernel.settings.given import Help
from orchid.kernel.settings.section import Section


class ExchangeSettings(Section, frozen=True):
    after: ClassVar = "api-audiences"

    token_exchange_config: Annotated[
        str,
        Help(
            description="TokenExchangeConfiguration file: issuers whose tokens can be exchanged; "
            "reloaded when changed. Without it, token exchange is off."
        ),
    ] = ""
    token_exchange_strict: Annotated[
        bool,
        Help(
            description="Refuse exchange policies for subjects that others can obtain, instead of "
            "a warning."
        ),
    ] = False
