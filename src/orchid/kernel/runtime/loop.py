"""The loop of every controller: follow, queue per object, reconcile, retry.

A controller declares what it follows (`follows`), which other objects concern it (`triggers`), and
what to do with one object (`reconcile`). The loop calls it for every existing object and every
change, one at a time for the same object, concurrently for different ones, and retries failures.

    Controller   reconcile(object)    watches, and reconciles each object
    Sweeper      sweep()              processes everything from time to time
    Worker       follow, attend       the bare loop, for everything else

Nothing but keys is stored between two calls: after a restart, or missed events, every object is
reconciled again. That is why reconcile must be idempotent.
"""

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from datetime import timedelta
from typing import Any, Generic, TypeVar

import msgspec

from orchid.kernel.client.client import DELETED, Client, ListSelection, WatchedChange
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.outbound.failures import CallFailed
from orchid.kernel.runtime.work_queue import BackOff, WorkQueue
from orchid.kernel.wire.errors import ApiError, Conflict, Expired
from orchid.kernel.wire.meta import Object

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

Key = tuple[str, str]  # namespace and name
Start = Callable[[Coroutine[Any, Any, None]], None]
LONGEST_PAUSE = 30.0
RESTART_SECONDS = 5.0
POLL_SECONDS = 60.0  # how often dependencies outside of the API (a file) are checked


class TryAgain(Exception):
    """The work cannot be finished yet, but nothing is wrong; logged at debug level."""


class Trigger(msgspec.Struct, Generic[T], frozen=True):
    """Other objects whose changes concern a controller, and the keys they concern."""

    selection: ListSelection[T]
    concerns: Callable[[WatchedChange[T]], AsyncIterator[Key]]


class Gone(msgspec.Struct, Generic[T], frozen=True):
    """An object as it was when it was deleted."""

    last: T


class Running(ABC):
    """A named background task that runs until it is cancelled."""

    name: str

    @abstractmethod
    async def run(self) -> None: ...


async def keep_running(controller: Running) -> None:
    """Run until cancelled; restart after a failure."""
    while True:
        try:
            await controller.run()
        except Exception:
            log.exception("controller.broken", extra={"controller": controller.name})
        await asyncio.sleep(RESTART_SECONDS)


class Worker(Running, Generic[K, V]):
    """Follows something, queues keys, and processes them; after any failure it starts over."""

    workers = 5  # keys processed concurrently
    back_off = BackOff()

    def __init__(self) -> None:
        self.queue: WorkQueue[K, V] = WorkQueue(self.back_off)

    @abstractmethod
    async def follow(self, start: Start) -> None:
        """Start all followers. When one of them fails, all end and this is called again."""

    @abstractmethod
    async def attend(self, key: K, value: V | None) -> float | None:
        """Process a key; an exception means retry, a number means again after so many seconds."""

    def shown(self, key: K) -> str:
        """The key in a log line."""
        return str(key)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self.workers):
                tasks.create_task(self._work())
            pause = self.back_off.first
            while True:
                started = loop.time()
                await self._follow_until_lost()
                if loop.time() - started > LONGEST_PAUSE:
                    pause = self.back_off.first
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _follow_until_lost(self) -> None:
        """Follow until one of the followers fails, then end them all."""
        # Not in a TaskGroup: if a task fails while the group is cancelled, the group raises only
        # that failure, and the loop would go on although it was cancelled.
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        followers: list[asyncio.Task[None]] = []

        def ended(follower: asyncio.Task[None]) -> None:
            problem = None if follower.cancelled() else follower.exception()
            if problem is not None and not lost.done():
                lost.set_exception(problem)

        def start(coroutine: Coroutine[Any, Any, None]) -> None:
            followers.append(asyncio.create_task(coroutine))
            followers[-1].add_done_callback(ended)

        start(self.follow(start))
        try:
            await lost
        except Expired:
            log.info("controller.starts_over", extra={"controller": self.name})
        except (ApiError, CallFailed) as problem:
            extra = {"controller": self.name, "why": str(problem)}
            log.warning("controller.lost", extra=extra)
        finally:
            for follower in followers:
                follower.cancel()
            await asyncio.wait(followers)

    async def _work(self) -> None:
        while True:
            key, value = await self.queue.take()
            try:
                again = await self.attend(key, value)
            except (TryAgain, Conflict) as reason:
                pause = self.queue.failed(key)
                log.debug("controller.waits", extra=self._about(key, reason, pause))
            except (ApiError, CallFailed, Refusal) as problem:
                pause = self.queue.failed(key)
                log.warning("controller.failed", extra=self._about(key, problem, pause))
            except Exception as problem:
                pause = self.queue.failed(key)
                log.exception("controller.failed", extra=self._about(key, problem, pause))
            else:
                self.queue.done(key)
                if again is not None:
                    self.queue.add_after(key, again)
            await asyncio.sleep(0)  # work that never awaits must not block the event loop

    def _about(self, key: K, problem: Exception, pause: float) -> dict[str, Any]:
        return {
            "controller": self.name,
            "object": self.shown(key),
            "why": str(problem),
            "again_after": round(pause, 3),
        }


