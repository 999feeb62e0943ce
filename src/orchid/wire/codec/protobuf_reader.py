"""Protobuf to values, by functions compiled from a schema: one per field, found by its tag.

Start with `reader_of`. A known field in a wrong wire type, a length beyond the end, a number of
more than 64 bits and a text that is no UTF-8 are `Undecodable`, with a sentence for the client that
shows no content. Unknown fields are skipped. The last of a repeated scalar counts; a message that
stands twice where one belongs is refused, since merging both would cost time that grows with the
square of their size.

Elements are counted, because the smallest takes two bytes and becomes an object of hundreds. The
depth is limited by the types, none of which contains itself; skipped groups are counted, not
recursed into. So a deeply nested body does no harm.
"""

import binascii
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from orchid.wire.codec.bounds import MOST_VALUES, too_many
from orchid.wire.codec.documents import convert, plain
from orchid.wire.codec.field_validation import MICRO_TIME, Undecodable
from orchid.wire.codec.protobuf_scalars import (
    END_GROUP,
    FIELDS_V1,
    FIXED32,
    FIXED64,
    GROUP,
    INT32,
    LENGTH,
    MASK32,
    QUANTITIES,
    SIGN32,
    SIGN64,
    VARINT,
    from_parts,
    read_varint,
    to_text,
)
from orchid.wire.codec.protobuf_writer import insides, numbered, writer_of
from orchid.wire.schema import Field, Fields, Leaf, Mapping, Node, Scalar, Sequence
from orchid.wire.struct import Wire

Values = dict[str, Any]
Read = Callable[[bytes, int, Values], int]  # the message, a position, what is known so far
Make = Callable[..., Any]  # from the bytes of a message, and values known beforehand

_LARGEST_NUMBER = 2**29 - 1
_DEEPEST_GROUP = 100  # as elsewhere; nobody here sends any
_LAST_OF_BYTE = 127  # beyond it, a varint goes on
_CUT_SHORT = "the message is cut short"


class _Budget(threading.local):
    """How many elements and entries the message that this thread reads may still have."""

    left = 0

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Undecodable(f"the message has more than {MOST_VALUES} elements")


_budget = _Budget()


@cache
def reader_of(schema: Fields) -> Make:
    """A function from a message to the value; keyword arguments are values known beforehand."""
    make = _message(schema, schema.open)

    def read(data: bytes, **given: Any) -> Any:
        _budget.left = MOST_VALUES
        try:
            return make(data, **given)
        except IndexError:
            raise Undecodable(_CUT_SHORT) from None
        except UnicodeDecodeError:
            raise Undecodable("a text is not in UTF-8") from None

    return read


# --- messages -------------------------------------------------------------------------------------


