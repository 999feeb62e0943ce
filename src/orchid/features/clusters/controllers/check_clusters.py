"""Report of a cluster that its API server no longer calls: the condition Connected.

Reads   all clusters, every minute
Writes  /status: Connected is false when no call came for a while
Never   sets it to true: the server that is called does (features/clusters/cluster_status.py)
"""

import contextlib
from datetime import timedelta
from typing import Final

from orchid.features.clusters.kinds.cluster import CONNECTED, Cluster
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import Client, ListSelection
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.loop import Sweeper
from orchid.kernel.wire.conditions import FALSE, Condition, with_conditions
from orchid.kernel.wire.errors import Conflict, NotFound
from orchid.kernel.wire.policy_rules import READ, rule
from orchid.kernel.wire.text import timestamp

SILENT_AFTER: Final = timedelta(minutes=10)  # status is written once a minute


class CheckClusters(Sweeper):
    name = "cluster-checker"
    every = timedelta(minutes=1)

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def sweep(self) -> None:
        now = self._clock.now()
        async for cluster in self._client.scan(ListSelection(Cluster)):
            last = cluster.status.last_call
            since = last or cluster.metadata.creation_timestamp
            if since is None or now - since < SILENT_AFTER:
                continue
            text = f"No call since {timestamp(last)}." if last else "There was never a call."
            silent = Condition(
                type=CONNECTED,
                status=FALSE,
                reason="NoCalls",
                message=f"{text} `orchid cluster doctor` finds out why.",
            )
            reported = with_conditions(cluster, [silent], now)
            if reported == cluster:
                continue
            with contextlib.suppress(Conflict, NotFound):  # it was called meanwhile, or removed
                await self._client.update_status(reported)


CONTROLLER = ControllerDeclaration(
    name="cluster-checker",
    long_name="cluster-checker-controller",
    account="cluster-checker",
    rights=lambda naming: (
        rule(READ, naming.identity, ("clusters",)),
        rule(("update",), naming.identity, ("clusters/status",)),
    ),
    build=lambda client, context, events: CheckClusters(client, context.clock),
)
