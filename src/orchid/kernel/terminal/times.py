"""Times and durations as people write and read them: `90m`, `24h`, `3h ago`.

`duration_of(text)` parses a flag; `age` and `until` show a time relative to now.
"""

import argparse
import datetime
import math
import re

from orchid.kernel.base.clock import utc

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_WHOLE = re.compile(r"(?:\d{1,9}[smhd])+", re.ASCII)
_PART = re.compile(r"(\d+)([smhd])", re.ASCII)
_STEPS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def duration_of(text: str) -> int:
    """Seconds in `45s`, `90m`, `1h30m`, `7d`; for argparse."""
    if not _WHOLE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration, like 90m, 24h or 7d")
    return sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def span(seconds: float) -> str:
    """A duration in at most two units: 90061 -> 1d1h."""
    left = max(0, int(seconds))
    for index, (size, unit) in enumerate(_STEPS):
        if left >= size:
            text = f"{left // size}{unit}"
            if index + 1 < len(_STEPS):
                smaller, letter = _STEPS[index + 1]
                rest = left % size // smaller
                text += f"{rest}{letter}" if rest else ""
            return text
    return "0s"


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def parse(text: object) -> datetime.datetime | None:
    """A time of the API; None if it is malformed."""
    try:
        moment = datetime.datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def age(text: object) -> str:
    """The age of an API time."""
    moment = parse(text)
    return "unknown" if moment is None else span((now() - moment).total_seconds())


def until(moment: datetime.datetime) -> str:
    """A time, and its distance from now."""
    seconds = (moment - now()).total_seconds()
    near = f"in {span(seconds)}" if seconds >= 0 else f"{span(-seconds)} ago"
    return f"{moment.astimezone(datetime.UTC):%Y-%m-%d %H:%M:%S} UTC ({near})"


def text_of(seconds: float) -> str:
    """A Unix time in the format of the API, rounded to seconds."""
    return utc(datetime.datetime.fromtimestamp(math.ceil(seconds), datetime.UTC))
