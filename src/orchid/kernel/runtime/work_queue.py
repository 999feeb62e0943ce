"""Queue of keys: each at most once, one worker per key at a time, failures with back-off.

Start with `WorkQueue`. `add` may be called any number of times: a queued key is queued once, and a
key in work is queued again afterwards. The value of a key is the newest one that was added. A
failed key returns after a pause that doubles each time; success resets the pause. Nothing here
awaits anything but work.
"""

import asyncio
from collections.abc import Hashable
from typing import Generic, TypeVar

import msgspec

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BackOff(msgspec.Struct, frozen=True):
    """The pause after a failure: doubling from the first to the longest, in seconds."""

    first: float = 0.2
    longest: float = 1000.0

    def pause(self, failures: int) -> float:
        return float(min(self.first * 2 ** min(failures - 1, 32), self.longest))


class WorkQueue(Generic[K, V]):
    """The queued keys, the keys in work, and the delayed ones."""

    def __init__(self, back_off: BackOff | None = None) -> None:
        self._back_off = back_off or BackOff()
        self._waiting: dict[K, V | None] = {}  # in order of arrival
        self._held: dict[K, V | None] = {}  # values of keys in work
        self._working: set[K] = set()
        self._later: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._idle_workers: list[asyncio.Future[None]] = []

    def __len__(self) -> int:
        """The number of keys that are queued now."""
        return len(self._waiting) + len(self._working)

    def add(self, key: K, value: V | None = None) -> None:
        """Queue a key; without a value, the worker reads the object itself."""
        timer = self._later.pop(key, None)
        if timer is not None:
            timer.cancel()
        if key in self._working:
            self._held[key] = value
            return
        self._waiting[key] = value
        self._wake()

    def add_after(self, key: K, seconds: float) -> None:
        """Queue a key after a delay, unless it is queued earlier."""
        if key in self._waiting or key in self._held:
            return
        timer = self._later.pop(key, None)
        if timer is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._later[key] = loop.call_later(seconds, self.add, key)

    def drop(self, key: K) -> None:
        """Remove a key: its object is gone."""
        self._waiting.pop(key, None)
        self._held.pop(key, None)
        self._failures.pop(key, None)
        timer = self._later.pop(key, None)
        if timer is not None:
            timer.cancel()

    def clear(self) -> None:
        """Remove all queued keys; work in progress is finished."""
        for timer in self._later.values():
            timer.cancel()
        for waiting in (self._waiting, self._held, self._later, self._failures):
            waiting.clear()

    async def take(self) -> tuple[K, V | None]:
        """Wait for a key; call `done` or `failed` afterwards."""
        while not self._waiting:
            worker = asyncio.get_running_loop().create_future()
            self._idle_workers.append(worker)
            try:
                await worker
            except asyncio.CancelledError:
                if worker in self._idle_workers:
                    self._idle_workers.remove(worker)
                elif self._waiting:
                    self._wake()  # the key that woke us is for another worker
                raise
        key = next(iter(self._waiting))
        value = self._waiting.pop(key)
        self._working.add(key)
        return key, value

    def done(self, key: K) -> None:
        """The work on a key has succeeded."""
        self._failures.pop(key, None)
        self._released(key)

    def failed(self, key: K) -> float:
        """The work on a key has failed; returns the pause until it is queued again."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        pause = self._back_off.pause(failures)
        self._released(key)
        self.add_after(key, pause)
        return pause

    def _released(self, key: K) -> None:
        self._working.discard(key)
        if key in self._held:
            self.add(key, self._held.pop(key))

    def _wake(self) -> None:
        while self._idle_workers:
            worker = self._idle_workers.pop()
            if not worker.done():
                worker.set_result(None)
                return
