"""Delete Events that are older than an hour.

Reads    events
Deletes  old ones
"""

from datetime import timedelta

from orchid.features.objects.kinds.event import Event
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import Client, ListSelection
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.loop import Sweeper
from orchid.kernel.wire.policy_rules import CORE, rule


class CleanEvents(Sweeper):
    name = "event-cleaner"
    every = timedelta(minutes=10)
    kept = timedelta(hours=1)

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def sweep(self) -> None:
        oldest = self._clock.now() - self.kept
        async for event in self._client.scan(ListSelection(Event)):
            last = event.last_timestamp or event.metadata.creation_timestamp
            if last is not None and last < oldest:
                await self._client.delete_gone(Event, event)


CONTROLLER = ControllerDeclaration(
    name="event-cleaner",
    long_name="event-cleaner-controller",
    account="event-cleaner",
    rights=lambda names: (rule(("delete", "get", "list"), CORE, ("events",)),),
    build=lambda client, context, events: CleanEvents(client, context.clock),
)
