"""Samples of the protobuf tests: every kind's type, any object of it, and another implementation.

`KINDS` are the types of all kinds. `objects(type)` creates any object that both encodings can
express: protobuf knows no difference between an empty list and none. `google_message(name)`
is a class of Google's library, built from tests/data/protobuf and nothing of ours: numbers.txt has
the messages of the reference, own-numbers.txt those that it does not have.
"""

import datetime
import importlib
import pkgutil
import re
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import strategies as st

import orchid.features
from orchid.kernel.engine.verbs.delete import DeleteOptions
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.schema import (
    Anything,
    Field,
    Fields,
    Leaf,
    Mapping,
    Node,
    Scalar,
    Sequence,
    schema_of,
)
from orchid.kernel.wire.status import Status

NUMBERS = Path(__file__).parents[3] / "data" / "protobuf"


def _kinds() -> dict[str, type[Object]]:
    found = {}
    for module in pkgutil.walk_packages(orchid.features.__path__, "orchid.features."):
        if ".kinds." not in module.name:
            continue
        names = vars(importlib.import_module(module.name))
        for value in names.values():
            if isinstance(value, type) and issubclass(value, Object) and value is not Object:
                found[value.__name__] = value
    return found


KINDS = _kinds()
TYPES: dict[str, type[Any]] = {**KINDS, "Status": Status, "DeleteOptions": DeleteOptions}


# --- any object -----------------------------------------------------------------------------------

_texts = st.text(max_size=6)
_moments = st.datetimes(
    min_value=datetime.datetime(1900, 1, 1),  # noqa: DTZ001 -- Hypothesis adds the zone itself
    max_value=datetime.datetime(9999, 1, 1),  # noqa: DTZ001 -- the sample is a time without a zone
    timezones=st.just(datetime.UTC),
).filter(lambda moment: moment.timestamp() // 1 != 0)
_trees = st.recursive(
    st.just({}), lambda inner: st.dictionaries(_texts, inner, max_size=3), max_leaves=4
)


@cache
def objects(type_: type[Any]) -> st.SearchStrategy[Any]:
    return _records(schema_of(type_), raw=False)


def _records(node: Fields, raw: bool) -> st.SearchStrategy[Any]:
    fields = [field for field in node.fields.values() if field.proto]
    if raw:
        members = {field.wire_name: _members(field, raw=True) for field in fields}
        must = {field.wire_name for field in fields if field.always_written}
        return st.fixed_dictionaries(
            {name: made for name, made in members.items() if name in must},
            optional={name: made for name, made in members.items() if name not in must},
        )
    members = {field.python_name: _members(field, raw=False) for field in fields}
    return st.builds(node.type, **members)


def _members(field: Field, raw: bool) -> st.SearchStrategy[Any]:
    assert field.proto is not None
    encoding = field.proto.encoding
    if encoding == "micro-time":
        made = _moments.map(lambda moment: f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z")
    elif encoding == "fields-v1":
        made = _trees
    elif encoding == "quantities":
        made = st.dictionaries(_texts, _texts, max_size=3)
    elif encoding == "int32":
        made = st.integers(-(2**31), 2**31 - 1)
    else:
        made = _values(field.node, raw)
    if field.nullable and not raw:
        return st.none() | (made.filter(bool) if isinstance(field.node, Sequence) else made)
    # An empty dict is the same as an absent one, unless it is always written.
    return made if not raw or field.nullable or field.always_written else made.filter(bool)


def _values(node: Node, raw: bool) -> st.SearchStrategy[Any]:
    match node:
        case Leaf(scalar=Scalar.STRING, choices=choices):
            return st.sampled_from(choices) if choices else _texts
        case Leaf(scalar=Scalar.BOOLEAN):
            return st.booleans()
        case Leaf(scalar=Scalar.INTEGER):
            return st.integers(-(2**63), 2**63 - 1)
        case Leaf(scalar=Scalar.BYTES):
            return st.binary(max_size=6)
        case Leaf(scalar=Scalar.TIME):
            whole = _moments.map(lambda moment: moment.replace(microsecond=0))
            return whole.map(lambda moment: f"{moment:%Y-%m-%dT%H:%M:%SZ}") if raw else whole
        case Fields():
            return _records(node, raw or node.open)
        case Sequence(items=items):
            lists = st.lists(_values(items, raw), max_size=3)
            return lists if raw else lists.map(tuple)
        case Mapping(values=values):
            return st.dictionaries(_texts, _values(values, raw), max_size=3)
        case _:
            raise TypeError(node)


def unnumbered(node: Node, path: str = "") -> list[str]:
    """Every declared field without a number, other than those that the body's wrapping carries."""
    found: list[str] = []
    match node:
        case Fields(fields=fields):
            for name, field in fields.items():
                if field.proto is None and not (path == "" and name in ("kind", "apiVersion")):
                    found.append(f"{path}.{name}")
                if field.proto is None or not isinstance(field.node, Anything):
                    found += unnumbered(field.node, f"{path}.{name}")
        case Sequence(items=inner) | Mapping(values=inner):
            found += unnumbered(inner, path)
    return found


# --- another implementation -----------------------------------------------------------------------

_FIELD = re.compile(r"(\d+) (\w+) (repeated )?(map<string,(\w+)>|\w+)")
_TYPES = {
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
}
_PACKAGE = "recorded"


@cache
def numbers() -> dict[str, dict[str, tuple[int, str]]]:
    """Message name to field name to number and type, as the reference has them, and our own."""
    table = {}
    files = (NUMBERS / "numbers.txt", NUMBERS / "own-numbers.txt")
    for line in (line for file in files for line in file.read_text().splitlines()):
        name, _, rest = line.partition(": ")
        table[name] = {
            found[2]: (int(found[1]), (found[3] or "") + found[4])
            for found in _FIELD.finditer(rest)
        }
    return table


@cache
def google_message(name: str) -> Any:
    """Google's class for a message of the table."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@cache
def _pool() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="recorded.proto", package=_PACKAGE, syntax="proto2"
    )
    for name, fields in numbers().items():
        message = file.message_type.add(name=name)
        for field_name, (number, type_) in fields.items():
            _describe(message, field_name, number, type_)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _describe(message: Any, name: str, number: int, type_: str) -> None:
    if type_.startswith("map<"):
        entry_name = name[0].upper() + name[1:] + "Entry"
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        _describe(entry, "key", 1, "string")
        _describe(entry, "value", 2, type_.removeprefix("map<string,").removesuffix(">"))
        type_ = f"repeated {message.name}.{entry_name}"
    repeated, _, bare = type_.rpartition(" ")
    if bare not in _TYPES and bare.partition(".")[0] not in numbers():
        return  # a part of Pod or Node that nobody here declares
    field = message.field.add(name=name, number=number)
    field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
    if bare in _TYPES:
        field.type = _TYPES[bare]
    else:
        field.type = field.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{bare}"
