"""Where two answers differ: the first place, and a class that many differences share."""

import re
from collections.abc import Iterator
from typing import Any

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')


def differences(one: Any, other: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every path at which two values differ, the most important first."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys(), key=_rank):
            if key not in one:
                yield f"{place}.{key}", "<absent>", other[key]
            elif key not in other:
                yield f"{place}.{key}", one[key], "<absent>"
            else:
                yield from differences(one[key], other[key], f"{place}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for mine, theirs in zip(one, other, strict=True):
            yield from differences(mine, theirs, f"{place}[]")
    elif one != other or isinstance(one, bool) != isinstance(other, bool):
        yield place, one, other


def class_of(label: str, one: dict[str, Any], other: dict[str, Any]) -> str | None:
    """The class of a difference; None if there is none."""
    if one["status"] != other["status"]:
        return f"{label}: status {_status_and_reason(one)} / {_status_and_reason(other)}"
    for place, mine, theirs in differences(one, other):
        shown = ""
        if place.endswith(("message", "reason", "code")) or place.count(".") == 1:
            shown = f": {_short(mine)} / {_short(theirs)}"
        return f"{label}: {one['status']} {place}{shown}"
    return None


def _status_and_reason(answer: dict[str, Any]) -> str:
    body = answer["body"]
    reason = body.get("reason", "") if isinstance(body, dict) else ""
    return f"{answer['status']} {reason}".strip()


def _short(value: Any) -> str:
    return _QUOTED.sub('"…"', str(value))[:90]


def _rank(key: str) -> tuple[int, str]:
    first = ("status", "reason", "code", "message", "body")
    return (first.index(key) if key in first else len(first), key)
