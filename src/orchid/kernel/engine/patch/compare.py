"""Walk values by their schema: differences, content, claims of a configuration.

    compare(schema, old, new)   the paths that were changed or added, and those that were removed
    claimed(schema, config)     the paths that an applied configuration claims
    zero(schema)                an object without any value
    pruned(node, value, tree)   the value without these paths

A path ends where ownership ends: at a scalar, at an atomic list or object, at an empty container. A
container that is added or removed as a whole is a path of its own. `metadata.managedFields` is
ignored. Without a schema, objects are granular and lists atomic.

Trees are those of field_set.py. Values are plain JSON; nothing is changed in place.
"""

from __future__ import annotations

import functools
from typing import Any, TypeGuard, cast

import msgspec

from orchid.kernel.engine.patch.field_set import (
    LEAF,
    SELF,
    FieldSet,
    Tree,
    in_order,
    key_element,
    owned,
    owned_too,
    value_element,
)
from orchid.kernel.wire.schema import (
    ANYTHING,
    Anything,
    Fields,
    Leaf,
    Mapping,
    Node,
    Scalar,
    Sequence,
)

_ABSENT: Any = object()
_OBJECTS = (Fields, Mapping)  # a tuple: `Fields | Mapping` would be created at every call

_TYPE = frozenset({"apiVersion", "kind"})
STRIPPED = frozenset({
    "name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields",
    "resourceVersion",
})  # fmt: skip


def compare(schema: Fields, old: Any, new: Any) -> tuple[FieldSet, FieldSet]:
    """The paths that `new` changed or added, and those it removed."""
    changed, removed = _compare_members(schema, without_record(old), without_record(new))
    return FieldSet(changed), FieldSet(removed)


def compare_tracked(schema: Fields, old: Any, new: Any) -> tuple[FieldSet, FieldSet]:
    """Like `compare`, without paths that cannot be owned; see `stripped`."""
    changed, removed = _compare_members(schema, _ownable(old), _ownable(new))
    return FieldSet(changed), FieldSet(removed)


