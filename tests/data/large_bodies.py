"""Bodies as large as a kind lets them be: each list and map of its fields, filled to the limit.

Start with `documents_of(kind)`. The fields come from the kind's own schema, so a new kind and a new
field are covered without a word here. Most of the bodies are refused, but only after all of their
content was looked at: that is the point of them. `in_form` writes a document in one of the forms in
which a request can carry it.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from orchid.kernel.engine.kind import Kind
from orchid.kernel.wire.codec.bounds import MOST_VALUES
from orchid.kernel.wire.codec.documents import Undecodable, decoder_of
from orchid.kernel.wire.codec.protobuf import message_of, sealed
from orchid.kernel.wire.schema import Anything, Fields, Leaf, Mapping, Node, Scalar, Sequence

JSON, YAML = "application/json", "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
CREATED: Final = (JSON, YAML, PROTOBUF)
PATCHED: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY)

DEEPEST = 7
SCALARS: dict[Scalar, Any] = {
    Scalar.INTEGER: 1,
    Scalar.NUMBER: 1.5,
    Scalar.BOOLEAN: True,
    Scalar.BYTES: "eA==",
    Scalar.TIME: "2026-01-01T00:00:00Z",
}

Document = dict[str, Any]


def documents_of(kind: Kind[Any]) -> Iterator[tuple[str, Document]]:
    """Each place of a kind that holds many, filled; and fields that nobody knows."""
    for place, document in _filled(kind.schema, kind.largest_body, DEEPEST):
        yield place.lstrip("."), document
    yield "unknown list", {"x": _many(ANY_ITEM, kind.largest_body)}
    yield "unknown fields", {f"x{i}": 1 for i in range(_room(kind.largest_body, 12, 1))}


ANY_ITEM: Node = Anything()


def _filled(node: Node, size: int, depth: int) -> Iterator[tuple[str, Any]]:
    """The containers at and below a node, each in a document that holds it and nothing else."""
    if isinstance(node, Fields) and depth:
        for name, field in node.fields.items():
            for place, value in _filled(field.node, size, depth - 1):
                yield f".{name}{place}", {name: value}
    elif isinstance(node, Sequence):
        yield "[]", _many(node.items, size, node.most)
        for place, value in _filled(node.items, size, depth - 1):
            yield f"[0]{place}", [value]
    elif isinstance(node, Mapping):
        one = _item(node.values, 0)
        room = _room(size, len(json.dumps(one)) + 12, _values_in(one))
        count = room if node.most is None else min(room, node.most)
        yield "{}", {f"k{i}": _item(node.values, i) for i in range(count)}
        for place, value in _filled(node.values, size, depth - 1):
            yield f".k{place}", {"k": value}


def _many(node: Node, size: int, most: int | None = None) -> list[Any]:
    one = _item(node, 0)
    room = _room(size, len(json.dumps(one)) + 8, _values_in(one))
    return [_item(node, i) for i in range(room if most is None else min(room, most))]


def _room(size: int, bytes_of_one: int, values_of_one: int) -> int:
    return max(1, min((size - 1000) // bytes_of_one, (MOST_VALUES - 100) // values_of_one))


def _values_in(item: Any) -> int:
    """How many values one item counts for; a pair of brackets is one of them."""
    return 1 + len(item) if isinstance(item, dict | list) else 1


def _item(node: Node, number: int) -> Any:
    """Something small that fits a node."""
    if isinstance(node, Leaf):
        return SCALARS.get(node.scalar) or (node.choices[0] if node.choices else f"v{number}")
    if isinstance(node, Fields):
        named = [name for name, field in node.fields.items() if _is_text(field.node)]
        return {named[0]: f"v{number}"} if named else {}
    if isinstance(node, Sequence):
        return []
    return {} if isinstance(node, Mapping) else {"a": number}


def _is_text(node: Node) -> bool:
    return isinstance(node, Leaf) and node.scalar is Scalar.STRING and not node.choices


def in_form(kind: Kind[Any], form: str, document: Document) -> bytes | None:
    """The document as the body of a request; None if this form cannot carry it."""
    if form == YAML:
        return _yaml(document).encode()
    if form == JSON_PATCH:
        return json.dumps(
            [{"op": "add", "path": f"/{name}", "value": value} for name, value in document.items()]
        ).encode()
    if form == PROTOBUF:
        return _protobuf(kind, document)
    return json.dumps(document).encode()


def _yaml(document: Document) -> str:
    """YAML that is not JSON too: one line for each field, what is below in flow style."""
    return "".join(f"{json.dumps(name)}: {json.dumps(value)}\n" for name, value in document.items())


def _protobuf(kind: Kind[Any], document: Document) -> bytes | None:
    try:
        found, _ = decoder_of(kind.type).decode(json.dumps(document).encode())
    except Undecodable:
        return None
    return sealed(kind.api_version, kind.name, message_of(kind.type).encode(found))