class _Readers(dict[int, Read]):
    """How to read each field of one message, by tag; `owner` names the message in a refusal."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.names: dict[int, str] = {}
        self.texts: dict[int, str] = {}  # strings have no reader: `fill` reads them itself

    def put(self, number: int, name: str, wire_type: int, read: Read) -> None:
        self[number << 3 | wire_type] = read
        self.names[number] = name

    def put_text(self, number: int, name: str) -> None:
        self.texts[number << 3 | LENGTH] = name
        self.names[number] = name

    def fill(self, data: bytes, values: Values) -> None:
        """Read a whole message into `values`. Most of every message is strings."""
        position, end = 0, len(data)
        texts = self.texts
        while position < end:
            tag = data[position]
            position += 1
            if tag > _LAST_OF_BYTE:
                tag, position = read_varint(data, position - 1)
            if tag in texts:
                size = data[position]
                position += 1
                if size > _LAST_OF_BYTE:
                    size, position = read_varint(data, position - 1)
                stop = position + size
                if stop > end:
                    raise Undecodable(_CUT_SHORT)
                values[texts[tag]] = data[position:stop].decode() if size else ""
                position = stop
            elif tag in self:
                position = self[tag](data, position, values)
            else:
                position = self._skip(data, position, tag)

    def _skip(self, data: bytes, position: int, tag: int) -> int:
        number, wire_type = tag >> 3, tag & 7
        if number in self.names:
            raise Undecodable(
                f"{self.owner}.{self.names[number]}: unexpected wire type {wire_type}"
            )
        return _behind(data, position, number, wire_type)


def _message(schema: Fields, raw: bool) -> Make:
    """Read a message into its Struct, or into a dict where the kind keeps one."""
    readers = _Readers(schema.type.__name__)
    lists = []
    for number, field in numbered(schema):
        name = field.wire_name if raw else field.python_name
        _put_field(readers, number, name, field, raw)
        if isinstance(field.node, Sequence) and not raw:
            lists.append(name)
    for outer in insides(schema):
        inner = _Readers(readers.owner)
        for number, field in numbered(schema, outer):
            _put_field(inner, number, field.wire_name, field, raw)
        readers.put(outer, "source", LENGTH, _into_the_same(inner))
    type_, fill = schema.type, readers.fill

    def make_dict(data: bytes, **values: Any) -> Any:
        fill(data, values)
        return values

    def make_struct(data: bytes, **values: Any) -> Any:
        if data == nothing and not values:
            return empty
        fill(data, values)
        for name in lists:
            if name in values:
                values[name] = tuple(values[name])
        return type_(**values)

    if raw:
        return make_dict
    # Those who write all fields send many messages that hold nothing: the status of a request, the
    # metadata of a review. Structs are immutable, so one serves all.
    nothing, empty = None, None
    zeros = writer_of(schema)(type_())
    nothing, empty = zeros, make_struct(zeros)
    return make_struct


def _put_field(readers: _Readers, number: int, name: str, field: Field, raw: bool) -> None:
    word, node = field.proto, field.node
    assert word is not None, "only numbered fields are read"
    # In a plain dict an empty value is left out, as it would be in JSON.
    keep = not raw or field.nullable or field.always_written
    if word.encoding == FIELDS_V1:
        return readers.put(number, name, LENGTH, _once(name, _fields_v1))
    if word.encoding == QUANTITIES:
        return readers.put(number, name, LENGTH, _quantities(name))
    micro = word.encoding == MICRO_TIME
    if micro or (isinstance(node, Leaf) and node.scalar is Scalar.TIME):
        as_text = raw or node == Leaf(Scalar.STRING)
        return readers.put(
            number, name, LENGTH, _content(name, _time(as_text=as_text, micro=micro), keep=not raw)
        )
    if isinstance(node, Sequence):
        return _put_list(readers, number, name, node, raw)
    if isinstance(node, Mapping):
        return readers.put(number, name, LENGTH, _map(name, node, raw))
    if isinstance(node, Fields):
        return readers.put(number, name, LENGTH, _once(name, _message(node, raw or node.open)))
    return _put_leaf(readers, number, name, node, raw, short=word.encoding == INT32, keep=keep)


def _put_leaf(
    readers: _Readers, number: int, name: str, node: Node, raw: bool, *, short: bool, keep: bool
) -> None:
    match node:
        case Leaf(scalar=Scalar.STRING):
            if keep:
                readers.put_text(number, name)
            else:
                readers.put(number, name, LENGTH, _content(name, _text, keep))
        case Leaf(scalar=Scalar.BYTES):
            readers.put(number, name, LENGTH, _content(name, _to_base64 if raw else bytes, keep))
        case Leaf(scalar=Scalar.BOOLEAN | Scalar.INTEGER as scalar):
            readers.put(number, name, VARINT, _number(name, _signed(scalar, short), keep))
        case _:
            raise TypeError(f"no protobuf form for {name}, {node!r}")


def _put_list(readers: _Readers, number: int, name: str, node: Sequence, raw: bool) -> None:
    most = MOST_VALUES if node.most is None else node.most
    match items := node.items:
        case Leaf(scalar=Scalar.BOOLEAN | Scalar.INTEGER as scalar):
            signed = _signed(scalar, short=False)
            readers.put(number, name, VARINT, _appended_number(name, signed))
            readers.put(number, name, LENGTH, _packed(name, signed))
        case Leaf(scalar=Scalar.STRING):
            readers.put(number, name, LENGTH, _appended(name, _text, most))
        case Leaf(scalar=Scalar.BYTES):
            readers.put(number, name, LENGTH, _appended(name, _to_base64 if raw else bytes, most))
        case Fields():
            make = _message(items, raw or items.open)
            readers.put(number, name, LENGTH, _appended(name, make, most))
        case _:
            raise TypeError(f"no protobuf form for a list of {items!r}")


# --- what stands behind a tag ---------------------------------------------------------------------


def _bounds(data: bytes, position: int) -> tuple[int, int]:
    """Where the content of known length at a position begins and ends."""
    size = data[position]
    position += 1
    if size > _LAST_OF_BYTE:
        size, position = read_varint(data, position - 1)
    stop = position + size
    if stop > len(data):
        raise Undecodable(_CUT_SHORT)
    return position, stop


def _content(name: str, make: Make, keep: bool = True) -> Read:
    def read(data: bytes, position: int, values: Values) -> int:
        start, stop = _bounds(data, position)
        value = make(data[start:stop])
        if keep or value:
            values[name] = value
        else:
            values.pop(name, None)
        return stop

    return read


def _into_the_same(readers: _Readers) -> Read:
    """A message whose fields JSON shows beside those around it."""

    def read(data: bytes, position: int, values: Values) -> int:
        start, stop = _bounds(data, position)
        readers.fill(data[start:stop], values)
        return stop

    return read


def _once(name: str, make: Make) -> Read:
    def read(data: bytes, position: int, values: Values) -> int:
        start, stop = _bounds(data, position)
        if name in values:
            raise Undecodable(f"{name} stands twice")
        values[name] = make(data[start:stop])
        return stop

    return read


def _appended(name: str, make: Make, most: int) -> Read:
    def read(data: bytes, position: int, values: Values) -> int:
        start, stop = _bounds(data, position)
        items = values.get(name)
        if items is None:
            items = values[name] = []
        if len(items) >= most:
            raise too_many(name, most)
        _budget.spend()
        items.append(make(data[start:stop]))
        return stop

    return read


def _number(name: str, signed: Callable[[int], Any], keep: bool) -> Read:
    def read(data: bytes, position: int, values: Values) -> int:
        number, position = read_varint(data, position)
        value = signed(number)
        if keep or value:
            values[name] = value
        else:
            values.pop(name, None)
        return position

    return read


def _appended_number(name: str, signed: Callable[[int], Any]) -> Read:
    def read(data: bytes, position: int, values: Values) -> int:
        number, position = read_varint(data, position)
        _budget.spend()
        values.setdefault(name, []).append(signed(number))
        return position

    return read


def _packed(name: str, signed: Callable[[int], Any]) -> Read:
    """Many numbers in one content: other writers do so for lists of numbers."""

    def read(data: bytes, position: int, values: Values) -> int:
        position, stop = _bounds(data, position)
        content = data[position:stop]
        items, place = values.setdefault(name, []), 0
        while place < len(content):
            number, place = read_varint(content, place)
            _budget.spend()
            items.append(signed(number))
        return stop

    return read


def _map(name: str, map_node: Mapping, raw: bool) -> Read:
    entry, node = _Readers("entry"), map_node.values
    entry.put_text(1, "key")
    empty: Make
    if isinstance(node, Sequence):
        wrapped = _wrapped_list(node.items, raw)
        entry.put(2, "value", LENGTH, _once("value", wrapped))
        empty = list if raw else tuple
    elif isinstance(node, Fields):
        make = _message(node, raw or node.open)
        entry.put(2, "value", LENGTH, _once("value", make))
        empty = lambda: make(b"")  # noqa: E731 -- one of two, chosen once
    else:
        _put_leaf(entry, 2, "value", node, raw, short=False, keep=True)
        empty = _zero(node, raw)
    return _entries(name, entry, empty, map_node.most or MOST_VALUES)


def _quantities(name: str) -> Read:
    amount, entry = _Readers("quantity"), _Readers("entry")
    amount.put_text(1, "string")
    entry.put_text(1, "key")

    def make(data: bytes) -> str:
        found: Values = {"string": ""}
        amount.fill(data, found)
        text: str = found["string"]
        return text

    entry.put(2, "value", LENGTH, _once("value", make))
    return _entries(name, entry, str, MOST_VALUES)


def _entries(name: str, entry: _Readers, empty: Make, most: int) -> Read:
    def read(data: bytes, position: int, values: Values) -> int:
        start, stop = _bounds(data, position)
        _budget.spend()
        found: Values = {}
        entry.fill(data[start:stop], found)
        made = values.setdefault(name, {})
        made[found.get("key", "")] = found["value"] if "value" in found else empty()
        if len(made) > most:
            raise too_many(name, most)
        return stop

    return read


def _wrapped_list(items: Node, raw: bool) -> Make:
    """The message around a list that stands in a map."""
    wrapper = _Readers("items")
    _put_list(wrapper, 1, "items", Sequence(items), raw)

    def make(data: bytes) -> Any:
        found: Values = {}
        wrapper.fill(data, found)
        return found.get("items", []) if raw else tuple(found.get("items", ()))

    return make


def _zero(node: Node, raw: bool) -> Make:
    assert isinstance(node, Leaf)
    if node.scalar is Scalar.BYTES and not raw:
        return bytes
    return {Scalar.BOOLEAN: bool, Scalar.INTEGER: int}.get(node.scalar, str)


# --- scalars --------------------------------------------------------------------------------------


def _text(data: bytes) -> str:
    return data.decode()


def _to_base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def _signed(scalar: Scalar, short: bool) -> Callable[[int], Any]:
    if scalar is Scalar.BOOLEAN:
        return bool
    return _signed32 if short else _signed64


def _signed64(number: int) -> int:
    return number - (SIGN64 << 1) if number >= SIGN64 else number


def _signed32(number: int) -> int:
    """The lower half alone counts, as protobuf says of numbers too large for their field."""
    number &= MASK32
    return number - (SIGN32 << 1) if number >= SIGN32 else number


_PARTS = _Readers("Time")
_PARTS.put(1, "seconds", VARINT, _number("seconds", _signed64, keep=True))
_PARTS.put(2, "nanos", VARINT, _number("nanos", _signed32, keep=True))


def _time(*, as_text: bool, micro: bool) -> Make:
    def make(data: bytes) -> Any:
        found: Values = {}
        _PARTS.fill(data, found)
        moment = from_parts(found.get("seconds", 0), found.get("nanos", 0), micro=micro)
        return to_text(moment, micro=micro) if as_text and moment is not None else moment

    return make


class _JsonInside(Wire):
    value: dict[str, Any]


_RAW = _Readers("FieldsV1")
_RAW.put(1, "Raw", LENGTH, _content("raw", bytes))


def _fields_v1(data: bytes) -> Any:
    """JSON inside a message: held to the same rules as a JSON body."""
    found: Values = {}
    _RAW.fill(data, found)
    content = found.get("raw")
    return convert({"value": plain(content)}, _JsonInside).value if content else None


# --- what nobody knows ----------------------------------------------------------------------------


def _behind(data: bytes, position: int, number: int, wire_type: int) -> int:
    """The position behind an unknown field."""
    open_groups = 0
    while True:
        if not 0 < number <= _LARGEST_NUMBER:
            raise Undecodable(f"{number} is no field number")
        if wire_type == GROUP:
            open_groups += 1
            if open_groups > _DEEPEST_GROUP:
                raise Undecodable("groups are nested too deeply")
        elif wire_type == END_GROUP:
            open_groups -= 1
        else:
            position = _behind_value(data, position, wire_type)
        if open_groups < 0:
            raise Undecodable("a group ends that has not begun")
        if not open_groups:
            return position
        tag, position = read_varint(data, position)
        number, wire_type = tag >> 3, tag & 7


def _behind_value(data: bytes, position: int, wire_type: int) -> int:
    if wire_type == VARINT:
        return read_varint(data, position)[1]
    if wire_type == LENGTH:
        return _bounds(data, position)[1]
    if wire_type not in (FIXED64, FIXED32):
        raise Undecodable(f"{wire_type} is no wire type")
    position += 8 if wire_type == FIXED64 else 4
    if position > len(data):
        raise Undecodable(_CUT_SHORT)
    return position
