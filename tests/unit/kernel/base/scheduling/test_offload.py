"""Large bodies are worked on beside the event loop, small ones on it, and everybody in turn."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from typing import Any

import pytest

from orchid.kernel.base.scheduling.offload import ALWAYS, LARGE_BYTES, THREADS, Offload
from orchid.kernel.base.scheduling.seat import SEAT

PATIENCE = 10  # seconds until a test that hangs fails


class Caller:
    """The seat of one caller."""

    def __init__(self, name: str) -> None:
        self.name = name

    def require_room_to_wait(self) -> None:
        """There is."""

    def park(self) -> None:
        """Nobody needs it."""

    def unpark(self) -> None:
        """Nobody took it."""


class Work:
    """Work that is done when a test says so."""

    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self._ends = dict[str, threading.Event]()
        self.begun: list[str] = []

    def end(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()

    def end_all(self) -> None:
        self.end(*self._ends)

    def start(self, caller: Caller | None, name: str) -> "asyncio.Task[str]":
        self._ends[name] = threading.Event()
        return asyncio.create_task(self._run(caller, name))

    async def _run(self, caller: Caller | None, name: str) -> str:
        SEAT.set(caller)
        return await self._offload(ALWAYS, lambda: self._in_thread(name))

    def _in_thread(self, name: str) -> str:
        self.begun.append(name)
        assert self._ends[name].wait(PATIENCE)
        return name

    async def until(self, begun: int) -> list[str]:
        """The tasks that have begun, once there are so many of them."""
        async with asyncio.timeout(PATIENCE):
            while len(self.begun) < begun:  # noqa: ASYNC110 - a thread sets no event
                await asyncio.sleep(0.001)
        return self.begun


@pytest.fixture
def offload() -> Iterator[Offload]:
    with closing(Offload()) as made:
        yield made


@pytest.fixture
def work(offload: Offload) -> Iterator[Work]:
    made = Work(offload)
    yield made
    made.end_all()


async def test_small_work_stays_on_the_loop(offload: Offload) -> None:
    """A thread would cost more than the work."""
    assert await offload(LARGE_BYTES, threading.current_thread) is threading.current_thread()


async def test_large_work_goes_to_a_thread(offload: Offload) -> None:
    """Nobody else waits for a body that was made to be slow."""
    assert await offload(ALWAYS, threading.current_thread) is not threading.current_thread()


async def test_nobody_has_all_threads(work: Work) -> None:
    """However much one caller sends, another is served meanwhile."""
    greedy, other = Caller("greedy"), Caller("other")
    jobs = [work.start(greedy, f"greedy {number}") for number in range(5)]
    await work.until(1)

    answered = work.start(other, "other")
    await work.until(2)
    work.end("other")

    assert await answered == "other"
    assert work.begun == ["greedy 0", "other"]
    work.end_all()
    assert await asyncio.gather(*jobs) == [f"greedy {number}" for number in range(5)]


async def test_callers_who_wait_are_served_in_turn(work: Work) -> None:
    """By caller, not by how much each has sent or when."""
    first, second = work.start(Caller("a"), "a"), work.start(Caller("b"), "b")
    await work.until(THREADS)
    greedy, late = Caller("greedy"), Caller("late")
    jobs = [work.start(greedy, f"greedy {number}") for number in range(3)]
    await asyncio.sleep(0)
    jobs += [work.start(late, f"late {number}") for number in range(2)]
    await asyncio.sleep(0)

    for ended in ("a", "greedy 0", "late 0", "greedy 1", "late 1"):
        work.end(ended)
        await work.until(len(work.begun) + 1)
    work.end_all()
    await asyncio.gather(first, second, *jobs)

    assert work.begun == ["a", "b", "greedy 0", "late 0", "greedy 1", "late 1", "greedy 2"]


async def cancelled(job: "asyncio.Task[str]") -> None:
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job


Cancel = Callable[[Work, Caller], Coroutine[Any, Any, None]]


async def while_it_waits(work: Work, caller: Caller) -> None:
    job, waiting = work.start(caller, "job"), work.start(caller, "waiting")
    await work.until(1)
    await cancelled(waiting)
    work.end("job")
    assert await job == "job"


async def while_it_runs(work: Work, caller: Caller) -> None:
    job = work.start(caller, "job")
    await work.until(1)
    await cancelled(job)
    assert work._offload._free == THREADS - 1  # its thread is still at work
    work.end("job")


@pytest.mark.parametrize("cancel", [while_it_waits, while_it_runs])
async def test_a_cancelled_request_takes_no_thread_with_it(work: Work, cancel: Cancel) -> None:
    """Whenever it is cancelled; the next one of the same caller is served."""
    caller = Caller("a")

    await cancel(work, caller)
    after = work.start(caller, "after")
    work.end("after")

    assert await after == "after"
    async with asyncio.timeout(PATIENCE):
        while work._offload._free < THREADS:  # noqa: ASYNC110 - a thread sets no event
            await asyncio.sleep(0.001)
    assert not work._offload._busy


async def test_a_thread_given_to_a_cancelled_request_is_given_back(offload: Offload) -> None:
    """It was cancelled in the very turn of the loop in which it got the thread."""
    caller = Caller("a")
    offload._take(caller)
    waiting = asyncio.create_task(offload._turn(asyncio.get_running_loop(), caller))
    await asyncio.sleep(0)

    offload._give_back(caller)  # hands it on
    assert offload._free == THREADS - 1
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert offload._free == THREADS


async def test_closing_ends_those_who_wait() -> None:
    """They are cancelled, and wait for nobody."""
    offload = Offload()
    work = Work(offload)
    caller = Caller("a")
    job, waiting = work.start(caller, "job"), work.start(caller, "waiting")
    await work.until(1)

    offload.close()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    work.end_all()
    assert await job == "job"
