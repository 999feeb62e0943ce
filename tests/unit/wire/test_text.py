"""Times and quotations as clients know them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from orchid.wire.text import quote, timestamp


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
