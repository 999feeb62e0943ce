"""Uses of tokens in Secrets, written to labels for
features/accounts/controllers/clean_token_secrets.py.

Input   each use, from the authenticator (`used`), which cannot wait
Writes  the last-used label of the Secret, at most once a day; and, at start and every half hour,
        the ConfigMap with the first day of tracking
Never   holds a token, or more than a bounded number of names
"""

import asyncio
import logging
from datetime import date

from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.objects.kinds.secret import Secret
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import Client
from orchid.kernel.outbound.failures import CallFailed
from orchid.kernel.wire.errors import ApiError
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.struct import replace

log = logging.getLogger(__name__)

MOST_WAITING = 10_000
EVERY_SECONDS = 1800.0
SINCE = "since"  # the key of the ConfigMap that has the first day of tracking


class SecretTokenUses:
    """The uses that are still to be written."""

    def __init__(self, client: Client, clock: Clock, naming: Naming) -> None:
        self._client = client
        self._clock = clock
        self._naming = naming
        self._uses: dict[tuple[str, str], date] = {}
        self._there_is_work = asyncio.Event()

    def used(self, namespace: str, name: str, day: date) -> None:
        """Record that a Secret's token was used. If too many wait, its next use is recorded."""
        if len(self._uses) < MOST_WAITING:
            self._uses[namespace, name] = day
            self._there_is_work.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_tracking())
            while True:
                await self._there_is_work.wait()
                self._there_is_work.clear()
                await self.write_all()

    async def write_all(self) -> None:
        """Label every Secret that was used."""
        while self._uses:
            (namespace, name), day = self._uses.popitem()
            change = {"metadata": {"labels": {self._naming.last_used_label: day.isoformat()}}}
            try:
                await self._client.patch(Secret, name, namespace, change)
            except (ApiError, CallFailed) as problem:
                log.debug("token_use.lost", extra={"secret": f"{namespace}/{name}", "why": problem})

    async def _keep_tracking(self) -> None:
        while True:
            try:
                await self.ensure_tracking()
            except (ApiError, CallFailed) as problem:
                log.warning("token_use.not_tracked", extra={"why": str(problem)})
            await asyncio.sleep(EVERY_SECONDS)

    async def ensure_tracking(self) -> None:
        """Store the first day of tracking, unless it is stored."""
        name, namespace = (
            self._naming.legacy_token_tracking_config_map,
            self._naming.system_namespace,
        )
        data = {SINCE: self._clock.now().date().isoformat()}
        config_map = await self._client.find(ConfigMap, name, namespace)
        if config_map is None:
            meta = ObjectMeta(name=name, namespace=namespace)
            await self._client.create(ConfigMap(metadata=meta, data=data))
        elif read_date(config_map.data.get(SINCE, "")) is None:
            await self._client.update(replace(config_map, data={**config_map.data, **data}))


def read_date(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None