def has_nameless_elements(schema: Fields, old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether a changed list has elements owned one by one, and one of them has no key."""
    before, after = _ownable(old), _ownable(new)
    return any(
        _nameless(node := _child(schema, name), after.get(name))
        or _nameless(node, before.get(name))
        for name in after.keys() | before.keys()
        if after.get(name) != before.get(name)
    )


def _nameless(node: Node, value: Any) -> bool:
    if not value or isinstance(node, Leaf | Anything):
        return False
    if isinstance(value, dict):
        return any(_nameless(_child(node, name), member) for name, member in value.items())
    if not _is_granular_list(node, value):
        return False
    return any(element_key(node, item) is None or _nameless(node.items, item) for item in value)


def claimed(schema: Fields, config: Any) -> FieldSet:
    """The paths that a configuration sets."""
    return FieldSet(_claims(schema, config) or {})


def stripped(paths: FieldSet) -> FieldSet:
    """Without unowned paths: the identity of the object and server-set fields."""
    tree = {key: node for key, node in paths.tree.items() if key not in ("f:apiVersion", "f:kind")}
    metadata = tree.get("f:metadata")
    if metadata is not None:
        kept = {
            key: node
            for key, node in metadata.items()
            if key != SELF and not (key[2:] in STRIPPED and key.startswith("f:"))
        }
        if len(kept) != len(metadata):
            tree["f:metadata"] = kept
        if not kept:
            del tree["f:metadata"]
    elif len(tree) == len(paths.tree):
        return paths
    return FieldSet(tree)


def _ownable(value: dict[str, Any]) -> dict[str, Any]:
    """The part of an object that can be owned."""
    part = {name: member for name, member in value.items() if name not in _TYPE}
    part["metadata"] = {
        name: member for name, member in value["metadata"].items() if name not in STRIPPED
    }
    return part


@functools.lru_cache(maxsize=256)
def zero(schema: Fields) -> dict[str, Any]:
    """The object before anything is set: only the fields that are always written."""
    return cast("dict[str, Any]", msgspec.json.decode(msgspec.json.encode(schema.type())))


def without_record(value: dict[str, Any]) -> dict[str, Any]:
    """The object without its managedFields."""
    metadata = value.get("metadata")
    if isinstance(metadata, dict) and "managedFields" in metadata:
        metadata = metadata.copy()
        del metadata["managedFields"]
        return value | {"metadata": metadata}
    return value


def _child(node: Node, name: str) -> Node:
    if isinstance(node, Fields):
        known = node.fields.get(name)
        return ANYTHING if known is None else known.node
    return node.values if isinstance(node, Mapping) else ANYTHING


def _is_granular_object(node: Node, value: Any) -> bool:
    """Whether the members of this value have owners of their own."""
    if isinstance(node, _OBJECTS):
        return not node.atomic and (value is None or isinstance(value, dict))
    return isinstance(node, Anything) and isinstance(value, dict)


def _is_granular_list(node: Node, value: Any) -> TypeGuard[Sequence]:
    """Whether the elements of this value have owners of their own."""
    return (
        isinstance(node, Sequence)
        and not node.atomic
        and (value is None or isinstance(value, list))
    )


def _compare_members(node: Node, old: dict[str, Any], new: dict[str, Any]) -> tuple[Tree, Tree]:
    changed: Tree = {}
    removed: Tree = {}
    for name, value in new.items():
        before = old.get(name, _ABSENT)
        if before is _ABSENT:
            changed["f:" + name] = _everything(_child(node, name), value)
        elif before != value:
            gained, lost = _compare_values(_child(node, name), before, value)
            if gained is not None:
                changed["f:" + name] = gained
            if lost:
                removed["f:" + name] = lost
    for name, value in old.items():
        if name not in new:
            removed["f:" + name] = _everything(_child(node, name), value)
    return in_order(changed), in_order(removed)


def _compare_values(node: Node, old: Any, new: Any) -> tuple[Tree | None, Tree]:
    """Compare two values that differ: what changed (None for nothing), what was removed below."""
    if isinstance(node, Leaf) or not (old or new):
        return LEAF, {}
    if _is_granular_object(node, old) and _is_granular_object(node, new):
        changed, removed = _compare_members(node, old or {}, new or {})
        return changed or None, removed
    if _is_granular_list(node, old) and _is_granular_list(node, new):
        before, after = _elements(node, old or []), _elements(node, new or [])
        if before is None or after is None:
            return LEAF, {}
        changed, removed = _compare_elements(node.items, before, after)
        return changed or None, removed
    return owned_too(_everything(node, new)), _below(_everything(node, old))


def _compare_elements(items: Node, old: dict[str, Any], new: dict[str, Any]) -> tuple[Tree, Tree]:
    changed: Tree = {}
    removed: Tree = {}
    for key, value in new.items():
        before = old.get(key, _ABSENT)
        if before is _ABSENT or (type(before) is _Repeated and type(value) is not _Repeated):
            changed[key] = _everything(items, value)
        elif type(value) is _Repeated:
            if before == value:
                continue
            changed[key] = LEAF
            if type(before) is not _Repeated and (lost := _below(_everything(items, before))):
                removed[key] = lost
        elif before != value:
            gained, lost = _compare_values(items, before, value)
            if gained is not None:
                changed[key] = gained
            if lost:
                removed[key] = lost
    for key, value in old.items():
        if key not in new:
            removed[key] = _everything(items, value)
    return in_order(changed), in_order(removed)


class _Repeated(list[Any]):
    """Elements that share a key. Together they are one atomic value."""


def _below(tree: Tree) -> Tree:
    return {key: below for key, below in tree.items() if key != SELF}


def _elements(node: Sequence, values: list[Any]) -> dict[str, Any] | None:
    """The elements by their key, those that share one together; None if one has no key."""
    elements: dict[str, Any] = {}
    for value in values:
        key = element_key(node, value)
        if key is None:
            return None
        if key not in elements:
            elements[key] = value
        elif type(elements[key]) is _Repeated:
            elements[key].append(value)
        else:
            elements[key] = _Repeated([elements[key], value])
    return elements


def element_key(node: Sequence, value: Any) -> str | None:
    """The step to an element of a granular list; None if it has no key."""
    if node.keys:
        if not isinstance(value, dict):
            return None
        return key_element(value, node.keys) or key_element(_usual_keys(node), node.keys)
    return None if value is None or isinstance(value, dict | list) else value_element(value)


def _usual_keys(node: Sequence) -> dict[str, Any]:
    """The keys of an element without key fields: a string that is always written is then empty."""
    if not isinstance(node.items, Fields):
        return {}
    fields = (node.items.fields.get(name) for name in node.keys)
    return {
        field.wire_name: ""
        for field in fields
        if field and field.always_written and field.node == Leaf(Scalar.STRING)
    }


def _everything(node: Node, value: Any) -> Tree:
    """All paths of a value that is added or removed as a whole, itself included."""
    if not value or isinstance(node, Leaf) or type(value) is _Repeated:
        return LEAF
    if _is_granular_object(node, value):
        tree: Tree = {SELF: LEAF}
        for name in sorted(value):
            tree["f:" + name] = _everything(_child(node, name), value[name])
        return tree
    if _is_granular_list(node, value):
        elements = _elements(node, value)
        if elements is not None:
            tree = {SELF: LEAF}
            for key in sorted(elements):
                tree[key] = _everything(node.items, elements[key])
            return tree
    return LEAF


def _claims(node: Node, value: Any) -> Tree | None:
    """The paths of a value; LEAF for itself alone, None for none (an empty keyed list)."""
    if value is None or isinstance(node, Leaf) or type(value) is _Repeated:
        return LEAF
    if _is_granular_object(node, value):
        tree: Tree = {}
        for name in sorted(value):
            below = _claims(_child(node, name), value[name])
            if isinstance(node, Mapping):
                below = owned_too(below or LEAF)
            if below is not None:
                tree["f:" + name] = below
        return tree if tree or not value else None
    if _is_granular_list(node, value):
        elements = _elements(node, value)
        if elements is not None:
            return {
                key: owned_too(_claims(node.items, elements[key]) or LEAF)
                for key in sorted(elements)
            } or None
    return LEAF


def with_parents(node: Node, tree: Tree) -> Tree:
    """The set and every declared field above one of its paths; members of maps are omitted."""
    result: Tree = {}
    for key, below in tree.items():
        if key == SELF or not below:
            result[key] = below
            continue
        deeper = with_parents(_step(node, key), below)
        named = key.startswith("f:") and type(node) is not Mapping
        result[key] = owned_too(deeper) if named else deeper
    return in_order(result)


def _step(node: Node, key: str) -> Node:
    if key.startswith("f:"):
        return _child(node, key[2:])
    return node.items if type(node) is Sequence else ANYTHING


def pruned(node: Node, value: Any, tree: Tree) -> Any:
    """The value without the paths of the tree. Empty containers stay."""
    if isinstance(value, dict) and _is_granular_object(node, value):
        result = {}
        for name, member in value.items():
            below = tree.get("f:" + name)
            if below is None:
                result[name] = member
            elif not owned(below):
                result[name] = pruned(_child(node, name), member, below)
        return result
    if isinstance(value, list) and _is_granular_list(node, value):
        return _pruned_list(node, value, tree)
    return value


def _pruned_list(node: Sequence, values: list[Any], tree: Tree) -> list[Any]:
    result = []
    for value in values:
        key = element_key(node, value)
        below = tree.get(key) if key is not None else None
        if below is None:
            result.append(value)
        elif not owned(below):
            result.append(pruned(node.items, value, below))
    return result
