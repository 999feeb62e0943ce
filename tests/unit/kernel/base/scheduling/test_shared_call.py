"""One call serves all who wait, and no answer is older than its question."""

import asyncio
from contextvars import ContextVar, copy_context
from itertools import count

import pytest

from orchid.kernel.base.scheduling.shared_call import SharedCall
from orchid.kernel.base.scheduling.shared_result import SharedResult, Step
from orchid.kernel.store.interface import StoreUnavailable


class Source:
    """Answers with the number of the call, when let."""

    def __init__(self) -> None:
        self.begun = 0
        self.let = asyncio.Semaphore(0)
        self.failure: Exception | None = None
        self._numbers = count(1)

    async def call(self) -> int:
        number = next(self._numbers)
        self.begun = number
        await self.let.acquire()
        if self.failure:
            raise self.failure
        return number


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_those_who_come_during_a_call_share_the_next() -> None:
    """However many ask, two calls answer all of them."""
    source = Source()
    shared = SharedCall(source.call, StoreUnavailable)
    first = asyncio.create_task(shared.ask())
    await settle()
    later = [asyncio.create_task(shared.ask()) for _ in range(9)]
    await settle()
    assert source.begun == 1

    source.let.release()
    source.let.release()

    assert await first == 1
    assert await asyncio.gather(*later) == [2] * 9


async def test_call_that_fails_fails_those_who_waited_for_it() -> None:
    """Each caller gets a separate error, and the next call is made again."""
    source = Source()
    shared = SharedCall(source.call, StoreUnavailable)
    source.failure = StoreUnavailable("away")
    asking = [asyncio.create_task(shared.ask()) for _ in range(3)]
    source.let.release()
    errors = await asyncio.gather(*asking, return_exceptions=True)
    assert [str(error) for error in errors] == ["away"] * 3
    assert len({id(error) for error in errors}) == 3

    source.failure = None
    source.let.release()
    assert await shared.ask() == 2


async def test_call_that_fails_fails_also_those_who_came_during_it() -> None:
    """Where nobody answers, nobody waits twice as long as the first."""
    source = Source()
    shared = SharedCall(source.call, StoreUnavailable)
    source.failure = StoreUnavailable("away")
    first = asyncio.create_task(shared.ask())
    await settle()
    later = asyncio.create_task(shared.ask())
    await settle()
    source.let.release()

    errors = await asyncio.gather(first, later, return_exceptions=True)

    assert [str(error) for error in errors] == ["away"] * 2
    assert source.begun == 1


async def test_one_who_leaves_does_not_disturb_the_others() -> None:
    """A cancelled caller takes nobody along."""
    source = Source()
    shared = SharedCall(source.call, StoreUnavailable)
    leaving, staying = (asyncio.create_task(shared.ask()) for _ in range(2))
    await settle()
    leaving.cancel()
    source.let.release()

    assert await staying == 1


async def test_closing_fails_waiting_calls() -> None:
    """Nobody is left waiting, whichever call they wait for."""
    source = Source()
    shared = SharedCall(source.call, StoreUnavailable)
    first = asyncio.create_task(shared.ask())
    await settle()
    second = asyncio.create_task(shared.ask())
    await settle()

    await shared.close()

    for waiting in (first, second):
        with pytest.raises(StoreUnavailable, match="closed"):
            await waiting


async def test_the_call_is_nobodys() -> None:
    """Its caller's variables, as its seat, reach neither the call nor others that wait for it."""
    caller = ContextVar("caller", default="nobody")
    seen: list[str] = []
    done = asyncio.Event()

    async def call() -> int:
        seen.append(caller.get())
        return 1

    def look(_: list[Step]) -> None:
        seen.append(caller.get())
        done.set()

    def begin() -> None:
        wait = asking.send(None)
        assert isinstance(wait, SharedResult)
        wait.add(lambda: None, look)

    asking = SharedCall(call, StoreUnavailable).ask()
    another = copy_context()
    another.run(caller.set, "another")
    asyncio.get_running_loop().call_soon(begin, context=another)
    await done.wait()
    asking.close()

    assert seen == ["nobody", "nobody"]


async def test_a_wait_is_open_until_the_call_begins() -> None:
    """Until then, others may join it; the call sees everything that happened before."""
    waits: list[SharedResult[int]] = []
    seen: list[bool] = []
    done = asyncio.Event()

    async def call() -> int:
        seen.append(waits[0].is_open)
        done.set()
        return 1

    def begin() -> None:
        wait = asking.send(None)
        assert isinstance(wait, SharedResult)
        waits.append(wait)
        seen.append(wait.is_open)

    asking = SharedCall(call, StoreUnavailable).ask()
    asyncio.get_running_loop().call_soon(begin)
    await done.wait()
    asking.close()

    assert seen == [True, False]
