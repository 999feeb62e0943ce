"""Times and quotations as clients know them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from orchid.kernel.wire.text import (
    LONGEST_SENTENCE,
    MOST_SENTENCES,
    first_few,
    quote,
    timestamp,
    without_type_names,
)


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, 999_999, tzinfo=UTC), "2026-01-02T03:04:05Z"),
        (datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=2))), "2026-01-02T01:00:00Z"),
        (datetime(442, 1, 10, tzinfo=UTC), "0442-01-10T00:00:00Z"),
    ],
)
def test_timestamp_is_utc_in_whole_seconds(moment: datetime, text: str) -> None:
    """A timestamp has a year of four digits, whatever the year."""
    assert timestamp(moment) == text


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        ("Expected `str`, got `int`", "must be text, not a whole number"),
        ("Expected `array | null`, got `object`", "must be a list or nothing, not a mapping"),
        ("Expected `int` >= 0", "must be a whole number >= 0"),
        ("Expected `uuid`, got `bool`", "must be `uuid`, not true or false"),
        ("Object missing required field `int`", "Object missing required field `int`"),
        ("'text' is no time", "'text' is no time"),
    ],
)
def test_types_are_named_in_words(problem: str, words: str) -> None:
    """People who write a file know its format, not the types of Python."""
    assert without_type_names(problem) == words


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("plain", '"plain"'),
        ('a"b\\c', '"a\\"b\\\\c"'),
        ("\n\t\x01\x7f", '"\\n\\t\\x01\\x7f"'),
        ("é€\u00a0\u2028", '"é€\\u00a0\\u2028"'),
        ("\U0001f600\U000e0001", '"\U0001f600\\U000e0001"'),
    ],
)
def test_quotes_escape_what_cannot_be_printed(text: str, quoted: str) -> None:
    """As the reference quotes strings in its messages."""
    assert quote(text) == quoted


def test_the_first_sentences_are_listed_and_the_others_counted() -> None:
    """Also one of a caller that is as long as a page."""
    sentences = [str(number) for number in range(MOST_SENTENCES + 3)]

    assert first_few(sentences[:MOST_SENTENCES]) == tuple(sentences[:MOST_SENTENCES])
    assert first_few(sentences) == (*sentences[:MOST_SENTENCES], "and 3 more")
    assert first_few(["x" * LONGEST_SENTENCE])[0] == "x" * LONGEST_SENTENCE
    assert first_few(["x" * (LONGEST_SENTENCE + 1)])[0] == "x" * (LONGEST_SENTENCE - 1) + "…"
