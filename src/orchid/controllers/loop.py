"""The loop that every controller runs in: follow, queue per object, work, try again.

A controller says what it follows (`follows`), what else concerns it (`triggers`), and what to do
with one object (`reconcile`). The loop brings it every object that is there and every change, never
two at a time for the same object, side by side across objects, and comes back after failures.

    Controller      reconcile(object)        watches, and brings each object to its end
    Sweeper         sweep()                  looks at everything from time to time

Nothing is remembered between two looks but keys: a restart, or events that were missed, end in
every object being looked at again. That is why reconcile must be safe to repeat.
"""

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

from orchid.client.client import DELETED, LISTED, Client, Happening, Selection
from orchid.client.transport import Unreachable
from orchid.controllers.work_queue import BackOff, WorkQueue
from orchid.wire.errors import ApiError, Conflict, Expired, NotFound
from orchid.wire.meta import Object

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)

Key = tuple[str, str]  # namespace and name
LONGEST_PAUSE = 30.0


class Clock(Protocol):
    def now(self) -> datetime:
        """The current time in UTC."""


class TryAgain(Exception):
    """Nothing is wrong, but it cannot be finished yet; the text is for the log, at debug level."""


@dataclass(frozen=True)
class Trigger(Generic[T]):
    """Other objects whose changes concern a controller, and whom they concern."""

    selection: Selection[T]
    concerns: Callable[[Happening[T]], AsyncIterator[Key]]


class Running(ABC):
    """What runs beside the server, under a name, until it is cancelled."""

    name: str

    @abstractmethod
    async def run(self) -> None: ...


class Controller(Running, Generic[T]):
    """Brings every object of a kind to its end, one look at a time."""

    workers = 5  # objects worked on side by side
    minds_deletions = False  # whether `gone` has anything to do
    triggers: tuple[Trigger[Any], ...] = ()
    back_off = BackOff()

    def __init__(self, client: Client, follows: Selection[T]) -> None:
        self._client = client
        self.follows = follows
        self.queue: WorkQueue[Key, T] = WorkQueue(self.back_off)

    @abstractmethod
    async def reconcile(self, found: T) -> float | None:
        """Bring one object to its end. Safe to repeat; a raised error means try later.

        Give the seconds after which to look again, or None.
        """

    async def gone(self, key: Key) -> None:
        """An object that was followed is no longer there. Mostly nothing is left to do."""

    def is_settled(self, event: Happening[T]) -> bool:
        """Whether an event needs no look at all; asked of every event, so it has to be quick."""
        return False

    async def run(self) -> None:
        """Work until cancelled. Whatever breaks the following, everything is looked at again."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self.workers):
                tasks.create_task(self._work())
            pause = self.back_off.first
            while True:
                started = asyncio.get_running_loop().time()
                await self._follow_until_lost()
                if asyncio.get_running_loop().time() - started > LONGEST_PAUSE:
                    pause = self.back_off.first
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    # -- following -------------------------------------------------------------------------

    async def _follow_until_lost(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                # Triggers first: what happens while the list is read must not be missed.
                for trigger in self.triggers:
                    told = asyncio.Event()
                    tasks.create_task(self._follow_trigger(trigger, told))
                    await told.wait()
                tasks.create_task(self._follow_own())
        except* Expired:
            log.info("controller.starts_over", extra={"controller": self.name})
        except* (ApiError, Unreachable) as problems:
            text = "; ".join(str(problem) for problem in problems.exceptions)
            log.warning("controller.lost", extra={"controller": self.name, "why": text})

    async def _follow_own(self) -> None:
        async with contextlib.aclosing(self._client.follow(self.follows)) as batches:
            async for batch in batches:
                for event in batch:
                    self._take(event)

    def _take(self, event: Happening[T]) -> None:
        if self.is_settled(event):
            return
        found = event.object
        key = (found.namespace, found.name)
        if event.type == DELETED:
            self.queue.drop(key)
            if self.minds_deletions:
                self.queue.add(key)  # without an object: the look finds it gone, or made anew
        else:
            self.queue.add(key, found)

    async def _follow_trigger(self, trigger: Trigger[Any], told: asyncio.Event) -> None:
        async with contextlib.aclosing(self._client.follow(trigger.selection)) as batches:
            async for batch in batches:
                for event in batch:
                    async for key in trigger.concerns(event):
                        self.queue.add(key)
                told.set()

    # -- working ---------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            key, found = await self.queue.take()
            try:
                again = await self._look(key, found)
            except (TryAgain, Conflict) as reason:
                pause = self.queue.failed(key)
                log.debug("controller.waits", extra=self._about(key, reason, pause))
            except (ApiError, Unreachable) as problem:
                pause = self.queue.failed(key)
                log.warning("controller.failed", extra=self._about(key, problem, pause))
            except Exception as problem:
                pause = self.queue.failed(key)
                log.exception("controller.failed", extra=self._about(key, problem, pause))
            else:
                self.queue.done(key)
                if again is not None:
                    self.queue.add_after(key, again)

    async def _look(self, key: Key, found: T | None) -> float | None:
        if found is None:
            namespace, name = key
            try:
                found = await self._client.get(self.follows.type, name, namespace)
            except NotFound:
                await self.gone(key)
                return None
        return await self.reconcile(found)

    def _about(self, key: Key, problem: Exception, pause: float) -> dict[str, Any]:
        return {
            "controller": self.name,
            "object": "/".join(filter(None, key)),
            "why": str(problem),
            "again_after": round(pause, 3),
        }


class Sweeper(Running):
    """Looks at everything at start, and again every so often."""

    every: timedelta
    back_off = BackOff(first=1.0, longest=60.0)

    @abstractmethod
    async def sweep(self) -> None:
        """Look at everything once. Safe to repeat."""

    async def run(self) -> None:
        failures = 0
        while True:
            try:
                await self.sweep()
            except (ApiError, Unreachable) as problem:
                failures += 1
                extra = {"controller": self.name, "why": str(problem)}
                log.warning("controller.failed", extra=extra)
            else:
                failures = 0
            pause = self.back_off.pause(failures) if failures else self.every.total_seconds()
            await asyncio.sleep(pause)


async def keys(found: Iterable[Key]) -> AsyncIterator[Key]:
    """Keys that are known at once, as `Trigger.concerns` gives them."""
    for key in found:
        yield key


def is_deletion(event: Happening[Any]) -> bool:
    return event.type == DELETED


def is_first_sight(event: Happening[Any]) -> bool:
    return event.type == LISTED
