"""Paths in objects and field errors.

Validation yields `FieldError`s instead of raising, so that all of them are returned together:

    SPEC = Path() / "spec"
    yield invalid(SPEC / "signerName", value, "must be a fully qualified domain")
    yield required(SPEC / "usages")

Values are printed as in Kubernetes: strings quoted, numbers and booleans plain, anything else as
JSON. Very long values are omitted, and the total text is limited: a response must not be many times
as large as its request.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from orchid.kernel.wire.status import StatusCause
from orchid.kernel.wire.text import LONGEST_SHOWN, OMITTED, quote, shown

MOST_TEXT = 64 * 1024  # characters of all errors together; the last one may exceed it


class Path(msgspec.Struct, frozen=True):
    """The path of a field, built with `/` for a member and `[]` for an index or a map key."""

    text: str = ""

    def __truediv__(self, member: str) -> "Path":
        return Path(f"{self.text}.{member}" if self.text else member)

    def __getitem__(self, key: int | str) -> "Path":
        return Path(f"{self.text}[{shown(key) if isinstance(key, str) else key}]")

    def __str__(self) -> str:
        return self.text or "<nil>"


METADATA = Path() / "metadata"


class FieldError(msgspec.Struct, frozen=True):
    """An error in one field."""

    path: Path
    reason: str
    problem: str  # "Invalid value: \"x\": must be ..."

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"

    def cause(self) -> StatusCause:
        return StatusCause(reason=self.reason, message=self.problem, field=self.path.text)


def required(path: Path, detail: str = "") -> FieldError:
    return FieldError(path, "FieldValueRequired", _text("Required value", detail))


def invalid(path: Path, value: Any, detail: str = "") -> FieldError:
    return FieldError(path, "FieldValueInvalid", _text(f"Invalid value: {printed(value)}", detail))


def invalid_unshown(path: Path, detail: str) -> FieldError:
    """An invalid value that is too long, or of too many parts, to be repeated."""
    return FieldError(path, "FieldValueInvalid", _text("Invalid value", detail))


def type_invalid(path: Path, value: Any, detail: str = "") -> FieldError:
    return FieldError(
        path, "FieldValueTypeInvalid", _text(f"Invalid value: {printed(value)}", detail)
    )


def unsupported(path: Path, value: Any, supported: Sequence[str]) -> FieldError:
    choices = ", ".join(quote(choice) for choice in supported)
    detail = f"supported values: {choices}" if choices else ""
    return FieldError(
        path, "FieldValueNotSupported", _text(f"Unsupported value: {printed(value)}", detail)
    )


def duplicate(path: Path, value: Any) -> FieldError:
    return FieldError(path, "FieldValueDuplicate", f"Duplicate value: {printed(value)}")


def not_found(path: Path, value: Any) -> FieldError:
    return FieldError(path, "FieldValueNotFound", f"Not found: {printed(value)}")


def forbidden(path: Path, detail: str = "") -> FieldError:
    return FieldError(path, "FieldValueForbidden", _text("Forbidden", detail))


def too_long(path: Path, most: int, unit: str = "byte") -> FieldError:
    plural = unit if most == 1 else unit + "s"
    return FieldError(path, "FieldValueTooLong", f"Too long: may not be more than {most} {plural}")


def too_many(path: Path, count: int, most: int) -> FieldError:
    plural = "item" if most == 1 else "items"
    return FieldError(
        path, "FieldValueTooMany", f"Too many: {count}: must have at most {most} {plural}"
    )


def immutable(path: Path, new: Any, old: Any) -> Iterator[FieldError]:
    if new != old:
        yield invalid(path, new, "field is immutable")


def gathered(errors: Iterable[FieldError]) -> tuple[FieldError, ...]:
    """The errors that fit a response; the others are not even computed."""
    kept = []
    room = MOST_TEXT
    for error in errors:
        kept.append(error)
        room -= len(error.path.text) + len(error.problem)
        if room <= 0:
            break
    return tuple(kept)


def aggregate(errors: Iterable[FieldError]) -> str:
    """All messages as one text: a single one plain, several in brackets, without duplicates."""
    messages = list(dict.fromkeys(str(error) for error in errors))
    if len(messages) == 1:
        return messages[0]
    return f"[{', '.join(messages)}]"


class Printed(str):
    """A value that is already printed, because several errors quote it."""

    __slots__ = ()


def printed(value: Any) -> str:
    if isinstance(value, str):
        return value if isinstance(value, Printed) else quote(shown(value))
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)
    text = msgspec.json.encode(value, order="deterministic").decode()
    return text if len(text) <= 2 * LONGEST_SHOWN else quote(OMITTED)


def _text(problem: str, detail: str) -> str:
    return f"{problem}: {shown(detail)}" if detail else problem
