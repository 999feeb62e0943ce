"""Words that only this project would use are forbidden: each has a usual word instead."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SEARCHED = (
    "src",
    "tests",
    "docs",
    "benchmarks",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
)
SUFFIXES = {".py", ".md", ".toml", ".yaml", ".sh", ".txt"}
PRIVATE = re.compile(
    r"(?<![a-z]) (?: (?:un)?told | tells"  # say: reported, returned, logged, notified
    r" | whoever"  # the caller, the requester, the client
    r" | anew"  # again
    r" | t(?:ake|akes|aken|aking|ook)[\s_]+back"  # revoke
    r" | glanc(?:e|es|ed|ing)"  # check
    r" | whole[\s_]+way"  # the normal path
    r" | of\s+one.s\s+own"  # your own
    r") (?![a-z])",
    re.IGNORECASE | re.VERBOSE,
)


def offences(path: Path) -> Iterator[str]:
    """Each private word below a path, with its file and line."""
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.suffix in SUFFIXES and file != Path(__file__).resolve() and file.is_file():
            text = file.read_text()
            for match in PRIVATE.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                yield f"{file.relative_to(ROOT)}:{line}: {match.group()}"


def test_no_private_word_is_used() -> None:
    """Source, tests and documentation use the usual word instead."""
    assert [offence for place in SEARCHED for offence in offences(ROOT / place)] == []


@pytest.mark.parametrize(
    ("text", "is_private"),
    [
        ("the watcher is told", True),
        ("self._told = told_together", True),
        ("Whoever signs", True),
        ("taken\n    back", True),
        ("a key of one's own", True),
        ("stoldify", False),
        ("renewed", False),
        ("rolled back", False),
    ],
)
def test_which_words_are_private(text: str, is_private: bool) -> None:
    """Parts of an identifier and words across a line break count; parts of a word do not."""
    assert bool(PRIVATE.search(text)) is is_private
