"""Decode protobuf with functions compiled from a schema: one per field, looked up by tag.

Start with `reader_of`. protobuf_content.py decodes the content of a field. A known field of a wrong
wire type, a length beyond the end, a number of more than 64 bits and invalid UTF-8 are
`Undecodable`, with a message that shows no content. Unknown fields are skipped. Of a repeated
scalar the last one counts. A repeated single message is refused: merging would take quadratic time.

Elements are counted, because the smallest takes two bytes and becomes an object of hundreds; fields
are counted, because each takes time, also one that is skipped or repeated. The types limit the
depth, since none contains itself, and skipped groups are counted, not recursed into: deep nesting
does no harm.
"""

from functools import cache
from typing import Any

from orchid.kernel.wire.codec.bounds import MOST_FIELDS, MOST_VALUES, too_many
from orchid.kernel.wire.codec.documents import convert, plain
from orchid.kernel.wire.codec.field_validation import MICRO_TIME, Undecodable
from orchid.kernel.wire.codec.protobuf_content import (
    CUT_SHORT,
    LAST_OF_BYTE,
    Make,
    Read,
    Values,
    appended,
    appended_number,
    bounds,
    budget,
    content,
    number_field,
    once,
    packed,
    signed32,
    signed64,
    signed_as,
    skip,
    to_base64,
    utf8_text,
    zero,
)
from orchid.kernel.wire.codec.protobuf_scalars import (
    FIELDS_V1,
    INT32,
    LENGTH,
    QUANTITIES,
    VARINT,
    from_parts,
    read_varint,
    to_text,
)
from orchid.kernel.wire.codec.protobuf_writer import insides, numbered, writer_of
from orchid.kernel.wire.schema import Field, Fields, Leaf, Mapping, Node, Scalar, Sequence
from orchid.kernel.wire.struct import Wire


@cache
def reader_of(schema: Fields) -> Make:
    """A function from a message to its value; keyword arguments are given values."""
    make = _message(schema, schema.open)

    def read(data: bytes, **options: Any) -> Any:
        budget.reset()
        try:
            return make(data, **options)
        except IndexError:
            raise Undecodable(CUT_SHORT) from None
        except UnicodeDecodeError:
            raise Undecodable("a text is not in UTF-8") from None

    return read


# --- messages -------------------------------------------------------------------------------------


