"""Groups of SigningKeys, of which one signs: those of tokens, and those of each authority.

A group is one piece of work of a controller that rotates keys (`group_key`), since each step of a
key depends on the others.
"""

from typing import NamedTuple

from orchid.features.token_keys.key_selection import KeySelection
from orchid.features.token_keys.kinds.signing_key import PUBLISHED, SigningKey
from orchid.kernel.runtime.loop import Key
from orchid.kernel.wire.rules.key_names import TOKENS


def group_key(authority: str) -> Key:
    """The piece of work for the keys of an authority; without one, for token keys."""
    return ("authority", authority) if authority else ("", TOKENS)


def authority_of(work: Key) -> str:
    return work[1] if work[0] else ""


class KeyGroup(NamedTuple):
    """The stored keys of which one signs, and what is selected among them."""

    authority: str  # empty for token keys
    stored: list[SigningKey]
    chosen: KeySelection

    @property
    def waiting(self) -> list[SigningKey]:
        """The Published keys that do not sign, oldest first."""
        return [key for key in self.chosen.signers[1:] if key.state == PUBLISHED]
