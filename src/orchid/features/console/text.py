"""Values of the API as text for people. All of them are untrusted: names, subjects, messages.

`spelled` makes control and bidirectional characters visible; `spelling` writes out a text with
characters that look like others. Times are shown relative to now, with the exact time as a title.
"""

import datetime
import unicodedata
from collections.abc import Mapping
from typing import Any, Final

from orchid.kernel.base.clock import SystemClock

now: Final = SystemClock().now

LONGEST: Final = 200  # characters that are shown before a value is folded
_INVISIBLE: Final = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
_STEPS: Final = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
SOON: Final = 30 * 86_400


def spelled(value: Any) -> str:
    """A text in which every character is visible."""
    text = "" if value is None else str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if character != " " and (
        unicodedata.category(character) in _INVISIBLE
        or (character.isspace() and not character.isprintable())
    ):
        return _escape(character)
    return character


def _escape(character: str) -> str:
    return f"\\u{{{ord(character):x}}}"


def spelled_lines(value: Any) -> str:
    """The same for a text of several lines."""
    return "\n".join(spelled(line) for line in str(value or "").splitlines())


def spelling(value: Any) -> str:
    """The escaped form of a text with non-ASCII letters; empty for ASCII."""
    text = "" if value is None else str(value)
    if text.isascii():
        return ""
    return "".join(
        character if character.isascii() else _escape(character) for character in spelled(text)
    )[:LONGEST]


def span(seconds: float) -> str:
    """A duration in its largest unit: 5 days, 1 hour."""
    left = max(0, int(seconds))
    for size, unit in _STEPS:
        if left >= size:
            count = left // size
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return "0 seconds"


def parse_time(value: Any) -> datetime.datetime | None:
    """A time of the API; None if it is malformed or absent."""
    try:
        moment = datetime.datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def from_seconds(seconds: int) -> str:
    """A Unix time in the format of the API."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()


def relative(value: Any) -> str:
    """A time relative to now: in 5 days, 3 hours ago."""
    moment = parse_time(value)
    if moment is None:
        return "unknown"
    seconds = (moment - now()).total_seconds()
    return f"in {span(seconds)}" if seconds >= 0 else f"{span(-seconds)} ago"


def exact(value: Any) -> str:
    """A time of the API in UTC."""
    moment = parse_time(value)
    if moment is None:
        return ""
    return f"{moment.astimezone(datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"


def iso(value: Any) -> str:
    """A time of the API in its canonical form; empty if it is malformed."""
    moment = parse_time(value)
    return moment.isoformat() if moment else ""


def seconds_left(value: Any) -> float:
    """Seconds until a time of the API; negative if it has passed, or is unknown."""
    moment = parse_time(value)
    return (moment - now()).total_seconds() if moment else -1.0


def certificate_state(item: Mapping[str, Any]) -> str:
    """The state of an item of a CertificateSearch, in a word."""
    if item.get("revoked"):
        return "On hold" if item.get("reason") == "certificateHold" else "Revoked"
    left, age = seconds_left(item.get("notAfter")), -seconds_left(item.get("notBefore"))
    if left < 0:
        return "Expired"
    is_late = left < min(SOON, (left + age) / 3)
    return "Expires soon" if is_late else "Live"


def short(value: Any) -> str:
    """A serial number or digest, abbreviated."""
    text = str(value or "")
    return text if len(text) <= 16 else f"{text[:8]}…{text[-6:]}"  # noqa: PLR2004 - characters


def cell(value: Any) -> str:
    """A value for CSV that a spreadsheet does not take for a formula."""
    text = str(value or "")
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
