"""The queue of a controller: once, one at a time, and again after failures."""

import asyncio

import pytest

from orchid.kernel.runtime.work_queue import BackOff, WorkQueue

AT_ONCE = BackOff(first=0.0, longest=0.0)


async def test_key_that_waits_waits_once_with_the_newest_value() -> None:
    """Ten changes of one object are one look at its newest form."""
    queue: WorkQueue[str, int] = WorkQueue()
    for number in range(10):
        queue.add("a", number)

    assert await queue.take() == ("a", 9)
    assert len(queue) == 1
    queue.done("a")
    assert len(queue) == 0


async def test_key_being_worked_on_is_not_given_to_another_worker() -> None:
    """Events that arrive meanwhile are queued until the work is done."""
    queue: WorkQueue[str, int] = WorkQueue()
    queue.add("a", 1)
    await queue.take()
    queue.add("a", 2)
    queue.add("b", 3)

    other = await queue.take()
    queue.done("a")

    assert other == ("b", 3)
    assert await queue.take() == ("a", 2)


async def test_failed_key_comes_back_for_a_fresh_look() -> None:
    """Without a value: the worker then reads the object again."""
    queue: WorkQueue[str, int] = WorkQueue(AT_ONCE)
    queue.add("a", 1)
    await queue.take()

    queue.failed("a")

    assert await queue.take() == ("a", None)


def test_pause_doubles_up_to_the_longest() -> None:
    """From a fifth of a second to a thousand seconds."""
    back_off = BackOff()

    assert [back_off.pause(n) for n in (1, 2, 3)] == [0.2, 0.4, 0.8]
    assert back_off.pause(1000) == 1000.0


async def test_dropped_key_is_forgotten_with_its_failures() -> None:
    """The next object of that name starts with a clean record."""
    queue: WorkQueue[str, int] = WorkQueue(BackOff(first=0.5))
    queue.add("a", 1)
    await queue.take()
    queue.failed("a")
    queue.drop("a")
    queue.add("a", 2)
    await queue.take()

    assert queue.failed("a") == 0.5


async def test_cancelled_worker_leaves_the_work_to_the_others() -> None:
    """The wake-up of one that is ending goes to the next."""
    queue: WorkQueue[str, int] = WorkQueue()
    workers = [asyncio.create_task(queue.take()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add("a", 1)
    workers[1].cancel()

    with pytest.raises(asyncio.CancelledError):
        await workers[1]
    assert await workers[0] == ("a", 1)
