"""ClusterStatusWriter: adds the calls that this server counted to the status of the Clusters.

It writes after the first call, and then once a minute. Each server adds its own part. A
server that is killed loses the calls of its last minute.
"""

import asyncio
import contextlib
import logging
from datetime import timedelta
from typing import Final

from orchid.features.clusters.calls import Calls, ClusterCalls
from orchid.features.clusters.kinds.cluster import CONNECTED, Cluster
from orchid.kernel.base.clock import Clock, whole_seconds
from orchid.kernel.client.client import Client
from orchid.kernel.outbound.failures import CallFailed
from orchid.kernel.wire.conditions import TRUE, Condition, with_conditions
from orchid.kernel.wire.errors import ApiError, Conflict, NotFound
from orchid.kernel.wire.struct import replace

log = logging.getLogger(__name__)

WRITE_EVERY: Final = 60.0  # seconds
ATTEMPTS: Final = 5


class ClusterStatusWriter:
    def __init__(self, calls: ClusterCalls, client: Client, clock: Clock) -> None:
        self._calls = calls
        self._client = client
        self._clock = clock

    async def run(self) -> None:
        """Write what was counted, until cancelled."""
        while True:
            await self._calls.called.wait()
            await self.write()
            await asyncio.sleep(WRITE_EVERY)

    async def leave(self) -> None:
        """Write what was counted since the last time: the server stops."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self.write()

    async def write(self) -> None:
        """Add what was counted to the status of each cluster."""
        for (cluster, uid), calls in self._calls.take().items():
            try:
                await self._add(cluster, uid, calls)
            except NotFound:
                continue  # the cluster was removed
            except (ApiError, CallFailed) as problem:
                extra = {"cluster": cluster, "why": str(problem)}
                log.warning("cluster.status_not_written", extra=extra)

    async def _add(self, cluster: str, uid: str, calls: Calls) -> None:
        for left in range(ATTEMPTS, 0, -1):
            record = await self._client.get(Cluster, cluster)
            if record.metadata.uid != uid:
                return  # another cluster of this name was called
            try:
                await self._client.update_status(self._with_calls(record, calls))
                return
            except Conflict:  # another server added its part
                if left == 1:
                    raise

    def _with_calls(self, cluster: Cluster, calls: Calls) -> Cluster:
        """The cluster with some calls added to its status."""
        status, now = cluster.status, self._clock.now()
        connected = Condition(
            type=CONNECTED,
            status=TRUE,
            reason="Called",
            message="Its API server calls the webhook.",
        )
        ago = timedelta(seconds=self._clock.monotonic() - calls.last)
        last = whole_seconds(now - ago)
        new_status = replace(
            status,
            last_call=max(last, status.last_call) if status.last_call else last,
            calls=status.calls + calls.answered,
            denials=status.denials + calls.denied,
            malformed=status.malformed + calls.malformed,
        )
        return with_conditions(replace(cluster, status=new_status), [connected], now)
