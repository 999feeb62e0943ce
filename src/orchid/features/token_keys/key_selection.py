"""Which of the stored keys signs, and which verify.

`select` is the one function that chooses them from the stored objects; it reads no clock.
"""

from collections.abc import Container, Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from orchid.features.token_keys.kinds.signing_key import ACTIVE, PUBLISHED, VERIFYING, SigningKey

NO_TIME: Final = datetime.min.replace(tzinfo=UTC)


class KeySelection(NamedTuple):
    """The signer and the verification keys of one set of stored objects."""

    signers: tuple[SigningKey, ...]  # the first one signs; the others if it cannot be loaded
    verifying: tuple[SigningKey, ...]  # in the order of the JWKS document: the signer first

    @property
    def signer(self) -> SigningKey | None:
        return self.signers[0] if self.signers else None


def select(
    stored: Iterable[SigningKey], revoked: Container[str], authority: str = ""
) -> KeySelection:
    """Choose the signer and the verification keys of an authority; without one, of tokens.

    `revoked`: the ids and public keys of revoked keys (`revoked_identities`).
    """
    usable = [
        key
        for key in sorted(stored, key=_seniority)
        if key.spec.authority == authority
        and not key.spec.cluster
        and key.state in (PUBLISHED, ACTIVE, VERIFYING)
        and not key.is_file
        and key.key_id
        and (key.status.certificate or not authority)
        and not key.is_revoked(revoked)
    ]
    active = sorted((key for key in usable if key.state == ACTIVE), key=_activation, reverse=True)
    published = [key for key in usable if key.state == PUBLISHED]
    signers = (*active, *published)
    first = signers[:1]
    rest = [key for key in usable if key.state != PUBLISHED and key not in first]
    waiting = [key for key in published if key not in first]
    return KeySelection(signers, (*first, *waiting, *rest))


def _seniority(key: SigningKey) -> tuple[datetime, str]:
    return key.metadata.creation_timestamp or NO_TIME, key.metadata.uid


def _activation(key: SigningKey) -> tuple[datetime, str]:
    return key.status.times.active or NO_TIME, key.metadata.uid
