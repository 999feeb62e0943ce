"""Work of several requests is done together, and each gets its own result."""

import asyncio
from functools import partial

import pytest

from orchid.shared_turn import MOST_AT_ONCE, SharedTurn


def test_work_is_done_together_after_all_have_asked() -> None:
    """None of it begins before the others of the same turn are there."""
    order: list[str] = []

    async def ask(turn: SharedTurn, number: int) -> int:
        order.append(f"asked {number}")

        def work() -> int:
            order.append(f"done {number}")
            return number * number

        result = await turn.run(work)
        order.append(f"continued {number}")
        return result

    async def scenario() -> list[int]:
        turn = SharedTurn()
        return await asyncio.gather(*(ask(turn, number) for number in range(3)))

    assert asyncio.run(scenario()) == [0, 1, 4]
    steps = ("asked", "done", "continued")
    assert order == [f"{step} {number}" for step in steps for number in range(3)]


def test_a_failure_reaches_its_own_request_only() -> None:
    """The exception is raised where the work was handed over; the others get their results."""

    def fail() -> str:
        raise ValueError("unfit")

    async def scenario() -> list[str | BaseException]:
        turn = SharedTurn()
        works = (turn.run(lambda: "one"), turn.run(fail), turn.run(lambda: "three"))
        return await asyncio.gather(*works, return_exceptions=True)

    first, second, third = asyncio.run(scenario())
    assert (first, third) == ("one", "three")
    assert isinstance(second, ValueError)


@pytest.mark.parametrize("count", [MOST_AT_ONCE, MOST_AT_ONCE + 1, 5 * MOST_AT_ONCE])
def test_very_much_work_is_done_in_several_turns(count: int) -> None:
    """Other callbacks of the event loop run in between; nothing is lost."""
    rounds: list[int] = []

    async def scenario() -> list[int]:
        turn = SharedTurn()

        def work(number: int) -> int:
            rounds[-1] += 1
            return number

        async def watch() -> None:
            while True:
                rounds.append(0)
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        results = await asyncio.gather(
            *(turn.run(partial(work, number)) for number in range(count))
        )
        watching.cancel()
        return results

    assert asyncio.run(scenario()) == list(range(count))
    assert sum(rounds) == count


def test_a_request_that_is_cancelled_affects_no_other() -> None:
    """Its work is done for nobody."""

    async def scenario() -> str:
        turn = SharedTurn()
        gone = asyncio.create_task(turn.run(lambda: "gone"))
        stays = asyncio.create_task(turn.run(lambda: "stays"))
        await asyncio.sleep(0)
        gone.cancel()
        return await stays

    assert asyncio.run(scenario()) == "stays"
