"""Delete Events that are older than an hour.

Reads    events
Deletes  old ones
"""

from datetime import datetime, timedelta

from orchid.features.objects.kinds.event import Event
from orchid.kernel.runtime.expiring import expiring
from orchid.kernel.wire.policy_rules import CORE, rule

KEPT = timedelta(hours=1)


def is_over(event: Event, now: datetime) -> bool:
    last = event.last_timestamp or event.metadata.creation_timestamp
    return last is not None and now - last > KEPT


CONTROLLER = expiring(
    "event-cleaner",
    Event,
    every=timedelta(minutes=10),
    is_over=is_over,
    rights=lambda names: (rule(("delete", "get", "list"), CORE, ("events",)),),
)
