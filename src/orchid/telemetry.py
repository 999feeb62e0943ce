"""Logging: one line per event, as text for people or as JSON for machines.

Every module logs through the standard library (`log.info("store.opened", extra={...})`), event name
first, values as keys. Secrets never get here: they travel in a type that prints as `***`.
"""

import datetime
import logging
import sys
from typing import Any

import msgspec

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def values_of(record: logging.LogRecord) -> dict[str, Any]:
    """What the caller put into `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _OWN}


class TextFormatter(logging.Formatter):
    """`12:00:01 info  store.opened path=...`"""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.datetime.fromtimestamp(record.created).strftime("%H:%M:%S")  # noqa: DTZ006 -- a person reads this, in local time
        values = "".join(f" {name}={value}" for name, value in values_of(record).items())
        line = f"{time} {record.levelname.lower():<7} {record.getMessage()}{values}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


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
        return self._encode(line).decode()


def configure(level: str, form: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