class _Readers(dict[int, Read]):
    """Decoders of the fields of one message, by tag; `owner` names the message in errors."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.names: dict[int, str] = {}
        self.texts: dict[int, str] = {}  # strings have no reader: `fill` decodes them itself

    def put(self, number: int, name: str, wire_type: int, read: Read) -> None:
        self[number << 3 | wire_type] = read
        self.names[number] = name

    def put_text(self, number: int, name: str) -> None:
        self.texts[number << 3 | LENGTH] = name
        self.names[number] = name

    def fill(self, data: bytes, values: Values) -> None:
        """Decode a message into `values`. Most of every message is strings."""
        position, end = 0, len(data)
        texts = self.texts
        for count in range(budget.fields + 1):
            if position >= end:
                budget.fields -= count
                break
            tag = data[position]
            position += 1
            if tag > LAST_OF_BYTE:
                tag, position = read_varint(data, position - 1)
            if tag in texts:
                size = data[position]
                position += 1
                if size > LAST_OF_BYTE:
                    size, position = read_varint(data, position - 1)
                stop = position + size
                if stop > end:
                    raise Undecodable(CUT_SHORT)
                values[texts[tag]] = data[position:stop].decode() if size else ""
                position = stop
            elif tag in self:
                position = self[tag](data, position, values)
            else:
                position = self._skip(data, position, tag)
        else:
            raise Undecodable(f"the message has more than {MOST_FIELDS} fields")

    def _skip(self, data: bytes, position: int, tag: int) -> int:
        number, wire_type = tag >> 3, tag & 7
        if number in self.names:
            raise Undecodable(
                f"{self.owner}.{self.names[number]}: unexpected wire type {wire_type}"
            )
        return skip(data, position, number, wire_type)


def _message(schema: Fields, raw: bool) -> Make:
    """Decode a message into its Struct, or into a dict where the kind has one."""
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
    # Clients that write all fields send many empty messages: the status of a request, the
    # metadata of a review. Structs are immutable, so one instance serves all.
    nothing, empty = None, None
    zeros = writer_of(schema)(type_())
    budget.reset()
    nothing, empty = zeros, make_struct(zeros)
    return make_struct


def _put_field(readers: _Readers, number: int, name: str, field: Field, raw: bool) -> None:
    word, node = field.proto, field.node
    assert word is not None, "only numbered fields are read"
    # In a plain dict an empty value is omitted, as in JSON.
    keep = not raw or field.nullable or field.always_written
    if word.encoding == FIELDS_V1:
        return readers.put(number, name, LENGTH, once(name, _fields_v1))
    if word.encoding == QUANTITIES:
        return readers.put(number, name, LENGTH, _quantities(name))
    micro = word.encoding == MICRO_TIME
    if micro or (isinstance(node, Leaf) and node.scalar is Scalar.TIME):
        as_text = raw or node == Leaf(Scalar.STRING)
        return readers.put(
            number, name, LENGTH, content(name, _time(as_text=as_text, micro=micro), keep=not raw)
        )
    if isinstance(node, Sequence):
        return _put_list(readers, number, name, node, raw)
    if isinstance(node, Mapping):
        return readers.put(number, name, LENGTH, _map(name, node, raw))
    if isinstance(node, Fields):
        return readers.put(number, name, LENGTH, once(name, _message(node, raw or node.open)))
    return _put_leaf(readers, number, name, node, raw, short=word.encoding == INT32, keep=keep)


def _put_leaf(
    readers: _Readers, number: int, name: str, node: Node, raw: bool, *, short: bool, keep: bool
) -> None:
    match node:
        case Leaf(scalar=Scalar.STRING):
            if keep:
                readers.put_text(number, name)
            else:
                readers.put(number, name, LENGTH, content(name, utf8_text, keep))
        case Leaf(scalar=Scalar.BYTES):
            readers.put(number, name, LENGTH, content(name, to_base64 if raw else bytes, keep))
        case Leaf(scalar=Scalar.BOOLEAN | Scalar.INTEGER as scalar):
            readers.put(number, name, VARINT, number_field(name, signed_as(scalar, short), keep))
        case _:
            raise TypeError(f"no protobuf form for {name}, {node!r}")


def _put_list(readers: _Readers, number: int, name: str, node: Sequence, raw: bool) -> None:
    most = MOST_VALUES if node.most is None else node.most
    match items := node.items:
        case Leaf(scalar=Scalar.BOOLEAN | Scalar.INTEGER as scalar):
            signed = signed_as(scalar, short=False)
            readers.put(number, name, VARINT, appended_number(name, signed))
            readers.put(number, name, LENGTH, packed(name, signed))
        case Leaf(scalar=Scalar.STRING):
            readers.put(number, name, LENGTH, appended(name, utf8_text, most))
        case Leaf(scalar=Scalar.BYTES):
            readers.put(number, name, LENGTH, appended(name, to_base64 if raw else bytes, most))
        case Fields():
            make = _message(items, raw or items.open)
            readers.put(number, name, LENGTH, appended(name, make, most))
        case _:
            raise TypeError(f"no protobuf form for a list of {items!r}")


# --- content of fields ----------------------------------------------------------------------------


def _into_the_same(readers: _Readers) -> Read:
    """A message whose fields are inlined into its parent in JSON."""

    def read(data: bytes, position: int, values: Values) -> int:
        start, stop = bounds(data, position)
        readers.fill(data[start:stop], values)
        return stop

    return read


def _map(name: str, map_node: Mapping, raw: bool) -> Read:
    entry, node = _Readers("entry"), map_node.values
    entry.put_text(1, "key")
    empty: Make
    if isinstance(node, Sequence):
        wrapped = _wrapped_list(node.items, raw)
        entry.put(2, "value", LENGTH, once("value", wrapped))
        empty = list if raw else tuple
    elif isinstance(node, Fields):
        make = _message(node, raw or node.open)
        entry.put(2, "value", LENGTH, once("value", make))
        empty = lambda: make(b"")  # noqa: E731 -- one of two, chosen once
    else:
        _put_leaf(entry, 2, "value", node, raw, short=False, keep=True)
        empty = zero(node, raw)
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

    entry.put(2, "value", LENGTH, once("value", make))
    return _entries(name, entry, str, MOST_VALUES)


def _entries(name: str, entry: _Readers, empty: Make, most: int) -> Read:
    def read(data: bytes, position: int, values: Values) -> int:
        start, stop = bounds(data, position)
        budget.spend()
        pair: Values = {}
        entry.fill(data[start:stop], pair)
        mapping = values.setdefault(name, {})
        mapping[pair.get("key", "")] = pair["value"] if "value" in pair else empty()
        if len(mapping) > most:
            raise too_many(name, most)
        return stop

    return read


def _wrapped_list(items: Node, raw: bool) -> Make:
    """The message around a list inside a map."""
    wrapper = _Readers("items")
    _put_list(wrapper, 1, "items", Sequence(items), raw)

    def make(data: bytes) -> Any:
        found: Values = {}
        wrapper.fill(data, found)
        return found.get("items", []) if raw else tuple(found.get("items", ()))

    return make


# --- scalars --------------------------------------------------------------------------------------


_PARTS = _Readers("Time")
_PARTS.put(1, "seconds", VARINT, number_field("seconds", signed64, keep=True))
_PARTS.put(2, "nanos", VARINT, number_field("nanos", signed32, keep=True))


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
_RAW.put(1, "Raw", LENGTH, content("raw", bytes))


def _fields_v1(data: bytes) -> Any:
    """JSON inside a message, with the rules of a JSON body."""
    members: Values = {}
    _RAW.fill(data, members)
    inside = members.get("raw")
    return convert({"value": plain(inside)}, _JsonInside).value if inside else None
