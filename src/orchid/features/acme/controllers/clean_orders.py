"""Delete old ACME orders.

Reads    all acmeorders, at start and then every hour
Deletes  those whose certificate was fetched, or that expired, seven days ago
"""

from datetime import datetime, timedelta

from orchid.features.acme.kinds.acme_order import AcmeOrder
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import Client, ListSelection
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.loop import Sweeper
from orchid.kernel.wire.policy_rules import READ, rule

KEPT = timedelta(days=7)


class CleanOrders(Sweeper):
    name = "acme-order-cleaner"
    every = timedelta(hours=1)

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def sweep(self) -> None:
        async for order in self._client.scan(ListSelection(AcmeOrder)):
            if is_over(order, self._clock.now()):
                await self._client.delete_gone(AcmeOrder, order)


def is_over(order: AcmeOrder, now: datetime) -> bool:
    """Whether an order ended long ago."""
    end = order.status.fetched or order.spec.expires
    return end is None or end + KEPT <= now


CONTROLLER = ControllerDeclaration(
    name="acme-order-cleaner",
    long_name="acmeorder-cleaner-controller",
    account="acme-order-cleaner",
    rights=lambda names: (rule(("delete", *READ), names.identity, ("acmeorders",)),),
    build=lambda client, context, events: CleanOrders(client, context.clock),
)
