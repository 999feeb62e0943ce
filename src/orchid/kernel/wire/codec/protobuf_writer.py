"""Encode protobuf with functions compiled from a schema: one per field, combined per message.

Start with `writer_of`. The bytes equal those of Kubernetes, where protobuf leaves a choice: fields
in the order of their numbers, map entries in the order of their keys, and

    a scalar, a struct, an embedded time     always written, empty or not
    a pointer (`X | None`), bytes, a list    omitted if unset or empty

Only fields with a number are written. Of plain dicts (Pod, Node) the declared fields are written;
their values have been validated on input.
"""

import binascii
import datetime
from collections.abc import Callable
from functools import cache, lru_cache
from operator import attrgetter, call
from typing import Any

import msgspec

from orchid.kernel.wire.codec.field_validation import MICRO_TIME
from orchid.kernel.wire.codec.protobuf_scalars import (
    FIELDS_V1,
    LENGTH,
    QUANTITIES,
    VARINT,
    from_text,
    to_parts,
    varint,
)
from orchid.kernel.wire.schema import Anything, Field, Fields, Leaf, Mapping, Node, Scalar, Sequence

Writer = Callable[[Any], bytes]

_SHORT = 128  # shorter lengths take one byte
_json = msgspec.json.Encoder(order="deterministic").encode


@cache
def writer_of(schema: Fields) -> Writer:
    """A function from a value of this schema to its message, without tag and length."""
    return _message(schema, schema.open)


# --- messages -------------------------------------------------------------------------------------


def numbered(schema: Fields, inside: int = 0) -> list[tuple[int, Field]]:
    """The protobuf fields by number; or those inside one number."""
    return sorted(
        (
            (field.proto.number, field)
            for field in schema.fields.values()
            if field.proto and field.proto.inside == inside
        ),
        key=lambda pair: pair[0],
    )


def insides(schema: Fields) -> list[int]:
    """The numbers of the messages that JSON does not show."""
    found = {field.proto.inside for field in schema.fields.values() if field.proto}
    return sorted(found - {0})


def _message(schema: Fields, raw: bool) -> Writer:
    if raw:
        return _dict(schema)
    if insides(schema):
        raise TypeError(f"{schema.type.__name__}: only plain dicts have fields inside others")
    fields = [field for _, field in numbered(schema)]
    writers = tuple(_field(field, raw) for field in fields)
    if len(fields) == 1:
        only, write_only = attrgetter(fields[0].python_name), writers[0]
        return lambda value: write_only(only(value))
    get_all = attrgetter(*(field.python_name for field in fields))

    def write_struct(value: Any) -> bytes:
        return b"".join(map(call, writers, get_all(value)))

    return write_struct


def _dict(schema: Fields) -> Writer:
    parts = [(number, _member(field)) for number, field in numbered(schema)]
    for number in insides(schema):
        members = [_member(field) for _, field in numbered(schema, number)]
        parts.append((number, _nested(number, _joined(members))))
    return _joined([write for _, write in sorted(parts, key=lambda part: part[0])])


def _member(field: Field) -> Writer:
    name, write = field.wire_name, _field(field, raw=True)
    return lambda value: write(value.get(name))


def _joined(writers: list[Writer]) -> Writer:
    return lambda value: b"".join([write(value) for write in writers])


def _field(field: Field, raw: bool) -> Writer:
    word = field.proto
    assert word is not None, "only numbered fields are written"
    number, node = word.number, field.node
    if word.encoding == FIELDS_V1:
        return _optional(_nested(number, _nested(1, _json)))
    if word.encoding == QUANTITIES:
        return _entries(number, _nested(2, _quantity))
    micro = word.encoding == MICRO_TIME
    if micro or (isinstance(node, Leaf) and node.scalar is Scalar.TIME):
        return _time(number, as_text=raw or node == Leaf(Scalar.STRING), micro=micro,
                     unset=tag(number, LENGTH) + b"\0" if word.embedded else b"")  # fmt: skip
    if isinstance(node, Leaf) and node.scalar is Scalar.BYTES and not field.nullable:
        return _left_out_if_empty(_element(number, node, raw))
    write = _element(number, node, raw)
    if isinstance(node, Fields) and raw:
        return _optional(write) if field.nullable else lambda value: write(value or {})
    return _optional(write) if field.nullable else write


