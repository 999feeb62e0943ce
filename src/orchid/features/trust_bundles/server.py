"""The /trust/ endpoint: its identity, its pages, and its background tasks."""

import asyncio

from orchid.features.trust_bundles.consumers import Consumers
from orchid.features.trust_bundles.editions import PublishedEditions
from orchid.features.trust_bundles.gauges import BundleGauges
from orchid.features.trust_bundles.pages import TrustPages
from orchid.kernel.base.clock import Clock
from orchid.kernel.base.metrics import Metric
from orchid.kernel.client.client import Client
from orchid.kernel.runtime.declaration import ComponentIdentity
from orchid.kernel.runtime.loop import keep_running
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import CORE, READ, rule

IDENTITY = ComponentIdentity(
    name="trust-pages",
    account="trust-pages",
    rights=lambda naming: (rule(READ, naming.identity, ("publishedbundles",)),),
    rights_at_home=lambda names: (rule(("create", "get", "update"), CORE, ("configmaps",)),),
)


class TrustServer:
    """Published bundles over HTTPS, of one process."""

    def __init__(self, client: Client, naming: Naming, clock: Clock) -> None:
        self._editions = PublishedEditions(client, naming)
        self.consumers = Consumers(client, self._editions, naming, clock)
        self.pages = TrustPages(self._editions, self.consumers, clock)
        gauges = BundleGauges(self._editions)
        self.metrics: tuple[Metric, ...] = (self.pages.requests, *gauges.all)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(keep_running(self._editions))
            tasks.create_task(keep_running(self.consumers))

    def stop_waiting(self) -> None:
        """Respond to all waiting requests: the server stops."""
        self._editions.stop_waiting()
