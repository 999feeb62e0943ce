"""Patterns: a star is any characters, and nothing else means anything."""

import fnmatch
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.features.approval.patterns import SEPARATORS, Patterns, matches_everything


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


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("spiffe://a/ns/*", "spiffe://a/ns/b", True),
        ("spiffe://a/ns/*", "spiffe://a/ns/b/sa/admin", False),
        ("spiffe://a/ns/*/sa/*", "spiffe://a/ns/b/sa/c", True),
        ("spiffe://a/ns/*/sa/*", "spiffe://a/ns/b/sa/c/sa/d", False),
        ("spiffe://*/ns/b", "spiffe://evil/x/ns/b", False),
        ("https://*.example.com/", "https://evil:80@x.example.com/", False),
        ("https://*.example.com/", "https://evil/.example.com/", False),
        ("https://*.example.com/", "https://a.b.example.com/", True),
        ("https://*.example.com", "https://evil?.example.com", False),
        ("https://*.example.com", "https://evil#.example.com", False),
        ("https://*.example.com", "https://evil\\.example.com", False),
        ("https://*.example.com", "https://evil%2f.example.com", False),
        ("*@example.com", "a%evil@example.com", False),
        ("*@example.com", "a@example.com", True),
        ("*@example.com", "a@evil@example.com", False),
        ("*example.com", "a@example.com", False),
        ("*", "spiffe://a/ns/b", True),
        ("**", "a@b", True),
        ("*a", "/a", False),
        ("a*b*", "a/b", False),
        ("*a*", "/a", False),
        ("*/a*", "b/a", True),
    ],
)
def test_a_star_ends_at_a_separator(pattern: str, text: str, fits: bool) -> None:
    """In URIs and mail addresses; stars alone match everything."""
    assert Patterns((pattern,), stops=SEPARATORS).match(text) is fits


@given(st.text("ab/@?*", max_size=8), st.text("ab/@:?#%\\", max_size=10))
def test_stars_that_end_at_separators_match_as_a_regular_expression(
    pattern: str, text: str
) -> None:
    """The search from left to right is right here, too: no later part could fit better."""
    expected = (
        re.fullmatch(r"[^/@:?#%\\]*".join(map(re.escape, pattern.split("*"))), text) is not None
    )
    if matches_everything(pattern):
        expected = True

    assert Patterns((pattern,), stops=SEPARATORS).match(text) is expected


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
