"""The content behind a tag of a protobuf message, decoded into a field.

Each of `once`, `content`, `appended`, `number_field`, `appended_number` and `packed` makes a
function that decodes one field; protobuf_reader.py chooses. `skip` returns the position behind an
unknown field. `budget` counts elements and fields and is reset for each message.
"""

import binascii
import threading
from collections.abc import Callable
from typing import Any

from orchid.kernel.wire.codec.bounds import MOST_FIELDS, MOST_VALUES, too_many
from orchid.kernel.wire.codec.field_validation import Undecodable
from orchid.kernel.wire.codec.protobuf_scalars import (
    END_GROUP,
    FIXED32,
    FIXED64,
    GROUP,
    LENGTH,
    MASK32,
    SIGN32,
    SIGN64,
    VARINT,
    read_varint,
)
from orchid.kernel.wire.schema import Leaf, Node, Scalar

Values = dict[str, Any]
Read = Callable[[bytes, int, Values], int]  # the message, a position, the values so far
Make = Callable[..., Any]  # from the bytes of a message, and given values

LAST_OF_BYTE = 127  # a larger byte means that the varint continues
CUT_SHORT = "the message is cut short"
_LARGEST_NUMBER = 2**29 - 1
_DEEPEST_GROUP = 100  # as elsewhere; Kubernetes clients send none


class _Budget(threading.local):
    """What the current message may still have, per thread.

    `left`: elements, entries and skipped fields; `fields`: all fields.
    """

    left = fields = 0

    def reset(self) -> None:
        self.left, self.fields = MOST_VALUES, MOST_FIELDS

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Undecodable(f"the message has more than {MOST_VALUES} elements")


budget = _Budget()


def bounds(data: bytes, position: int) -> tuple[int, int]:
    """Start and end of the length-prefixed content at a position."""
    size = data[position]
    position += 1
    if size > LAST_OF_BYTE:
        size, position = read_varint(data, position - 1)
    stop = position + size
    if stop > len(data):
        raise Undecodable(CUT_SHORT)
    return position, stop


def content(name: str, make: Make, keep: bool = True) -> Read:
    def read(data: bytes, position: int, values: Values) -> int:
        start, stop = bounds(data, position)
        value = make(data[start:stop])
        if keep or value:
            values[name] = value
        else:
            values.pop(name, None)
        return stop

    return read


def once(name: str, make: Make) -> Read:
    def read(data: bytes, position: int, values: Values) -> int:
        start, stop = bounds(data, position)
        if name in values:
            raise Undecodable(f"{name} occurs twice")
        values[name] = make(data[start:stop])
        return stop

    return read


def appended(name: str, make: Make, most: int) -> Read:
    def read(data: bytes, position: int, values: Values) -> int:
        start, stop = bounds(data, position)
        items = values.get(name)
        if items is None:
            items = values[name] = []
        if len(items) >= most:
            raise too_many(name, most)
        budget.spend()
        items.append(make(data[start:stop]))
        return stop

    return read


def number_field(name: str, signed: Callable[[int], Any], keep: bool) -> Read:
    def read(data: bytes, position: int, values: Values) -> int:
        number, position = read_varint(data, position)
        value = signed(number)
        if keep or value:
            values[name] = value
        else:
            values.pop(name, None)
        return position

    return read


def appended_number(name: str, signed: Callable[[int], Any]) -> Read:
    def read(data: bytes, position: int, values: Values) -> int:
        number, position = read_varint(data, position)
        budget.spend()
        values.setdefault(name, []).append(signed(number))
        return position

    return read


def packed(name: str, signed: Callable[[int], Any]) -> Read:
    """Several numbers in one content, a valid encoding of number lists."""

    def read(data: bytes, position: int, values: Values) -> int:
        position, stop = bounds(data, position)
        numbers = data[position:stop]
        items, at = values.setdefault(name, []), 0
        while at < len(numbers):
            number, at = read_varint(numbers, at)
            budget.spend()
            items.append(signed(number))
        return stop

    return read


# --- scalars --------------------------------------------------------------------------------------


def utf8_text(data: bytes) -> str:
    return data.decode()


def to_base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def signed_as(scalar: Scalar, short: bool) -> Callable[[int], Any]:
    if scalar is Scalar.BOOLEAN:
        return bool
    return signed32 if short else signed64


def signed64(number: int) -> int:
    return number - (SIGN64 << 1) if number >= SIGN64 else number


def signed32(number: int) -> int:
    """Only the lower 32 bits count, as protobuf specifies for numbers that are too large."""
    number &= MASK32
    return number - (SIGN32 << 1) if number >= SIGN32 else number


def zero(node: Node, raw: bool) -> Make:
    assert isinstance(node, Leaf)
    if node.scalar is Scalar.BYTES and not raw:
        return bytes
    return {Scalar.BOOLEAN: bool, Scalar.INTEGER: int}.get(node.scalar, str)


# --- unknown fields -------------------------------------------------------------------------------


def skip(data: bytes, position: int, number: int, wire_type: int) -> int:
    """The position behind an unknown field."""
    open_groups = 0
    while True:
        budget.spend()
        if not 0 < number <= _LARGEST_NUMBER:
            raise Undecodable(f"{number} is not a field number")
        if wire_type == GROUP:
            open_groups += 1
            if open_groups > _DEEPEST_GROUP:
                raise Undecodable("groups are nested too deeply")
        elif wire_type == END_GROUP:
            open_groups -= 1
        else:
            position = _skip_value(data, position, wire_type)
        if open_groups < 0:
            raise Undecodable("a group ends without a start")
        if not open_groups:
            return position
        tag, position = read_varint(data, position)
        number, wire_type = tag >> 3, tag & 7


def _skip_value(data: bytes, position: int, wire_type: int) -> int:
    if wire_type == VARINT:
        return read_varint(data, position)[1]
    if wire_type == LENGTH:
        return bounds(data, position)[1]
    if wire_type not in (FIXED64, FIXED32):
        raise Undecodable(f"{wire_type} is not a wire type")
    position += 8 if wire_type == FIXED64 else 4
    if position > len(data):
        raise Undecodable(CUT_SHORT)
    return position