class Controller(Worker[Key, T | Gone[T]], Generic[T]):
    """Reconciles every object of a kind."""

    minds_deletions = False  # whether `gone` does anything
    triggers: tuple[Trigger[Any], ...] = ()

    def __init__(self, client: Client, follows: ListSelection[T]) -> None:
        super().__init__()
        self._client = client
        self.follows = follows

    @abstractmethod
    async def reconcile(self, found: T) -> float | None:
        """Reconcile an object. Idempotent; an exception means retry later.

        Return the seconds after which to call it again, or None.
        """

    async def gone(self, last: T) -> None:
        """Called for a deleted object, if `minds_deletions`."""

    def starting(self) -> None:
        """All objects are about to be listed, possibly not for the first time."""

    async def all_listed(self) -> None:
        """All existing objects were listed."""

    def rests_on(self) -> object:
        """The state outside of the API that decides the outcome; a change reconciles all
        objects.
        """
        return None

    def take(self, event: WatchedChange[T]) -> None:
        """Queue the object of an event. Called for every event, so it must be fast."""
        object_ = event.object
        key = (object_.namespace, object_.name)
        if event.type != DELETED:
            self.queue.add(key, object_)
            return
        self.queue.drop(key)
        if self.minds_deletions:
            self.queue.add(key, Gone(object_))

    def shown(self, key: Key) -> str:
        return "/".join(filter(None, key))

    async def follow(self, start: Start) -> None:
        # Triggers first: nothing that happens while the list is read may be missed.
        for trigger in self.triggers:
            loaded = asyncio.Event()
            start(self._follow_trigger(trigger, loaded))
            await loaded.wait()
        self.starting()
        start(self._follow_own())
        start(self._poll())

    async def attend(self, key: Key, value: T | Gone[T] | None) -> float | None:
        if value is None or isinstance(value, Gone):
            namespace, name = key
            live = await self._client.find(self.follows.of, name, namespace)
            if live is None:
                if value is not None:
                    await self.gone(value.last)
                return None
            value = live
        return await self.reconcile(value)

    async def _follow_own(self) -> None:
        async with contextlib.aclosing(self._client.follow(self.follows)) as batches:
            async for batch in batches:
                for event in batch:
                    self.take(event)
                if not batch:
                    await self.all_listed()

    async def _follow_trigger(self, trigger: Trigger[Any], loaded: asyncio.Event) -> None:
        async with contextlib.aclosing(self._client.follow(trigger.selection)) as batches:
            async for batch in batches:
                for event in batch:
                    async for key in trigger.concerns(event):
                        self.queue.add(key)
                if not batch:  # after the last page of existing objects
                    loaded.set()

    async def _poll(self) -> None:
        before = self.rests_on()
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if self.rests_on() != before:
                raise Expired("what the controller rests on has changed")


class Sweeper(Running):
    """Processes everything at start, and again after each interval."""

    every: timedelta
    back_off = BackOff(first=1.0, longest=60.0)

    @abstractmethod
    async def sweep(self) -> None:
        """Process everything once. Idempotent."""

    async def run(self) -> None:
        failures = 0
        while True:
            try:
                await self.sweep()
            except (ApiError, CallFailed) as problem:
                failures += 1
                extra = {"controller": self.name, "why": str(problem)}
                log.warning("controller.failed", extra=extra)
            else:
                failures = 0
            pause = self.back_off.pause(failures) if failures else self.every.total_seconds()
            await asyncio.sleep(pause)


def is_deletion(event: WatchedChange[Any]) -> bool:
    return event.type == DELETED
