"""Rotate token keys: the successor of the signer is always published, and signs after a period.

Reads   as rotate_keys.py, which has all steps
Writes  as rotate_keys.py
Never   touches keys of authorities (features/authorities/controllers/rotate_authority_keys.py)

If token keys are files, objects only show them: those of keys that no server has are deleted.
"""

import logging
from collections.abc import Iterator
from datetime import datetime

from orchid.features.objects.kinds.lease import SERVER_LASTS
from orchid.features.token_keys.controllers.key_groups import KeyGroup
from orchid.features.token_keys.controllers.rotate_keys import (
    RotateKeys,
    RotationTimes,
    rights,
    rights_at_home,
)
from orchid.features.token_keys.key_rotation import KeyRotation
from orchid.features.token_keys.key_source import SigningKeySpec
from orchid.features.token_keys.kinds.signing_key import ACTIVE, PUBLISHED, SigningKey
from orchid.kernel.base.clock import Clock, whole_seconds
from orchid.kernel.client.client import Client
from orchid.kernel.credentials.keys import MADE_ALGORITHMS
from orchid.kernel.outbound.failures import CallFailed
from orchid.kernel.runtime.context import ControllerContext
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.events import EventRecorder
from orchid.kernel.runtime.loop import Running
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.rules.key_names import next_name
from orchid.kernel.wire.struct import replace

log = logging.getLogger(__name__)

# Without a report, after which a key counts as lost; longer than a dead server counts as live.
UNLOADED_SECONDS = SERVER_LASTS + 10.0


class RotateTokenKeys(RotateKeys):
    name = "token-key-rotation"

    def __init__(
        self,
        client: Client,
        naming: Naming,
        clock: Clock,
        events: EventRecorder,
        rotation: KeyRotation,
    ) -> None:
        times = RotationTimes(rotation.publish_time, rotation.retention)
        super().__init__(client, naming, clock, events, times)
        self._rotation = rotation
        self._unloaded: dict[str, float] = {}  # since when a server does not report a key

    def concerns(self, key: SigningKey) -> bool:
        return not key.group and (key.is_file or self._rotation.is_stored)

    def is_lost(self, key: SigningKey) -> bool:
        """Also if a live server cannot load it for a while: the Secret may have another key."""
        return super().is_lost(key) or self._is_unloaded(key)

    def _is_unloaded(self, key: SigningKey) -> bool:
        # Servers report those keys that they can use, once each of them had the key. One of an
        # earlier version reports none.
        times, live = key.status.times, self._servers.live().values()
        was_there = key.state in (PUBLISHED, ACTIVE) and (times.published or times.active)
        if not was_there or all(key.key_id in server.keys or not server.keys for server in live):
            self._unloaded.pop(key.name, None)
            return False
        now = self._clock.monotonic()
        return now - self._unloaded.setdefault(key.name, now) >= UNLOADED_SECONDS

    def successor(self, group: KeyGroup) -> SigningKey | None:
        signer = group.chosen.signer
        algorithm = signer.status.algorithm if signer else ""
        return SigningKey(
            metadata=ObjectMeta(name=next_name(self.named)),
            spec=SigningKeySpec(
                algorithm=algorithm if algorithm in MADE_ALGORITHMS else MADE_ALGORITHMS[0],
                state=PUBLISHED,
            ),
        )

    def is_due(self, group: KeyGroup, signer: SigningKey) -> bool:
        since, period = signer.status.times.active, self._rotation.period
        return bool(period and since and self._clock.now() >= since + period)

    def moments(self, group: KeyGroup) -> Iterator[datetime]:
        for key in group.stored:
            if key.status.times.active:
                yield key.status.times.active + self._rotation.period

    def keeps_private(self, key: SigningKey) -> bool:
        return False

    async def first_step(self, authority: str) -> bool:
        """Delete an object that shows a key of files which no live server has."""
        live = self._servers.live().values()
        for key in self._groups.get(authority, {}).values():
            if key.is_file and live and not any(key.key_id in server.keys for server in live):
                await self._client.delete_gone(SigningKey, key)
                why = "no server has it: its tokens are refused"
                log.warning("tokens.key_removed", extra={"key": key.name, "why": why})
                return True
        return False

    async def last_step(self, group: KeyGroup) -> bool:
        """Record that a key is at the URL from which verifiers fetch the keys."""
        fetch, missing = self._rotation.elsewhere, [k for k in group.waiting if not k.status.found]
        if fetch is None or not missing:
            return False
        try:
            key_ids = await fetch()
        except CallFailed as problem:
            self._report_blocked(missing[0], "NotActivated", str(problem))
            return False
        for key in missing:
            if key.key_id in key_ids:
                now = whole_seconds(self._clock.now())
                await self._client.update_status(
                    replace(key, status=replace(key.status, found=now))
                )
                return True
        return False


def build(client: Client, context: ControllerContext, events: EventRecorder) -> Running:
    rotation = context.part(KeyRotation)
    assert rotation is not None  # a part of this feature
    return RotateTokenKeys(client, context.naming, context.clock, events, rotation)


CONTROLLER = ControllerDeclaration(
    name="token-key-rotation",
    long_name="token-key-rotation-controller",
    account="token-key-rotation-controller",
    rights=rights,
    rights_at_home=rights_at_home,
    build=build,
)
