"""Delete old ACME orders.

Reads    all acmeorders, at start and then every hour
Deletes  those whose certificate was fetched, or that expired, seven days ago
"""

from datetime import datetime, timedelta

from orchid.features.acme.kinds.acme_order import AcmeOrder
from orchid.kernel.runtime.expiring import expiring
from orchid.kernel.wire.policy_rules import READ, rule

KEPT = timedelta(days=7)


def is_over(order: AcmeOrder, now: datetime) -> bool:
    """Whether an order ended long ago."""
    end = order.status.fetched or order.spec.expires
    return end is None or end + KEPT <= now


CONTROLLER = expiring(
    "acme-order-cleaner",
    AcmeOrder,
    every=timedelta(hours=1),
    is_over=is_over,
    rights=lambda naming: (rule(("delete", *READ), naming.identity, ("acmeorders",)),),
)
