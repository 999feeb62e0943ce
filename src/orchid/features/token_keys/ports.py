"""What the policies and metrics of signing keys need of later features."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import NamedTuple

from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.features.token_keys.policies.authority_material import AuthorityKeysOf
from orchid.features.token_keys.policies.conditions import KeyConditions
from orchid.kernel.credentials.authorities.hsm import KeysOfHsm


class KeysOfAuthorities(NamedTuple):
    """Signing keys as certificate authorities use them."""

    of: AuthorityKeysOf
    conditions: Callable[[SigningKey], KeyConditions]  # of the steps of a key, by its purpose
    refusal: str  # why a server without sealing keys creates none


class AcceptedTokens(NamedTuple):
    """Accepted tokens, and those that may exist."""

    verifications: Mapping[str, int]  # accepted tokens by key id
    longest: Callable[[], timedelta]  # the longest lifetime of any token until now


class HsmKeys(NamedTuple):
    """The keys in the HSM of this process, as a later feature provides them."""

    keys: KeysOfHsm
