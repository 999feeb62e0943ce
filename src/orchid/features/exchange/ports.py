"""Token exchange, as later features may ask for it."""

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # it is imported only if it is on
    from orchid.features.exchange.parts import TokenExchangeParts


class ConfiguredExchange(NamedTuple):
    """Token exchange of a server that has it; none otherwise."""

    parts: "TokenExchangeParts"

    @property
    def issuers(self) -> Collection[str]:
        """The issuers whose tokens are exchanged."""
        return self.parts.subjects.issuers
