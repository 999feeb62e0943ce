"""Handshakes take turns: how many in one turn of the loop, and who comes next."""

import asyncio
from dataclasses import dataclass, field

from orchid.server.sockets.handshake_turns import HandshakeTurns


@dataclass
class Stranger:
    """Somebody who wants some steps done; `done` gets a name for each."""

    name: str
    done: list[str]
    turns: HandshakeTurns
    steps: int = 1
    closed: bool = field(default=False)

    def is_closing(self) -> bool:
        return self.closed

    def shake_hands(self) -> None:
        self.done.append(self.name)
        self.steps -= 1
        if self.steps:
            self.turns.ask(self)


async def turn() -> None:
    """Let the loop go round once."""
    await asyncio.sleep(0)


async def test_few_are_served_at_once() -> None:
    """Nobody waits for a turn while there is room in this one."""
    done: list[str] = []
    turns = HandshakeTurns(asyncio.get_running_loop(), at_once=3)

    for name in "abc":
        turns.ask(Stranger(name, done, turns))

    assert done == ["a", "b", "c"]


async def test_a_rush_is_served_a_few_in_each_turn() -> None:
    """In the order in which they came; another step of the same comes after those who wait."""
    done: list[str] = []
    turns = HandshakeTurns(asyncio.get_running_loop(), at_once=3)
    for name in "abcdefgh":
        turns.ask(Stranger(name, done, turns, steps=2 if name == "d" else 1))
    counts = [len(done)]

    while len(done) < 9:
        await turn()
        counts.append(len(done))

    assert "".join(done) == "abcddefgh"
    assert counts == [3, 6, 9]


async def test_who_has_gone_takes_no_turn() -> None:
    """Those who were dropped while they waited cost nothing."""
    done: list[str] = []
    turns = HandshakeTurns(asyncio.get_running_loop(), at_once=2)
    crowd = [Stranger(str(number), done, turns) for number in range(100)]
    for stranger in crowd:
        turns.ask(stranger)
    for stranger in crowd[2:98]:
        stranger.closed = True

    await turn()

    assert done == ["0", "1", "98", "99"]


async def test_a_new_turn_has_room_again() -> None:
    """Whoever comes after a rush is served at once."""
    done: list[str] = []
    turns = HandshakeTurns(asyncio.get_running_loop(), at_once=2)
    for number in range(6):
        turns.ask(Stranger(str(number), done, turns))
    for _ in range(6):
        await turn()

    turns.ask(Stranger("late", done, turns))

    assert done[-1] == "late"
    assert len(done) == 7
