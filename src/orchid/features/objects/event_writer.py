"""Record actions of controllers as Events, for `kubectl describe`.

`EventWriter.record` never waits and never fails: it queues, and a task writes. Events are best
effort: beyond the budget they are dropped. A repeated event about the same object increases a count
instead of creating another Event. features/objects/controllers/clean_events.py deletes those older
than an hour.
"""

import asyncio
import logging
import re
from collections import OrderedDict
from datetime import datetime
from typing import NamedTuple

from orchid.features.objects.kinds.event import Event, EventSource
from orchid.kernel.base.clock import Clock, whole_seconds
from orchid.kernel.client.client import Client
from orchid.kernel.outbound.failures import CallFailed
from orchid.kernel.runtime.events import NORMAL
from orchid.kernel.wire.errors import ApiError, NotFound
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.references import ObjectReference
from orchid.kernel.wire.text import timestamp

log = logging.getLogger(__name__)

BURST = 100
PER_SECOND = 10.0
REMEMBERED = 1000
CLUSTER_NAMESPACE = "default"  # of Events about cluster-scoped objects

_FIT_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,200}[a-z0-9])?").fullmatch


class _Said(NamedTuple):
    uid: str
    reason: str
    message: str


class EventWriter:
    """Writes Events within a budget."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._waiting: asyncio.Queue[tuple[_Said, Event]] = asyncio.Queue(BURST)
        self._written: OrderedDict[_Said, Event] = OrderedDict()
        self._budget, self._counted = float(BURST), clock.now()

    def record(
        self, component: str, about: Object, reason: str, message: str, *, type_: str = NORMAL
    ) -> None:
        """Record an action of `component` on an object."""
        if not self._within_budget():
            return
        said = _Said(about.metadata.uid, reason, message)
        event = self._event(component, about, said, type_)
        if not self._waiting.full():
            self._waiting.put_nowait((said, event))

    @property
    def waiting(self) -> int:
        """The number of queued events."""
        return self._waiting.qsize()

    async def run(self) -> None:
        while True:
            said, event = await self._waiting.get()
            try:
                await self._write(said, event)
            except (ApiError, CallFailed) as problem:
                log.debug("event.lost", extra={"reason": event.reason, "why": str(problem)})

    def _within_budget(self) -> bool:
        now = self._clock.now()
        earned = (now - self._counted).total_seconds() * PER_SECOND
        self._budget, self._counted = min(self._budget + max(earned, 0.0), BURST), now
        if self._budget < 1.0:
            return False
        self._budget -= 1.0
        return True

    def _event(self, component: str, about: Object, said: _Said, type_: str) -> Event:
        now = self._clock.now()
        kind = self._client.catalog.of(type(about))
        meta = about.metadata
        stem = meta.name if _FIT_NAME(meta.name) else meta.uid
        return Event(
            metadata=ObjectMeta(
                name=f"{stem}.{int(now.timestamp() * 1e9):x}",
                namespace=meta.namespace or CLUSTER_NAMESPACE,
            ),
            involved_object=ObjectReference(
                kind=kind.name,
                api_version=kind.api_version,
                namespace=meta.namespace,
                name=meta.name,
                uid=meta.uid,
                resource_version=meta.resource_version,
            ),
            reason=said.reason,
            message=said.message,
            source=EventSource(component=component),
            reporting_component=component,
            first_timestamp=whole_seconds(now),
            last_timestamp=whole_seconds(now),
            count=1,
            type=type_,
        )

    async def _write(self, said: _Said, event: Event) -> None:
        before = self._written.pop(said, None)
        if before is not None:
            change = {"count": before.count + 1, "lastTimestamp": _text(event.last_timestamp)}
            try:
                written = await self._client.patch(Event, before.name, before.namespace, change)
            except NotFound:
                written = await self._client.create(event)
        else:
            written = await self._client.create(event)
        self._written[said] = written
        if len(self._written) > REMEMBERED:
            self._written.popitem(last=False)


def _text(moment: datetime | None) -> str:
    return timestamp(moment) if moment else ""