def _element(number: int, node: Node, raw: bool) -> Writer:
    """A writer for one value under a number: of a field, a list or a map."""
    match node:
        case Leaf(scalar=Scalar.STRING):
            return _string(number)
        case Leaf(scalar=Scalar.BYTES):
            return _nested(number, _from_base64 if raw else bytes)
        case Leaf(scalar=Scalar.BOOLEAN):
            return _boolean(number)
        case Leaf(scalar=Scalar.INTEGER):
            return _integer(number)
        case Fields():
            return _nested(number, _message(node, raw or node.open))
        case Sequence(items=items) if not isinstance(items, Sequence | Mapping | Anything):
            return _repeated(_element(number, items, raw))
        case Mapping(values=values) if not isinstance(values, Mapping | Anything):
            return _map(number, values, raw)
    raise TypeError(f"no protobuf form for field {number}, {node!r}")


# --- fields ---------------------------------------------------------------------------------------


def tag(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


@cache
def _heads(number: int) -> tuple[bytes, ...]:
    """Tag and length of every short content: nearly all contents are short."""
    return tuple(tag(number, LENGTH) + varint(size) for size in range(_SHORT))


def _nested(number: int, content: Writer) -> Writer:
    heads, start = _heads(number), tag(number, LENGTH)

    def write(value: Any) -> bytes:
        data = content(value)
        size = len(data)
        return heads[size] + data if size < _SHORT else start + varint(size) + data

    return write


def _string(number: int) -> Writer:
    heads, start = _heads(number), tag(number, LENGTH)
    empty = heads[0]

    def write(value: Any) -> bytes:
        if not value:
            return empty
        data: bytes = value.encode()
        size = len(data)
        return heads[size] + data if size < _SHORT else start + varint(size) + data

    return write


def _boolean(number: int) -> Writer:
    false, true = tag(number, VARINT) + b"\0", tag(number, VARINT) + b"\1"
    return lambda value: true if value else false


def _integer(number: int) -> Writer:
    start = tag(number, VARINT)
    zero = start + b"\0"
    return lambda value: start + varint(value) if value else zero


def _time(number: int, *, as_text: bool, micro: bool, unset: bytes) -> Writer:
    write = _nested(number, _micro_parts if micro else _parts)

    def write_moment(value: Any) -> bytes:
        if as_text and value is not None:
            value = from_text(value)
        return unset if value is None else write(value)

    return write_moment


@lru_cache(maxsize=1024)
def _parts(moment: datetime.datetime) -> bytes:
    """Seconds only. Cached, because the times of an object are often equal."""
    return b"\x08" + varint(to_parts(moment, micro=False)[0]) + b"\x10\0"


def _micro_parts(moment: datetime.datetime) -> bytes:
    seconds, nanos = to_parts(moment, micro=True)
    return b"\x08" + varint(seconds) + b"\x10" + varint(nanos)


def _repeated(item: Writer) -> Writer:
    return lambda values: b"".join(map(item, values)) if values else b""


def _map(number: int, values: Node, raw: bool) -> Writer:
    return _entries(number, _map_value(values, raw))


def _entries(number: int, write_value: Writer) -> Writer:
    write_key = _string(1)
    write_entry = _nested(number, lambda entry: entry)

    def write(value: Any) -> bytes:
        if not value:
            return b""
        keys = sorted(value)
        return b"".join([write_entry(write_key(key) + write_value(value[key])) for key in keys])

    return write


def _map_value(values: Node, raw: bool) -> Writer:
    """A map cannot hold lists, so each is wrapped in a message."""
    if isinstance(values, Sequence):
        return _nested(2, _element(1, values, raw))
    return _element(2, values, raw)


_amount = _string(1)


def _quantity(value: Any) -> bytes:
    """A quantity as sent; a plain dict may hold a number or an invalid value."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    return _amount(value if isinstance(value, str) else "")


def _optional(write: Writer) -> Writer:
    return lambda value: b"" if value is None else write(value)


def _left_out_if_empty(write: Writer) -> Writer:
    return lambda value: write(value) if value else b""


def _from_base64(value: Any) -> bytes:
    return binascii.a2b_base64(value or "")
