"""Long work in steps: how many in one iteration of the event loop, and in which order."""

import asyncio
from collections.abc import Callable

from orchid.kernel.base.scheduling.step_queue import StepQueue


async def turn() -> None:
    """Let the loop go round once."""
    await asyncio.sleep(0)


class Work:
    """Steps that write down their names when they are done."""

    def __init__(self, at_once: int) -> None:
        self.queue = StepQueue(asyncio.get_running_loop(), at_once)
        self.done: list[str] = []

    def ask(self, name: str, times: int = 1) -> None:
        self.queue.run(lambda: self._do(name, times, self.ask))

    def wait(self, name: str, times: int = 1) -> None:
        self.queue.add(lambda: self._do(name, times, self.wait))

    def _do(self, name: str, times: int, again: Callable[[str, int], None]) -> None:
        self.done.append(name)
        if times > 1:
            again(name, times - 1)


async def test_few_are_served_at_once() -> None:
    """Nobody waits for a turn while there is room in this one."""
    work = Work(at_once=3)

    for name in "abc":
        work.ask(name)

    assert work.done == ["a", "b", "c"]


async def test_a_rush_is_served_a_few_in_each_turn() -> None:
    """In the order in which they came, if each has one step to do."""
    work = Work(at_once=3)
    for name in "abcdefgh":
        work.ask(name)
    counts = [len(work.done)]

    while len(work.done) < 8:
        await turn()
        counts.append(len(work.done))

    assert "".join(work.done) == "abcdefgh"
    assert counts == [3, 6, 8]


async def test_who_waits_again_comes_behind_the_others() -> None:
    """Somebody with many steps to do is no obstacle to those with few."""
    work = Work(at_once=2)
    work.wait("a", times=3)
    for name in "bcd":
        work.wait(name)
    counts = []

    while len(work.done) < 6:
        await turn()
        counts.append(len(work.done))

    assert "".join(work.done) == "abcdaa"
    assert counts == [2, 4, 6]


async def test_a_new_turn_has_room_again() -> None:
    """A connection after a rush is served immediately."""
    work = Work(at_once=2)
    for number in range(6):
        work.ask(str(number))
    for _ in range(6):
        await turn()

    work.ask("late")

    assert work.done[-1] == "late"
    assert len(work.done) == 7


async def test_a_step_that_fails_does_not_end_the_turns() -> None:
    """Those who wait behind it have theirs in the next turn."""
    loop = asyncio.get_running_loop()
    failures: list[object] = []
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    work = Work(at_once=2)

    def fail() -> None:
        raise ValueError

    work.queue.add(fail)
    work.wait("behind")
    await turn()
    await turn()

    assert work.done == ["behind"]
    assert len(failures) == 1
