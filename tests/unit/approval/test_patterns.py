"""Patterns: a star is any characters, and nothing else means anything."""

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.approval.patterns import Patterns, matches_everything


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("a", "a", True),
        ("a", "A", False),
        ("*", "", True),
        ("*", "any.thing", True),
        ("*.example.com", "a.b.example.com", True),
        ("*.example.com", "example.com", False),
        ("*.example.com", "a.example.com.evil", False),
        ("a*b", "ab", True),
        ("a*b", "a", False),
        ("ab*ba", "aba", False),
        ("a*b*c", "a-b-c", True),
        ("a.c", "abc", False),
        ("[a]*", "a", False),
        ("*\n", "a\n", True),
    ],
)
def test_a_star_is_any_characters(pattern: str, text: str, fits: bool) -> None:
    """Dots, brackets and line ends are characters like any other."""
    assert Patterns((pattern,)).match(text) is fits


@given(st.text("ab*", max_size=8), st.text("ab", max_size=10))
def test_patterns_match_as_another_implementation_says(pattern: str, text: str) -> None:
    """The search from left to right finds a match whenever there is one."""
    assert Patterns((pattern,)).match(text) is fnmatch.fnmatchcase(text, pattern)


def test_case_is_passed_over_only_where_that_is_wanted() -> None:
    """Host names are the same in capitals; users are not."""
    assert Patterns(("*.Example.com", "B"), ignores_case=True).match("a.eXample.COM")
    assert Patterns(("*.Example.com", "B"), ignores_case=True).match("b")
    assert not Patterns(("*.Example.com",)).match("a.example.com")


def test_no_pattern_matches_nothing() -> None:
    """A list that is left out allows nothing."""
    assert not Patterns(()).match("")


@pytest.mark.parametrize(
    ("pattern", "everything"), [("*", True), ("**", True), ("", False), ("*a", False)]
)
def test_what_matches_everything_is_known(pattern: str, everything: bool) -> None:
    """Also when it is written in an odd way."""
    assert matches_everything(pattern) is everything
