"""The names of SigningKeys: the authority that a key signs for, or `tokens`, and a number.

Public keys of a cluster have the group `clusters.<name>` in place of an authority.

`next_name` is the one function for them: for the server, which refuses every other name, and for
everything that creates keys. The key of an authority has a revocation list of its name, and the
first one has that of the authority, so such a key never has the name of any authority.
"""

import re
from collections.abc import Container, Mapping
from typing import Final

TOKENS: Final = "tokens"
CLUSTERS: Final = "clusters."
LONGEST_PREFIX: Final = 240  # characters; with a number, a name has at most 253
_number = re.compile(r"[1-9][0-9]{0,8}").fullmatch


def key_prefix(authority: str = "") -> str:
    """The beginning of the name of each key of an authority; without one, of each token key."""
    return (authority or TOKENS)[:LONGEST_PREFIX]


def number_of(name: str) -> int:
    """The number at the end of the name of a key; 0 without one."""
    end = name.rpartition("-")[2]
    return int(end) if end != name and _number(end) else 0


def is_key_name(name: str, authority: str = "") -> bool:
    """Whether a key of an authority may get this name; without one, whether a token key may."""
    return name.rpartition("-")[0] == key_prefix(authority) and number_of(name) > 0


def next_name(
    keys: Mapping[str, str], authority: str = "", authorities: Container[str] = ()
) -> str:
    """The name of the next key.

    `keys`: the authority of every SigningKey by its name, of any owner. `authorities`: the names of
    all authorities.
    """
    numbers = (number_of(name) for name, owner in keys.items() if owner == authority)
    number = max(numbers, default=0) + 1
    while (name := f"{key_prefix(authority)}-{number}") in keys or (
        authority and name in authorities
    ):
        number += 1
    return name
