"""The kinds' declarations as OpenAPI 3.0 schemas: one definition for each API type.

Start with `Definitions.of_kind`. Everything is read from the tree in kernel/wire/schema.py: types,
list types, merge keys, required fields and descriptions. A definition has the name that clients and
code generators expect (`...api.core.v1.ServiceAccount`), in the naming of the server. Nothing here
knows paths or HTTP.
"""

import inspect
from collections.abc import Iterator
from typing import Any

import msgspec

from orchid.kernel.engine.kind import Kind
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import EXTENSION, Naming
from orchid.kernel.wire.schema import Anything, Field, Fields, Leaf, Mapping, Node, Scalar, Sequence
from orchid.kernel.wire.schema import schema_of as tree_of
from orchid.kernel.wire.status import ListMeta
from orchid.kernel.wire.struct import Wire

Schema = dict[str, Any]

META = "meta.v1"
PREFIX = "#/components/schemas/"
GROUP_VERSION_KIND = f"{EXTENSION}group-version-kind"
KEEPS_UNKNOWN = f"{EXTENSION}preserve-unknown-fields"

_LEAVES: dict[Scalar, Schema] = {
    Scalar.STRING: {"type": "string"},
    Scalar.INTEGER: {"type": "integer", "format": "int64"},
    Scalar.NUMBER: {"type": "number", "format": "double"},
    Scalar.BOOLEAN: {"type": "boolean"},
    Scalar.BYTES: {"type": "string", "format": "byte"},
}
_TIMES = {
    "Time": "A moment, as in RFC 3339, in whole seconds.",
    "MicroTime": "A moment, as in RFC 3339, with microseconds.",
}


class Definitions:
    """The definitions by name. Requesting a reference creates its definition."""

    def __init__(self, naming: Naming) -> None:
        self.schemas: dict[str, Schema] = {}
        self._naming = naming
        self._defaults: dict[tuple[type, str], Any] = {}

    def of_kind(self, kind: Kind[Any]) -> Schema:
        """A reference to the kind's own definition."""
        self._defaults.update(defaults_of(kind))
        return self.of_type(kind.type, subject_key(kind), (gvk(kind),))

    def of_list(self, kind: Kind[Any]) -> Schema:
        """A reference to the definition of a list of the kind."""
        name = self._naming.definition(subject_key(kind), f"{kind.name}List")
        if name not in self.schemas:
            head = self._properties(tree_of(Object), META)
            self.schemas[name] = {
                "description": f"A list of objects of the kind {kind.name}.",
                "type": "object",
                "required": ["items"],
                "properties": {
                    "apiVersion": head["apiVersion"],
                    "items": {
                        "description": "The objects.",
                        "type": "array",
                        "items": wrapped(self.of_kind(kind), default=empty_of(kind.schema)),
                    },
                    "kind": head["kind"],
                    "metadata": wrapped(self.of_type(ListMeta, META), "About the list.", {}),
                },
                GROUP_VERSION_KIND: [gvk(kind) | {"kind": f"{kind.name}List"}],
            }
        return refer(name)

    def of_type(self, type_: type[Wire], path: str, gvks: tuple[Schema, ...] = ()) -> Schema:
        """A reference to any type, with the kinds that it is served as."""
        reference = self._record(tree_of(type_), path)
        if gvks:
            self.schemas[reference["$ref"].removeprefix(PREFIX)][GROUP_VERSION_KIND] = list(gvks)
        return reference

    def add(self, name: str, schema: Schema) -> Schema:
        """A reference to a definition without a type."""
        full = self._naming.definition(META, name)
        self.schemas.setdefault(full, schema)
        return refer(full)

    # -- records and their fields ----------------------------------------------------------

    def _record(self, tree: Fields, path: str) -> Schema:
        name = self._name(tree.type, path)
        if name not in self.schemas:
            self.schemas[name] = {}  # a recursive type finds its own name
            self.schemas[name] = self._object(tree, path)
        if tree.atomic:
            self.schemas[name][f"{EXTENSION}map-type"] = "atomic"
        if tree.open:
            self.schemas[name][KEEPS_UNKNOWN] = True
        return refer(name)

    def _name(self, type_: type, path: str) -> str:
        published = vars(type_).get("published_as", "")
        if published:
            path, _, word = published.rpartition(".")
            return self._naming.definition(path, word)
        shared = type_.__module__.startswith(Wire.__module__.rpartition(".")[0])
        return self._naming.definition(META if shared else path, type_.__name__)

    def _object(self, tree: Fields, path: str) -> Schema:
        schema: Schema = {"description": first_paragraph(tree.type), "type": "object"}
        required = [field.wire_name for field in tree.fields.values() if is_required(field)]
        if required:
            schema["required"] = sorted(required)
        schema["properties"] = self._properties(tree, path)
        return schema

    def _properties(self, tree: Fields, path: str) -> dict[str, Schema]:
        return {name: self._field(tree, field, path) for name, field in sorted(tree.fields.items())}

    def _field(self, tree: Fields, field: Field, path: str) -> Schema:
        encoding = field.proto.encoding if field.proto else ""
        schema = self._node(field.node, path, encoding)
        text = field.described.text if field.described else ""
        default = self._defaults.get((tree.type, field.wire_name))
        if default is None and field.always_written and not field.nullable:
            default = written_default(tree, field)
        schema = wrapped(schema, text, default)
        if field.nullable and field.always_written:
            schema = wrapped(schema, text, nullable=True)
        return schema

    # -- nodes -----------------------------------------------------------------------------

    def _node(self, node: Node, path: str, encoding: str = "") -> Schema:
        match node:
            case Leaf():
                return self._leaf(node, encoding)
            case Fields():
                return self._record(node, path)
            case Sequence():
                return self._sequence(node, path)
            case Mapping():
                return self._mapping(node, path)
            case Anything():
                return {}

    def _leaf(self, node: Leaf, encoding: str) -> Schema:
        if node.scalar is Scalar.TIME or encoding == "micro-time":
            word = "Time" if node.scalar is Scalar.TIME else "MicroTime"
            moment = {"description": _TIMES[word], "type": "string", "format": "date-time"}
            return self.add(word, moment)
        schema = dict(_LEAVES[node.scalar])
        if encoding == "int32":
            schema["format"] = encoding
        if node.choices:
            schema["enum"] = list(node.choices)
        return schema

    def _sequence(self, node: Sequence, path: str) -> Schema:
        items = self._node(node.items, path)
        if isinstance(node.items, Fields):
            items = wrapped(items, default=empty_of(node.items))
        return {"type": "array", "items": items, **merge_words(node)}

    def _mapping(self, node: Mapping, path: str) -> Schema:
        schema: Schema = {"type": "object"}
        if not isinstance(node.values, Anything):
            schema["additionalProperties"] = self._node(node.values, path)
        if node.atomic:
            schema[f"{EXTENSION}map-type"] = "atomic"
        return schema


