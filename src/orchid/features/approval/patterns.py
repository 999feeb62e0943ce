"""Patterns in which `*` matches any characters, also none.

Start with `Patterns`. Those without a star are looked up, the others tried in turn. No pattern is
slow: the parts between stars are searched from left to right, which finds every match.

In URIs and mail addresses a star ends at a separator (`SEPARATORS`): `spiffe://a/*` must not match
`spiffe://a/ns/b`, nor `https://*.b` the host `evil` of `https://evil/x.b` and `https://evil?.b`.
Only a pattern that is just a star matches everything there, too.
"""

from collections.abc import Iterable

STAR = "*"
# Each ends a part of a URI or mail address for some reader: a backslash is `/` for browsers, and
# `%` begins the code of any of them.
SEPARATORS = "/@:?#%\\"

Glob = tuple[str, tuple[str, ...], str]  # the texts before, between and after the stars


class Patterns:
    """A set of patterns, of which one has to match."""

    __slots__ = ("_exact", "_folds", "_globs", "_stops")

    def __init__(
        self, patterns: Iterable[str], *, ignores_case: bool = False, stops: str = ""
    ) -> None:
        """`stops`: the characters that a star does not match."""
        self._folds = ignores_case
        self._stops = stops
        texts = {pattern.lower() if ignores_case else pattern for pattern in patterns}
        self._exact = frozenset(pattern for pattern in texts if STAR not in pattern)
        self._globs = tuple(_parts(pattern) for pattern in texts if STAR in pattern)

    def __len__(self) -> int:
        """The number of patterns that are tried in turn."""
        return len(self._globs)

    def match(self, text: str) -> bool:
        if self._folds:
            text = text.lower()
        if text in self._exact:
            return True
        for glob in self._globs:
            first, _, last = glob
            if text.startswith(first) and text.endswith(last) and _fits(glob, text, self._stops):
                return True
        return False


def _fits(glob: Glob, text: str, stops: str) -> bool:
    """Whether the parts of a pattern follow each other in a text, with no stop between them."""
    first, between, last = glob
    position, end = len(first), len(text) - len(last)
    if not (first or last or any(between)):
        return True  # stars alone
    for part in between:
        start = text.find(part, position, end)
        if start < 0 or _has_any(stops, text, position, start):
            return False
        position = start + len(part)
    return position <= end and not _has_any(stops, text, position, end)


def _has_any(characters: str, text: str, start: int, end: int) -> bool:
    return any(text.find(one, start, end) >= 0 for one in characters)


def _parts(pattern: str) -> Glob:
    first, *between, last = pattern.split(STAR)
    return first, tuple(between), last


def matches_everything(pattern: str) -> bool:
    return bool(pattern) and not pattern.strip(STAR)
