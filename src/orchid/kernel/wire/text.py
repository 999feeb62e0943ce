"""Short texts as Kubernetes prints them: quoted strings, durations, times."""

import datetime
import re
from collections.abc import Sequence

# Responses repeat values of the request, some several times. Longer values are omitted.
LONGEST_SHOWN = 16 * 1024
OMITTED = "<value omitted>"
LONGEST_SENTENCE = 1024  # characters, as of the message of a rule
MOST_SENTENCES = 8  # reasons that one sentence lists; the others are counted
REDACTED = "<secret contents redacted>"  # replaces confidential values

_LAST_ASCII, _LAST_SHORT = 0x7F, 0xFFFF
_ESCAPES = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
    "\\": "\\\\", '"': '\\"',
}  # fmt: skip


_TYPES = {
    "array": "a list", "bool": "true or false", "float": "a number", "int": "a whole number",
    "null": "nothing", "object": "a mapping", "str": "text",
}  # fmt: skip
_types = re.compile(r"`([a-z]+(?: \| [a-z]+)*)`")


def without_type_names(problem: str) -> str:
    """A message of msgspec about a value of the wrong type, in words for people."""
    words = _types.sub(lambda names: " or ".join(map(_type, names[1].split(" | "))), problem)
    if words == problem or not words.startswith("Expected "):
        return problem
    return f"must be {words.removeprefix('Expected ').replace(', got ', ', not ')}"


def field_problem(problem: str) -> str:
    """A message of msgspec as `field: reason`, in words for people."""
    text, _, where = problem.partition(" - at `$")
    reason = without_type_names(text).replace("Object contains unknown", "unknown")
    field = where.rstrip("`").removeprefix(".")
    return f"{field}: {reason}" if field else reason


def _type(name: str) -> str:
    return _TYPES.get(name, f"`{name}`")


def shown(text: str) -> str:
    """A text of a request as a response may repeat it: unchanged, or omitted if too long."""
    return text if len(text) <= LONGEST_SHOWN else OMITTED


def shortened(sentence: str) -> str:
    if len(sentence) <= LONGEST_SENTENCE:
        return sentence
    return f"{sentence[: LONGEST_SENTENCE - 1]}…"


def first_few(sentences: Sequence[str]) -> tuple[str, ...]:
    """The first sentences, each of a limited length, and the number of the others.

    A caller chooses how many there are and how long they are.
    """
    few = [shortened(text) for text in sentences[:MOST_SENTENCES]]
    more = len(sentences) - len(few)
    return (*few, f"and {more} more") if more else tuple(few)


def header_text(value: str) -> str:
    """The UTF-8 text of a header; the listener passes one character per byte.

    Invalid UTF-8 becomes U+FFFD, which matches no name.
    """
    return value if value.isascii() else value.encode("latin-1", "replace").decode(errors="replace")


def quote(text: str) -> str:
    """Quote a string; unprintable characters are escaped."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{text.translate(_QUOTED)}"'


class _Quoted(dict[int, str]):
    """Cache of quoted characters; only common ones are cached."""

    def __missing__(self, number: int) -> str:
        return _quoted(chr(number))


def _quoted(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    number = ord(character)
    if number <= _LAST_ASCII:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= _LAST_SHORT else f"\\U{number:08x}"


_QUOTED = _Quoted((number, _quoted(chr(number))) for number in range(256))


def timestamp(moment: datetime.datetime) -> str:
    """RFC 3339, UTC, whole seconds: `2026-01-02T03:04:05Z`."""
    utc = moment.astimezone(datetime.UTC).replace(microsecond=0, tzinfo=None)
    return f"{utc.isoformat()}Z"  # strftime writes the year 442 with three digits


def micro_timestamp(moment: datetime.datetime) -> str:
    """RFC 3339, UTC, with microseconds: `2026-01-02T03:04:05.000006Z`."""
    utc = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    return f"{utc.isoformat(timespec='microseconds')}Z"


_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400


def human_duration(seconds: float) -> str:
    """A duration for a table cell: `75s`, `9m5s`, `26h`, `3d4h`, `2y30d`."""
    whole = int(seconds)
    if whole < 0:
        return "<invalid>" if whole < -1 else "0s"
    for limit, large, large_unit, small, small_unit in (
        (2 * _MINUTE, 1, "s", 0, ""),
        (10 * _MINUTE, _MINUTE, "m", 1, "s"),
        (3 * _HOUR, _MINUTE, "m", 0, ""),
        (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
        (2 * _DAY, _HOUR, "h", 0, ""),
        (8 * _DAY, _DAY, "d", _HOUR, "h"),
        (2 * _YEAR, _DAY, "d", 0, ""),
        (8 * _YEAR, _YEAR, "y", _DAY, "d"),
    ):
        if whole < limit:
            rest = whole % large // small if small else 0
            return f"{whole // large}{large_unit}" + (f"{rest}{small_unit}" if rest else "")
    return f"{whole // _YEAR}y"


def age(created: datetime.datetime | None, now: datetime.datetime) -> str:
    if created is None:
        return "<unknown>"
    return human_duration((now - created).total_seconds())
