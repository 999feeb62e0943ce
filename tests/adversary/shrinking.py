"""The shortest history that still fails: delta debugging over whole operations.

Zeller and Hildebrandt's ddmin, on a budget: each try costs a fresh server. The last operation
always stays, because the violation was seen after it. Operations with the names of the last one are
tried alone first, since most others have nothing to do with it.
"""

from collections.abc import Callable, Sequence

from tests.adversary.operations import Operation

Fails = Callable[[Sequence[Operation]], bool]


def shrunk(history: Sequence[Operation], fails: Fails, tries: int) -> list[Operation]:
    """A shorter history that still fails; the same one if none was found within so many tries."""
    budget = _Budget(fails, tries)
    current = list(history)
    for guess in _guesses(current):
        if len(guess) < len(current) and budget.fails(guess):
            current = guess
            break
    return _ddmin(current, budget)


class _Budget:
    """Counts tries; without any left nothing fails any more."""

    def __init__(self, fails: Fails, tries: int) -> None:
        self._fails, self.left = fails, tries

    def fails(self, history: Sequence[Operation]) -> bool:
        if self.left <= 0:
            return False
        self.left -= 1
        return self._fails(history)


def _guesses(history: list[Operation]) -> list[list[Operation]]:
    """Histories that are worth a try: what names the same objects, then the latest operations."""
    last = history[-1]
    names = {last.name, last.name.rpartition(":")[2], last.name.rpartition("-")[0]} - {""}
    related = [one for one in history if any(name in str(one) for name in names)]
    late = [history[-length:] for length in (8, 20, 50)]
    return [*late[:1], related[-30:], *late[1:]]


def _ddmin(history: list[Operation], budget: _Budget) -> list[Operation]:
    *current, last = history
    parts = 2
    while current and parts <= 2 * len(current) and budget.left > 0:
        size = max(1, len(current) // parts)
        for start in range(0, len(current), size):
            rest = current[:start] + current[start + size :]
            if budget.fails([*rest, last]):
                current, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(2 * parts, len(current))
    return [*current, last]
