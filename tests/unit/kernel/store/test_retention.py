"""History is kept for as long as was asked, by a clock that tests can move."""

import asyncio

import pytest

from orchid.kernel.store.interface import StoreUnavailable
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.store.retention import Retention
from tests.unit.kernel.store.asking import ALL, put


class Clock:
    """A clock that moves only when it is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_history_is_kept_for_the_time_and_then_dropped() -> None:
    """A revision can be read until something newer is as old as the time to keep."""
    store, clock = MemoryStore(), Clock()
    retention = Retention(store, clock, keep=300)
    oldest = []

    for minute in range(12):
        clock.now = 1000.0 + 60 * minute
        await put(store, f"k{minute}", b"")  # makes revision minute + 2
        await retention.look()
        oldest.append((await store.read(ALL)).oldest)

    assert oldest == [1, 1, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8]


async def test_quiet_store_is_compacted_to_its_last_revision() -> None:
    """When nothing happens for long, only the present remains."""
    store, clock = MemoryStore(), Clock()
    retention = Retention(store, clock)
    await put(store, "a", b"")

    await retention.look()
    clock.now += 300
    await retention.look()

    assert (await store.read(ALL)).oldest == 2


async def test_store_that_others_compact_is_left_to_them() -> None:
    """This server still drops old changes from its memory in time."""

    class Shared(MemoryStore):
        async def may_compact(self) -> bool:
            return False

    store, clock, forgotten = Shared(), Clock(), list[int]()
    retention = Retention(store, clock, forgotten=forgotten.append)
    newest = await put(store, "a", b"")

    await retention.look()
    clock.now += 300
    await retention.look()

    assert (await store.read(ALL)).oldest == 1
    assert forgotten == [newest]


async def test_running_goes_on_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    """A store that is unavailable for a while is compacted later."""

    class Failing(MemoryStore):
        failures = 2

        async def compact(self, before: int) -> None:
            if self.failures:
                self.failures -= 1
                raise StoreUnavailable("not now")
            await super().compact(before)

    store, clock = Failing(), Clock()
    await put(store, "a", b"")
    rounds = 0

    async def sleep(seconds: float) -> None:
        nonlocal rounds
        rounds += 1
        clock.now += seconds
        if rounds == 5:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await Retention(store, clock, keep=10).run(interval=10, sleep=sleep)

    assert (await store.read(ALL)).oldest == 2
    assert "not now" in caplog.text