def merge_words(node: Sequence) -> Schema:
    """The merge strategy of a list, for apply and strategic merge patch."""
    if node.is_set:
        return {f"{EXTENSION}list-type": "set", f"{EXTENSION}patch-strategy": "merge"}
    if not node.keys:
        return {f"{EXTENSION}list-type": "atomic"}
    words: Schema = {
        f"{EXTENSION}list-type": "map",
        f"{EXTENSION}list-map-keys": list(node.keys),
    }
    if not node.appends:  # such a list has a key for apply alone
        words[f"{EXTENSION}patch-merge-key"] = node.keys[0]
        words[f"{EXTENSION}patch-strategy"] = "merge"
    return words


def refer(name: str) -> Schema:
    return {"$ref": PREFIX + name}


def wrapped(
    schema: Schema, text: str = "", default: Any = None, *, nullable: bool = False
) -> Schema:
    """The schema with more keywords; a reference may have none beside it, so it is wrapped."""
    more: Schema = {}
    if text:
        more["description"] = text
    if default is not None:
        more["default"] = default
    if nullable:
        more["nullable"] = True
    if more and "$ref" in schema:
        return {**more, "allOf": [schema]}
    return {**schema, **more}


def subject_key(kind: Kind[Any]) -> str:
    """`core.v1`, `rbac.v1`: the prefix of a kind's definitions."""
    return f"{kind.group.partition('.')[0] or 'core'}.{kind.version}"


def gvk(kind: Kind[Any]) -> Schema:
    return {"group": kind.group, "kind": kind.name, "version": kind.version}


def is_required(field: Field) -> bool:
    """Whether a field is required; by default, a plain field that is always written is."""
    if field.described and field.described.required is not None:
        return field.described.required
    return field.always_written and not field.nullable and not isinstance(field.node, Fields)


def written_default(tree: Fields, field: Field) -> Any:
    """The default value of a field that is always written."""
    if isinstance(field.node, Fields):
        return empty_of(field.node)
    value = getattr(tree.type(), field.python_name)
    return value if isinstance(value, str | bool) else None


def empty_of(tree: Fields) -> Schema | None:
    """An object without fields, if that is valid."""
    return None if any(map(is_required, tree.fields.values())) else {}


def defaults_of(kind: Kind[Any]) -> dict[tuple[type, str], Any]:
    """The kind's own defaults for fields of an empty object."""
    if kind.defaults is None:
        return {}
    empty = kind.type()
    return dict(_differences(kind.schema, _plain(empty), _plain(kind.defaults(empty))))


def _plain(value: Object) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(value)
    return plain


def _differences(
    tree: Fields, before: dict[str, Any], after: dict[str, Any]
) -> Iterator[tuple[tuple[type, str], Any]]:
    for name, value in after.items():
        node, old = tree.get(name), before.get(name)
        if isinstance(node, Fields) and isinstance(value, dict):
            yield from _differences(node, old or {}, value)
        elif isinstance(node, Leaf) and value is not None and value != old:
            yield (tree.type, name), value


def first_paragraph(type_: type) -> str:
    """The first paragraph of a type's docstring, on one line."""
    text = inspect.cleandoc(type_.__doc__ or type_.__name__)
    return " ".join(text.partition("\n\n")[0].split())
