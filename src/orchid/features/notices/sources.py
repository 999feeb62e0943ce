"""Objects that lead to a notice: one `Source` for each event.

A source defines which state of an object needs a notice (`notice`), and distinguishes two events of
the same object (`mark`). It decides by the object alone, so that the result is the same after a
restart. Fields are ids, names and times; keys, tokens and messages of people are never among them.
"""

from abc import ABC, abstractmethod
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.features.notices.notice import Notice, NoticeKey, plain
from orchid.features.revocation.kinds.credential_revocation import (
    EFFECTIVE,
    CredentialRevocation,
    shown,
)
from orchid.features.token_keys.kinds.signing_key import ACTIVE, SigningKey
from orchid.kernel.client.client import ADDED, LISTED, MODIFIED, Client, ListSelection
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.text import timestamp

T = TypeVar("T", bound=Object)

WAITS_AFTER: Final = 10.0  # seconds; policies decide earlier
FIRST: Final = 1  # the number of a key that replaces none


class Source(ABC, Generic[T]):
    """One event of one kind."""

    word: str  # the end of the event's URI
    kind: type[T]
    types: tuple[str, ...] = (LISTED, ADDED, MODIFIED)  # the changes that may lead to a notice
    delay = 0.0  # seconds until it is sent, if it still applies then
    is_limited = False  # whether anybody can cause thousands
    announces_existing = False  # whether objects are announced that exist before the first start

    def __init__(self, names: Naming) -> None:
        self.event = event_uri(names, self.word)

    @abstractmethod
    def notice(self, found: T) -> Notice | None:
        """None if the object needs no notice now."""

    def mark(self, found: T) -> str:
        return ""

    def key(self, found: T) -> NoticeKey:
        return NoticeKey(self.event, found.name, found.metadata.uid, self.mark(found))

    async def find(self, client: Client, name: str) -> T | None:
        return await client.find(self.kind, name)

    @property
    def selection(self) -> ListSelection[T]:
        return ListSelection(self.kind)


class WaitingRequest(Source[CertificateSigningRequest]):
    """A certificate request that no policy has decided."""

    word = "request-waiting"
    kind = CertificateSigningRequest
    types = (LISTED, ADDED)
    delay = WAITS_AFTER
    is_limited = True
    announces_existing = True

    def notice(self, found: CertificateSigningRequest) -> Notice | None:
        if found.is_decided or found.is_issued or found.has("Failed"):
            return None
        name, user = plain(found.name), plain(found.spec.username)
        signer = plain(found.spec.signer_name)
        return Notice(
            occurred=_created(found),
            text=f"The certificate request {name} of {user} for {signer} waits for a decision.",
            fields={"request": name, "requester": user, "signerName": signer},
            limited_by=found.spec.username,
        )


class EffectiveRevocation(Source[CredentialRevocation]):
    """A revocation that every server applies."""

    word = "revocation-effective"
    kind = CredentialRevocation

    def notice(self, found: CredentialRevocation) -> Notice | None:
        if not found.is_effective:
            return None
        since = [
            one.last_transition_time for one in found.status.conditions if one.type == EFFECTIVE
        ]
        what = plain(shown(found.spec))
        return Notice(
            occurred=since[0] or _created(found),
            text=f"{what} is revoked ({found.reason}); every server refuses it.",
            fields={
                "revocation": found.name,
                "target": what,
                "reason": found.reason,
                "cluster": found.spec.cluster,
            },
        )


class RotatedKey(Source[SigningKey]):
    """A key that signs in place of another one."""

    word = "key-rotated"
    kind = SigningKey

    def notice(self, found: SigningKey) -> Notice | None:
        since = found.status.times.active
        if found.state != ACTIVE or since is None or found.number == FIRST:
            return None
        signs = f"certificates of {found.spec.authority}" if found.spec.authority else "tokens"
        return Notice(
            occurred=since,
            text=f"The key {found.name} signs {signs} now.",
            fields={
                "key": found.name,
                "keyID": found.key_id,
                "authority": found.spec.authority,
                "active": timestamp(since),
            },
        )

    def mark(self, found: SigningKey) -> str:
        since = found.status.times.active
        return timestamp(since) if since else ""


def watched_sources(names: Naming) -> tuple[Source[Any], ...]:
    return WaitingRequest(names), EffectiveRevocation(names), RotatedKey(names)


def event_uri(names: Naming, word: str) -> str:
    """The URI of an event."""
    return f"https://{names.identity}/events/{word}"


def _created(found: Object) -> datetime:
    made = found.metadata.creation_timestamp
    assert made is not None
    return made
