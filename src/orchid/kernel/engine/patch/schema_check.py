"""Check a configuration against the schema before it is applied.

Start at `problems`: every error, as `.path: message`. Unlike field validation elsewhere this is
never lenient: an unknown field in an applied configuration would have no owner.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orchid.kernel.engine.patch.compare import element_key
from orchid.kernel.engine.patch.field_set import element_text
from orchid.kernel.wire.schema import Anything, Fields, Leaf, Mapping, Node, Scalar, Sequence
from orchid.kernel.wire.text import quote

_EXPECTED: dict[Scalar, tuple[str, tuple[type, ...]]] = {
    Scalar.STRING: ("string", (str,)),
    Scalar.BYTES: ("string", (str,)),
    Scalar.TIME: ("string", (str,)),
    Scalar.INTEGER: ("numeric (int or float)", (int, float)),
    Scalar.NUMBER: ("numeric (int or float)", (int, float)),
    Scalar.BOOLEAN: ("boolean", (bool,)),
}
_KINDS: dict[type, str] = {
    str: "string", bool: "boolean", int: "number", float: "number", dict: "map", list: "list",
}  # fmt: skip


def problems(node: Node, value: Any, path: str = "") -> Iterator[str]:
    """Errors in a value; null is valid everywhere."""
    if value is None or isinstance(node, Anything):
        return
    if isinstance(node, Leaf):
        yield from _scalar(node, value, path)
    elif isinstance(node, Sequence):
        yield from _list(node, value, path)
    elif not isinstance(value, dict):
        yield f"{path}: expected map, got {_shown(value)}"
    elif isinstance(node, Mapping):
        for name, member in value.items():
            yield from problems(node.values, member, f"{path}.{name}")
    else:
        yield from _record(node, value, path)


def _record(node: Fields, value: dict[str, Any], path: str) -> Iterator[str]:
    unknown = False
    for name, member in value.items():
        below = node.get(name)
        if below is not None:
            yield from problems(below, member, f"{path}.{name}")
        elif not unknown:
            unknown = True
            yield f"{path}.{name}: field not declared in schema"


def _list(node: Sequence, value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{path}: expected list, got {_shown(value)}"
        return
    seen: set[str] = set()
    for index, item in enumerate(value):
        if node.atomic:
            yield from problems(node.items, item, f"{path}[{index}]")
            continue
        key = element_key(node, item)
        if key is None:
            yield f"{path}: element {index}: {_without_key(node, item)}"
            continue
        step = element_text(key)
        if key in seen:
            yield f"{path}: duplicate entries for key {step}"
        seen.add(key)
        yield from problems(node.items, item, path + step)


def _without_key(node: Sequence, item: Any) -> str:
    if not node.keys:
        return "a set may hold scalars only"
    if item is None:
        return "associative list with keys may not have a null element"
    if not isinstance(item, dict):
        return "associative list with keys may not have non-map elements"
    names = " ".join(quote(name) for name in node.keys)
    return (
        f"associative list with keys has an element that omits all key fields [{names}] "
        "(and doesn't have default values for any key fields)"
    )


def _scalar(node: Leaf, value: Any, path: str) -> Iterator[str]:
    name, types = _EXPECTED[node.scalar]
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        yield f"{path}: expected {name}, got {_shown(value)}"


def _shown(value: Any) -> str:
    """The type of a value. Not the value: it may be a misplaced secret."""
    return _KINDS[type(value)]
