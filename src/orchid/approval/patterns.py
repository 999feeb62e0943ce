"""Patterns: texts in which `*` stands for any characters, also for none.

Start with `Patterns`. Those without a star are looked up, the others tried one after the other. No
pattern is slow: the parts between stars are searched for from left to right, which finds a match
whenever there is one.
"""

from collections.abc import Iterable

STAR = "*"


class Patterns:
    """Some patterns, of which one has to match."""

    __slots__ = ("_exact", "_folds", "_globs")

    def __init__(self, patterns: Iterable[str], *, ignores_case: bool = False) -> None:
        self._folds = ignores_case
        given = {one.lower() if ignores_case else one for one in patterns}
        self._exact = frozenset(one for one in given if STAR not in one)
        self._globs = tuple(_parts(one) for one in given if STAR in one)

    def __len__(self) -> int:
        """How many are tried one after the other."""
        return len(self._globs)

    def match(self, text: str) -> bool:
        if self._folds:
            text = text.lower()
        if text in self._exact:
            return True
        for first, between, last in self._globs:
            if text.startswith(first) and text.endswith(last) and _fits(first, between, last, text):
                return True
        return False


def _fits(first: str, between: tuple[str, ...], last: str, text: str) -> bool:
    """Whether the parts between the ends of a text follow each other in it."""
    position, end = len(first), len(text) - len(last)
    for part in between:
        found = text.find(part, position, end)
        if found < 0:
            return False
        position = found + len(part)
    return position <= end


def _parts(pattern: str) -> tuple[str, tuple[str, ...], str]:
    first, *between, last = pattern.split(STAR)
    return first, tuple(between), last


def matches_everything(pattern: str) -> bool:
    return bool(pattern) and not pattern.strip(STAR)
