"""Logging: one line per event, as text for people or as JSON for machines.

Every module logs through the standard library (`log.info("store.opened", extra={...})`), event name
first, values as keys. Secrets have a type that prints as `***`. As a second line of defence,
`masked` removes everything that looks like a token or a private key before a line is written. Lines
cannot be injected: control characters are escaped, and text of several lines (an exception, or
`extra={"story": ...}`) is indented below its event.

An unexpected error is logged by `failure_story`: its location and type, but not its text, which may
quote client input.
"""

import datetime
import logging
import re
import sys
import traceback
from typing import Any

import msgspec

MASK = "***"
STORY = "story"  # the value of this name has several lines

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_SHAPES = "|".join(
    (
        # A JSON Web Token: a base64url header, a dot (perhaps escaped, in a URL), and the rest.
        r"eyJ[A-Za-z0-9_-]{8,}(?:\.|%2[eE])[A-Za-z0-9_.%-]{8,}",
        # A private key as PEM, to its end or to the end of the string around it.
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^\"]*?(?:-----END [A-Z ]*PRIVATE KEY-----|(?=\")|\Z)",
        # The same in base64, as in a field of bytes; by the name of its type.
        r"LS0tLS1CRUdJTi(?:BQUklWQVRFIEtFWS|BFQyBQUklWQVRFIEtFWS|BSU0EgUFJJVkFURSBLRVkt"
        r"|BFTkNSWVBURUQgUFJJVkFURSBLRVkt|BPUEVOU1NIIFBSSVZBVEUgS0VZLS)[A-Za-z0-9+/=_-]*",
    )
)
_IN_TEXT = re.compile(_SHAPES)
_IN_BYTES = re.compile(_SHAPES.encode())
_SIGNS = ("eyJ", "PRIVATE KEY", "LS0tLS1CRUdJTi")  # without one of these there is no such text


def masked(text: str) -> str:
    """The text without anything that looks like a token or a private key."""
    if any(sign in text for sign in _SIGNS):
        return _IN_TEXT.sub(MASK, text)
    return text


def has_shape(data: bytes) -> bool:
    """Whether encoded text holds anything that `masked` would remove."""
    if b"eyJ" in data or b"PRIVATE KEY" in data or b"LS0tLS1CRUdJTi" in data:
        return _IN_BYTES.search(data) is not None
    return False


def escaped(text: str) -> str:
    """The text on one line: unprintable characters are escaped, as in a Python string."""
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text
    )


def indented(text: str) -> str:
    """A text of several lines, none of which can be mistaken for a line of the log."""
    return "".join(f"\n    {escaped(line)}" for line in text.split("\n"))


def failure_story(error: BaseException) -> str:
    """The traceback of an error, with its type and the types of its causes; never its text."""
    frames = traceback.StackSummary.from_list(traceback.extract_tb(error.__traceback__))
    sorts: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(sorts) < 8:  # noqa: PLR2004 -- more causes add nothing
        sorts.append(type(cause).__qualname__)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return f"{' from '.join(sorts)}\n{''.join(frames.format())}".rstrip()


def values_of(record: logging.LogRecord) -> dict[str, Any]:
    """The values that the caller put into `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _OWN}


class TextFormatter(logging.Formatter):
    """`12:00:01 info  store.opened path=...`"""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.datetime.fromtimestamp(record.created).strftime("%H:%M:%S")  # noqa: DTZ006 -- a person reads this, in local time
        values = values_of(record)
        story = values.pop(STORY, "")
        fields = "".join(f" {name}={value}" for name, value in values.items())
        line = f"{time} {record.levelname.lower():<7} {escaped(record.getMessage() + fields)}"
        if story:
            line += indented(story)
        if record.exc_info:
            line += indented(self.formatException(record.exc_info))
        return masked(line)


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    _encode = msgspec.json.Encoder(enc_hook=str).encode

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
            **values_of(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return masked(self._encode(line).decode())


def configure(level: str, form: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
