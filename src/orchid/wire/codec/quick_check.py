"""Fast check whether a decoded document is valid as it is, which nearly all are.

Start with `quick_check_of(schema)`. A check counts keys and raises `NeedsValidation` if the
document needs the full validation of field_validation.py; it never gives a reason.
"""

import datetime
import math
from collections.abc import Callable
from typing import Any

from orchid.wire.codec.field_validation import (
    INT32,
    INT32_RANGE,
    INT64_RANGE,
    MAX_DEPTH,
    MICRO_TEXT,
    MICRO_TIME,
    MICRO_TIME_TEXT,
    WHOLE_TIME,
    encoding_of,
)
from orchid.wire.schema import Anything, Fields, Leaf, Mapping, Node, Scalar, Sequence

QuickCheck = Callable[[Any], int]


class NeedsValidation(Exception):
    """The document needs the full validation."""


def quick_check_of(schema: Fields) -> QuickCheck:
    """A function that counts all keys of a document whose types have been checked.

    It raises NeedsValidation for unknown fields, invalid times, integers beyond 64 bits, lists with
    more items than declared, and wrong types in parts that are plain dicts.
    """
    return _check_fields(schema, schema.open, {})


_Known = dict[tuple[int, bool], QuickCheck]


def _quick_check(node: Node, raw: bool, known: _Known, encoding: str = "") -> QuickCheck | None:
    """None if there is nothing to check. The types of `raw` parts have not been checked before."""
    match node:
        case Leaf(scalar=scalar):
            return _check_leaf(scalar, raw, encoding)
        case Anything():
            return _check_anything
        case Fields():
            return _check_fields(node, raw or node.open, known)
        case Mapping(values=values, most=most):
            return _check_mapping(_quick_check(values, raw, known), raw, most)
        case Sequence(items=items, most=most):
            return _check_sequence(_quick_check(items, raw, known), raw, most)


class _Closed(dict[str, QuickCheck | None]):
    """The members of a record; any other raises NeedsValidation."""

    def __missing__(self, key: str) -> QuickCheck:
        raise NeedsValidation


class _Open(dict[str, QuickCheck | None]):
    """The members of a record that stores unknown fields."""

    def __missing__(self, key: str) -> QuickCheck:
        return _check_anything


def _check_fields(node: Fields, raw: bool, known: _Known) -> QuickCheck:
    if (id(node), raw) in known:
        return known[id(node), raw]
    members: dict[str, QuickCheck | None] = _Open() if node.open else _Closed()

    def check(value: Any) -> int:
        if type(value) is not dict:
            return _needs_validation(value)
        count = len(value)
        for key, item in value.items():
            member_check = members[key]
            # Null of the right type means absent.
            if member_check is not None and (raw or item is not None):
                count += member_check(item)
        return count

    known[id(node), raw] = check
    for name, field in node.fields.items():
        members[name] = _quick_check(field.node, raw, known, encoding_of(field))
    return check


def _check_mapping(values: QuickCheck | None, raw: bool, most: int | None) -> QuickCheck:
    if values is None and not raw and most is None:
        return len  # already a dict of strings

    def check(value: Any) -> int:
        if type(value) is not dict or (most is not None and len(value) > most):
            return _needs_validation(value)
        if values is None:
            return len(value)
        return len(value) + sum(map(values, value.values()))

    return check


def _check_sequence(items: QuickCheck | None, raw: bool, most: int | None) -> QuickCheck | None:
    if items is None and not raw and most is None:
        return None

    def check(value: Any) -> int:
        if type(value) is not list or (most is not None and len(value) > most):
            return _needs_validation(value)
        return sum(map(items, value)) if items else 0

    return check


def _check_leaf(scalar: Scalar, raw: bool, encoding: str) -> QuickCheck | None:
    if scalar is Scalar.INTEGER:
        return _check_small_integer if encoding == INT32 else _check_integer
    if scalar is Scalar.TIME:
        check = _check_micro_time if encoding == MICRO_TIME else _check_time
        return _check_day(check) if raw else check
    if scalar is Scalar.STRING and encoding == MICRO_TIME:
        return _check_micro_text
    if not raw:
        return None
    return {
        Scalar.STRING: _check_string,
        Scalar.BYTES: _needs_validation,  # only the full validation decodes base64
        Scalar.BOOLEAN: _check_boolean,
        Scalar.NUMBER: _check_number,
    }[scalar]


def _needs_validation(_: Any) -> int:
    raise NeedsValidation


def _check_integer(value: Any) -> int:
    if type(value) is int and value in INT64_RANGE:
        return 0
    raise NeedsValidation


def _check_small_integer(value: Any) -> int:
    if type(value) is int and value in INT32_RANGE:
        return 0
    raise NeedsValidation


def _check_micro_text(value: Any) -> int:
    if type(value) is not str or not value.endswith("Z") or not MICRO_TEXT.fullmatch(value):
        raise NeedsValidation
    try:
        datetime.datetime.fromisoformat(value)
    except ValueError:
        raise NeedsValidation from None
    return 0


def _check_time(value: Any) -> int:
    if type(value) is str and WHOLE_TIME.fullmatch(value):
        return 0
    raise NeedsValidation


def _check_micro_time(value: Any) -> int:
    if type(value) is str and MICRO_TIME_TEXT.fullmatch(value):
        return 0
    raise NeedsValidation


def _check_day(check: QuickCheck) -> QuickCheck:
    """A time that was not converted before may name a day that does not exist."""

    def check_day(value: Any) -> int:
        check(value)
        try:
            datetime.datetime.fromisoformat(value)
        except ValueError:
            raise NeedsValidation from None
        return 0

    return check_day


def _check_string(value: Any) -> int:
    return 0 if type(value) is str else _needs_validation(value)


def _check_boolean(value: Any) -> int:
    return 0 if type(value) is bool else _needs_validation(value)


def _check_number(value: Any) -> int:
    return 0 if type(value) in (int, float) else _needs_validation(value)


def _check_anything(value: Any, depth: int = 1) -> int:
    if depth > MAX_DEPTH:
        raise NeedsValidation
    kind = type(value)
    if kind is dict:
        count, items = len(value), value.values()
    elif kind is list:
        count, items = 0, value
    elif (kind is int and value not in INT64_RANGE) or (kind is float and not math.isfinite(value)):
        raise NeedsValidation
    else:
        return 0
    for item in items:
        if item and type(item) is not str:  # empty and zero values need no check
            count += _check_anything(item, depth + 1)
    return count
