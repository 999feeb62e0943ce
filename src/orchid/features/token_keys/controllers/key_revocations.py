"""KeyRevocations: the CredentialRevocations that name a key, for controllers that keep keys.

Events of credentialrevocations go to `take`. `identities` is what `select` and `is_revoked` compare
with; a controller never decides by its own copy whether a credential is accepted.
"""

from collections.abc import Iterable
from datetime import datetime

from orchid.features.revocation.kinds.credential_revocation import CredentialRevocation
from orchid.features.token_keys.kinds.signing_key import SigningKey, revoked_identities
from orchid.kernel.client.client import DELETED, WatchedChange
from orchid.kernel.wire.revoked_credentials import RevokedKey


class KeyRevocations:
    def __init__(self) -> None:
        self._revocations: dict[str, CredentialRevocation] = {}  # by name

    def take(self, event: WatchedChange[CredentialRevocation]) -> RevokedKey | None:
        """Follow an event; return the key that the revocation names."""
        revocation = event.object
        if revocation.spec.key is not None:
            if event.type == DELETED:
                self._revocations.pop(revocation.name, None)
            else:
                self._revocations[revocation.name] = revocation
        return revocation.spec.key

    def identities(self) -> set[str]:
        """The ids and public keys of all revoked keys."""
        named = (revocation.spec.key for revocation in self._revocations.values())
        return {identity for key in named if key for identity in revoked_identities(key)}

    def moments(self, keys: Iterable[SigningKey]) -> list[datetime]:
        """When those of some keys that are revoked were revoked."""
        members = list(keys)
        moments = (
            revocation.metadata.creation_timestamp
            for revocation in self._revocations.values()
            if revocation.spec.key and is_any_revoked(members, revocation.spec.key)
        )
        return [moment for moment in moments if moment]


def is_any_revoked(keys: Iterable[SigningKey], named: RevokedKey) -> bool:
    identities = revoked_identities(named)
    return any(key.is_revoked(identities) for key in keys)
