"""Validation of data by key, shared by Secrets and ConfigMaps."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from orchid.kernel.wire.fields import FieldError, Path, forbidden, invalid

LARGEST_DATA = 1_048_576
LONGEST_KEY = 253

_KEY = re.compile(r"[-._a-zA-Z0-9]+").fullmatch
_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' "
    "(e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is "
    "'[-._a-zA-Z0-9]+')"
)


def key_errors(path: Path, data: Mapping[str, Any]) -> Iterator[FieldError]:
    """Validate the keys; each error has the path of its key."""
    for key in data:
        if len(key) > LONGEST_KEY:
            yield invalid(path[key], key, f"must be no more than {LONGEST_KEY} characters")
        if not _KEY(key):
            yield invalid(path[key], key, _KEY_TEXT)
        elif key == ".":
            yield invalid(path[key], key, "must not be '.'")
        elif key == "..":
            yield invalid(path[key], key, "must not be '..'")
        elif key.startswith(".."):
            yield invalid(path[key], key, "must not start with '..'")


def immutable_data_errors(
    still_immutable: bool, fields: Mapping[str, tuple[Any, Any]]
) -> Iterator[FieldError]:
    """Immutable data can neither change nor become mutable."""
    if not still_immutable:
        yield forbidden(Path() / "immutable", "field is immutable when `immutable` is set")
    for name, (new, old) in fields.items():
        if new != old:
            yield forbidden(Path() / name, "field is immutable when `immutable` is set")
