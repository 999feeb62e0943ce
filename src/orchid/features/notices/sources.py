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

    def __init__(self, naming: Naming) -> None:
        self.event = event_uri(naming, self.word)

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

    def notice(self, request: CertificateSigningRequest) -> Notice | None:
        if request.is_decided or request.is_issued or request.has("Failed"):
            return None
        name, user = plain(request.name), plain(request.spec.username)
        signer = plain(request.spec.signer_name)
        return Notice(
            occurred=_created(request),
            text=f"The certificate request {name} of {user} for {signer} waits for a decision.",
            fields={"request": name, "requester": user, "signerName": signer},
            limited_by=request.spec.username,
        )


class EffectiveRevocation(Source[CredentialRevocation]):
    """A revocation that every server applies."""

    word = "revocation-effective"
    kind = CredentialRevocation

    def notice(self, revocation: CredentialRevocation) -> Notice | None:
        if not revocation.is_effective:
            return None
        since = [
            condition.last_transition_time
            for condition in revocation.status.conditions
            if condition.type == EFFECTIVE
        ]
        what = plain(shown(revocation.spec))
        return Notice(
            occurred=since[0] or _created(revocation),
            text=f"{what} is revoked ({revocation.reason}); every server refuses it.",
            fields={
                "revocation": revocation.name,
                "target": what,
                "reason": revocation.reason,
                "cluster": revocation.spec.cluster,
            },
        )


class RotatedKey(Source[SigningKey]):
    """A key that signs in place of another one."""

    word = "key-rotated"
    kind = SigningKey

    def notice(self, key: SigningKey) -> Notice | None:
        since = key.status.times.active
        if key.state != ACTIVE or since is None or key.number == FIRST:
            return None
        signs = f"certificates of {key.spec.authority}" if key.spec.authority else "tokens"
        return Notice(
            occurred=since,
            text=f"The key {key.name} signs {signs} now.",
            fields={
                "key": key.name,
                "keyID": key.key_id,
                "authority": key.spec.authority,
                "active": timestamp(since),
            },
        )

    def mark(self, found: SigningKey) -> str:
        since = found.status.times.active
        return timestamp(since) if since else ""


def watched_sources(naming: Naming) -> tuple[Source[Any], ...]:
    return WaitingRequest(naming), EffectiveRevocation(naming), RotatedKey(naming)


def event_uri(naming: Naming, word: str) -> str:
    """The URI of an event."""
    return f"https://{naming.identity}/events/{word}"


def _created(found: Object) -> datetime:
    made = found.metadata.creation_timestamp
    assert made is not None
    return made
