"""Consumers of editions: by user name for clients with a credential, as counts for all others.

`seen` records a fetch in memory; once a minute the records are merged into the ConfigMap of the
bundle (features/trust_bundles/stored_edition.py), which several servers share. Times are rounded to
the hour, so that polling clients cause a write per hour, not per minute. Of a client without a
credential only the count is stored: anybody can send anything.
"""

import asyncio
import logging
from datetime import datetime
from typing import Final

from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.trust_bundles import stored_edition
from orchid.features.trust_bundles.editions import PublishedEditions
from orchid.features.trust_bundles.kinds.published_bundle import PublishedBundle
from orchid.features.trust_bundles.stored_edition import MOST_CONSUMERS, ConsumerList, SeenConsumer
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import Client
from orchid.kernel.outbound.failures import CallFailed
from orchid.kernel.runtime.loop import Running
from orchid.kernel.wire.errors import ApiError, Conflict
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.references import belongs_to
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import ANONYMOUS

log = logging.getLogger(__name__)

EVERY_SECONDS: Final = 60.0
HOUR: Final = 3600
LONGEST_NAME: Final = 256  # characters; a longer name is only counted


class Consumers(Running):
    """The fetches since the last write, by the name of the bundle."""

    name = "trust-consumers"

    def __init__(
        self, client: Client, editions: PublishedEditions, naming: Naming, clock: Clock
    ) -> None:
        self._client = client
        self._editions = editions
        self._naming = naming
        self._clock = clock
        self._notes: dict[str, ConsumerList] = {}

    def seen(self, bundle: str, user: str, sequence: int, now: datetime, *, sent: bool) -> None:
        """Record that a client has this edition; `sent`: it received it with this request."""
        notes = self._notes.get(bundle)
        if notes is None:
            notes = self._notes[bundle] = ConsumerList({}, {})
        has_name = user != ANONYMOUS and len(user) <= LONGEST_NAME
        if has_name and (user in notes.named or len(notes.named) < MOST_CONSUMERS):
            notes.named[user] = SeenConsumer(sequence, int(now.timestamp()) // HOUR * HOUR)
        elif sent:
            notes.others[sequence] = notes.others.get(sequence, 0) + 1

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            await self.write()

    async def write(self) -> None:
        """Merge the records into the ConfigMaps; failed writes are retried later."""
        for name in tuple(self._notes):
            notes = self._notes.pop(name)
            bundle = self._editions.bundles.get(name)
            if bundle is None:
                continue
            try:
                await self._merge(bundle, notes)
            except (ApiError, CallFailed) as problem:
                log.debug("trust.consumers_not_written", extra={"bundle": name, "why": problem})
                newer = self._notes.get(name, ConsumerList())
                self._notes[name] = notes.merged(newer, self._clock.now(), set(notes.others))

    async def _merge(self, bundle: PublishedBundle, notes: ConsumerList) -> None:
        name = stored_edition.consumers_name(bundle.name)
        config_map = await self._client.find(ConfigMap, name, self._naming.system_namespace)
        if config_map is not None and not belongs_to(config_map, bundle):
            about = self._client.catalog.of(ConfigMap).about(name)
            raise Conflict(about, "it belongs to another bundle")  # the publisher deletes it
        before = stored_edition.read_consumers(config_map)
        editions = {edition.sequence for edition in bundle.status.editions}
        after = before.merged(notes, self._clock.now(), editions)
        if config_map is not None and after == before:
            return
        data = {stored_edition.CONSUMERS: stored_edition.write_consumers(after)}
        if config_map is not None:
            await self._client.update(replace(config_map, data=data))
            return
        version = self._client.catalog.of(PublishedBundle).api_version
        await self._client.create(
            stored_edition.owned_map(bundle, version, self._naming, name, data=data)
        )
