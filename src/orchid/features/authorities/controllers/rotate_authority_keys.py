"""Rotate keys of authorities: a successor is published in time, and signs in time.

Reads   as features/token_keys/controllers/rotate_keys.py, which has all steps;
        certificateauthorities
Writes  as features/token_keys/controllers/rotate_keys.py
Never   reads a private key; creates a key for an authority whose rotation is Manual, or whose
        signer is in an HSM

The successor becomes Active at the end of the signer's certificate minus the longer of a third of
its life and the longest lifetime of certificates that it issues. It is created a twelfth of the
signer's life before that. A key that no longer signs certificates keeps its private key until it is
Retired: it signs its revocation list.
"""

from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import Final, NamedTuple

from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority, profile
from orchid.features.token_keys.controllers.key_groups import KeyGroup, group_key
from orchid.features.token_keys.controllers.rotate_keys import (
    REFRESH,
    RotateKeys,
    RotationTimes,
    rights,
    rights_at_home,
)
from orchid.features.token_keys.key_rotation import KeyRotation
from orchid.features.token_keys.key_source import SigningKeySpec
from orchid.features.token_keys.kinds.signing_key import ACTIVE, PUBLISHED, SigningKey
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import DELETED, Client, ListSelection, WatchedChange
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.runtime.context import ControllerContext
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.events import EventRecorder
from orchid.kernel.runtime.loop import Key, Running, Trigger
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import rule
from orchid.kernel.wire.references import belongs_to
from orchid.kernel.wire.rules.key_names import next_name

SETTLED: Final = 3600.0  # seconds between two looks at an authority with one key
LAST_PART, LEAD_PART = 3, 12  # of a key's life: its end without signing, the lead of its successor


class RotationSchedule(NamedTuple):
    """When a successor is created, and when it becomes Active."""

    publish: datetime
    activate: datetime


class RotateAuthorityKeys(RotateKeys):
    name = "authority-key-rotation"

    def __init__(
        self,
        client: Client,
        naming: Naming,
        clock: Clock,
        events: EventRecorder,
        times: RotationTimes,
    ) -> None:
        super().__init__(client, naming, clock, events, times)
        self._authorities: dict[str, CertificateAuthority] = {}
        authorities = ListSelection(CertificateAuthority)
        self.triggers = (*self.triggers, Trigger(authorities, self._on_authority))

    async def _on_authority(self, event: WatchedChange[CertificateAuthority]) -> AsyncIterator[Key]:
        authority = event.object
        if event.type == DELETED:
            self._authorities.pop(authority.name, None)
        else:
            self._authorities[authority.name] = authority
        if authority.name in self._groups:
            yield group_key(authority.name)

    def concerns(self, key: SigningKey) -> bool:
        return bool(key.spec.authority) and not key.is_file

    def members(self, authority: str) -> list[SigningKey]:
        """The keys that belong to the authority: others of its name are of an earlier one."""
        owner = self._authorities.get(authority)
        return [key for key in super().members(authority) if owner and belongs_to(key, owner)]

    def successor(self, group: KeyGroup) -> SigningKey | None:
        authority, signer = self._authorities.get(group.authority), group.chosen.signer
        if authority is None or not authority.is_automatic or authority.spec.key is None:
            return None
        if any(key.state == PUBLISHED and not self.is_unusable(key) for key in group.stored):
            return None  # it waits for a certificate from elsewhere
        if signer is not None and signer.hsm_label:
            return None  # the server creates no keys there, and does not leave the HSM by itself
        if signer is not None and not self.must_go(signer):
            planned = schedule_of(signer, authority)
            if planned is None or self._clock.now() < planned.publish:
                return None
        return SigningKey(
            metadata=ObjectMeta(name=next_name(self.named, group.authority, self._authorities)),
            spec=SigningKeySpec(
                authority=group.authority,
                algorithm=authority.spec.key.algorithm,
                state=PUBLISHED,
            ),
        )

    def is_due(self, group: KeyGroup, signer: SigningKey) -> bool:
        authority = self._authorities.get(group.authority)
        planned = schedule_of(signer, authority) if authority else None
        is_automatic = authority is not None and authority.is_automatic
        return is_automatic and planned is not None and self._clock.now() >= planned.activate

    def moments(self, group: KeyGroup) -> Iterator[datetime]:
        authority, signer = self._authorities.get(group.authority), group.chosen.signer
        if authority is not None and signer is not None:
            yield from schedule_of(signer, authority) or ()

    def keeps_private(self, key: SigningKey) -> bool:
        return True

    def longest_pause(self, group: KeyGroup) -> float:
        return SETTLED if all(key.state == ACTIVE for key in group.stored) else REFRESH


def schedule_of(signer: SigningKey, authority: CertificateAuthority) -> RotationSchedule | None:
    """When the successor of a key is created and activated; None without a certificate."""
    try:
        chain = certificates.parse_blocks(signer.status.certificate)
    except Refusal:
        return None
    begin, end = chain[0].not_valid_before_utc, min(link.not_valid_after_utc for link in chain)
    life = end - begin
    activate = end - max(life / LAST_PART, profile(authority).max_duration)
    return RotationSchedule(activate - life / LEAD_PART, activate)


def build(client: Client, context: ControllerContext, events: EventRecorder) -> Running:
    rotation = context.part(KeyRotation)
    assert rotation is not None  # a part of token_keys
    times = RotationTimes(rotation.publish_time, rotation.retention)
    return RotateAuthorityKeys(client, context.naming, context.clock, events, times)


CONTROLLER = ControllerDeclaration(
    name="authority-key-rotation",
    long_name="authority-key-rotation-controller",
    account="authority-key-rotation-controller",
    rights=lambda naming: (
        *rights(naming),
        rule(("list", "watch"), naming.identity, ("certificateauthorities",)),
    ),
    rights_at_home=rights_at_home,
    build=build,
)
