"""Work of several requests is done together, and each gets its own result."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from orchid.kernel.base.scheduling.batched_work import LONGEST_BATCH, MOST_AT_ONCE, BatchedWork


def test_work_is_done_together_after_all_have_asked() -> None:
    """None of it begins before the others of the same turn are there."""
    order: list[str] = []

    async def ask(turn: BatchedWork, number: int) -> int:
        order.append(f"asked {number}")

        def work() -> int:
            order.append(f"done {number}")
            return number * number

        result = await turn.run(work)
        order.append(f"continued {number}")
        return result

    async def scenario() -> list[int]:
        turn = BatchedWork()
        return await asyncio.gather(*(ask(turn, number) for number in range(3)))

    assert asyncio.run(scenario()) == [0, 1, 4]
    steps = ("asked", "done", "continued")
    assert order == [f"{step} {number}" for step in steps for number in range(3)]


def test_a_failure_reaches_its_own_request_only() -> None:
    """The exception is raised where the work was handed over; the others get their results."""

    def fail() -> str:
        raise ValueError("unfit")

    async def scenario() -> list[str | BaseException]:
        turn = BatchedWork()
        works = (turn.run(lambda: "one"), turn.run(fail), turn.run(lambda: "three"))
        return await asyncio.gather(*works, return_exceptions=True)

    first, second, third = asyncio.run(scenario())
    assert (first, third) == ("one", "three")
    assert isinstance(second, ValueError)


class Turns:
    """Counts the work of each turn of the event loop; each piece takes some time of a clock."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.now = 0.0
        self.counts: list[int] = []
        self._seconds = seconds

    def work(self, number: int) -> int:
        self.now += self._seconds
        self.counts[-1] += 1
        return number

    async def results(self, count: int) -> list[int]:
        """The results of so many requests of one turn."""
        turn = BatchedWork(lambda: self.now)
        watching = asyncio.create_task(self._watch())
        works = (turn.run(partial(self.work, number)) for number in range(count))
        results = await asyncio.gather(*works)
        watching.cancel()
        return results

    async def _watch(self) -> None:
        while True:
            self.counts.append(0)
            await asyncio.sleep(0)


@pytest.mark.parametrize("count", [MOST_AT_ONCE, MOST_AT_ONCE + 1, 5 * MOST_AT_ONCE])
def test_a_turn_has_a_number_of_works(count: int) -> None:
    """The rest is done in the next turns, and nothing is lost."""
    turns = Turns()

    assert asyncio.run(turns.results(count)) == list(range(count))
    assert sum(turns.counts) == count
    assert max(turns.counts) == MOST_AT_ONCE
    assert sum(map(bool, turns.counts)) == -(-count // MOST_AT_ONCE)


@pytest.mark.parametrize(("each", "most"), [(0.3, 4), (1.0, 1), (20.0, 1), (0.0001, MOST_AT_ONCE)])
def test_a_turn_has_a_time(each: float, most: int) -> None:
    """Work that takes longer than all of it is done alone."""
    turns = Turns(each * LONGEST_BATCH)

    assert asyncio.run(turns.results(40)) == list(range(40))
    assert sum(turns.counts) == 40
    assert max(turns.counts) == most


def test_work_that_comes_during_the_turns_joins_the_last() -> None:
    """In the order of arrival."""
    order: list[int] = []
    clock = Turns(LONGEST_BATCH)
    begun = asyncio.Event()

    async def ask(turn: BatchedWork, number: int) -> None:
        def work() -> None:
            clock.now += LONGEST_BATCH
            order.append(number)
            begun.set()

        await turn.run(work)

    async def scenario() -> None:
        turn = BatchedWork(lambda: clock.now)
        asking = [asyncio.create_task(ask(turn, number)) for number in range(3)]
        await begun.wait()
        await asyncio.gather(*asking, ask(turn, 3))
        await ask(turn, 4)

    asyncio.run(scenario())
    assert order == [0, 1, 2, 3, 4]


class PanicException(BaseException):
    """As the X.509 library's."""


def test_a_panic_reaches_its_own_request_only() -> None:
    """It is no Exception; before, all other requests of the turn waited until their deadline."""

    def panic() -> str:
        raise PanicException

    async def ask(turn: BatchedWork, work: Callable[[], str]) -> str:
        try:
            return await turn.run(work)
        except PanicException:
            return "panic"

    async def scenario() -> list[str]:
        turn = BatchedWork()
        works = (lambda: "one", panic, lambda: "three")
        return await asyncio.gather(*(ask(turn, work) for work in works))

    assert asyncio.run(scenario()) == ["one", "panic", "three"]


def test_an_interrupted_turn_goes_on_in_the_next() -> None:
    """By a clock that fails, say: each request gets its result."""
    readings = iter([0.0, 0.0, OSError(), *[0.0] * 10])

    def clock() -> float:
        if isinstance(reading := next(readings), OSError):
            raise reading
        return reading

    async def scenario() -> list[int]:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        turn = BatchedWork(clock)
        return await asyncio.gather(*(turn.run(partial(int, number)) for number in range(5)))

    assert asyncio.run(scenario()) == list(range(5))


def test_a_request_that_is_cancelled_affects_no_other() -> None:
    """Its work is done for nobody."""

    async def scenario() -> str:
        turn = BatchedWork()
        gone = asyncio.create_task(turn.run(lambda: "gone"))
        stays = asyncio.create_task(turn.run(lambda: "stays"))
        await asyncio.sleep(0)
        gone.cancel()
        return await stays

    assert asyncio.run(scenario()) == "stays"
