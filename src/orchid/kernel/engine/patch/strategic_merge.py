"""Strategic merge patch: a merge patch with merging lists and directives.

Start at `apply`. Objects merge and null removes, as in a merge patch; a list whose elements have a
key merges element by element, sets of scalars are joined, any other list is replaced. The schema
decides; undeclared values merge like plain JSON.

    "$patch": "replace" | "delete"      use the rest of this object as it is | empty it
    in a list: {"$patch": "delete", "name": "x"}, {"$patch": "replace"}
    "$retainKeys": ["a"]                drop the other members first
    "$deleteFromPrimitiveList/f": [..]  remove these from the set f
    "$setElementOrder/f": [..]          the order of the elements of f

Neither the document nor the patch is changed; parts that the patch does not name are shared.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NoReturn

import msgspec

from orchid.kernel.wire.errors import BadRequest, Unprocessable
from orchid.kernel.wire.schema import ANYTHING, Fields, Mapping, Node, Sequence

PATCH = "$patch"
RETAIN = "$retainKeys"
ORDER = "$setElementOrder"
TAKE_OUT = "$deleteFromPrimitiveList"

_LONGEST = 200
_MOST_SHOWN = 10

Object = dict[str, Any]


def apply(document: Object, patch: Object | None, schema: Fields) -> Object:
    """The document after the patch; a null patch changes nothing."""
    if patch is None:
        return document
    if not isinstance(patch, dict):
        raise BadRequest("a strategic merge patch must be a JSON object")
    try:
        return _merge_object(document, patch, schema)
    except RecursionError:
        raise BadRequest("the patch is nested too deeply") from None


def _merge_object(live: Object, patch: Object, node: Node) -> Object:
    if PATCH in patch:
        return _directed(patch)
    result = _retained(live, patch) if RETAIN in patch else dict(live)
    ordered = set()
    for key in patch:
        if key.startswith(ORDER):
            name = _target(key, ORDER, "invalid patch format of setElementOrder list")
            _merge_in_order(result, patch, name, _child(node, name))
            ordered.add(name)
    for key, value in patch.items():
        if key.startswith(TAKE_OUT):
            name = _target(key, TAKE_OUT, "invalid patch format of primitive list")
            _take_out(result, name, value)
        elif key not in ordered and key != RETAIN and not key.startswith(ORDER):
            _merge_member(result, key, value, _child(node, key))
    return result


def _directed(patch: Object) -> Object:
    directive = patch[PATCH]
    if directive == "replace":
        return _added_object(patch)
    if directive != "delete":
        _refuse(f"unknown patch type: {_plain(directive)} in map: {_outline(patch)}")
    return {}


def _retained(live: Object, patch: Object) -> Object:
    names = patch[RETAIN]
    if not isinstance(names, list):
        raise BadRequest("invalid patch format of retainKeys")
    kept = {name for name in names if isinstance(name, str)}
    for name, value in patch.items():
        directive = name == RETAIN or name.startswith((TAKE_OUT, ORDER))
        if value is not None and not directive and name not in kept:
            raise BadRequest("invalid patch format of retainKeys")
    return {name: value for name, value in live.items() if name in kept}


def _merge_member(result: Object, name: str, value: Any, node: Node) -> None:
    """Merge one member of the patch into the object under construction."""
    live = result.get(name)
    if value is None:
        result.pop(name, None)
    elif isinstance(live, dict) and isinstance(value, dict):
        result[name] = _merge_object(live, value, node)
    elif isinstance(live, list) and isinstance(value, list):
        result[name] = _merge_list(live, value, node)
    elif not _is_deletion(value):
        result[name] = _added(value)


def _merge_list(live: list[Any], patch: list[Any], node: Node) -> list[Any]:
    if not isinstance(node, Sequence) or node.atomic:
        return patch  # as it is: nothing in it is a directive
    _check_elements(live, patch, node)
    if node.is_set:
        merged = list(dict.fromkeys([*live, *patch]))
        return _arranged(merged, patch, live, ())
    if any(PATCH in item for item in patch):
        live, patch, replaced = _special_elements(live, patch, node.keys)
        if replaced:
            return patch
    merged = list(live)
    indexes = {_key(item, node.keys): index for index, item in reversed([*enumerate(live)])}
    for item in patch:
        key = _required_key(item, node.keys)
        index = indexes.get(key)
        if index is None:
            indexes[key] = len(merged)
            merged.append(_added(item))
        else:
            merged[index] = _merge_object(merged[index], item, node.items)
    return merged if node.appends else _arranged(merged, patch, live, node.keys)


def _check_elements(live: list[Any], patch: list[Any], node: Sequence) -> None:
    expected: type | tuple[type, ...] = dict if node.keys else (str, int, float, bool)
    for item in (*live, *patch):
        if isinstance(item, list):
            raise Unprocessable
        if not isinstance(item, expected):
            _refuse(f"list element types are not identical: {_outline([*live, *patch])}")


def _special_elements(
    live: list[Any], patch: list[Any], keys: tuple[str, ...]
) -> tuple[list[Any], list[Any], bool]:
    """Execute the directives among the elements; return the rest to merge."""
    replaced, ordinary, deleted = False, [], set()
    for item in patch:
        match item.get(PATCH, ""):
            case "" if PATCH not in item:
                ordinary.append(item)
            case "delete":
                deleted.add(_required_key(item, keys))
            case "replace":
                replaced = True
            case "merge":
                _refuse("merging lists cannot yet be specified in the patch")
            case unknown:
                _refuse(f"unknown patch type: {_plain(unknown)} in map: {_outline(item)}")
    if replaced:
        return [], [_added(item) for item in ordinary], True
    return [item for item in live if _key(item, keys) not in deleted], ordinary, False


def _merge_in_order(result: Object, patch: Object, name: str, node: Node) -> None:
    """Merge a list together with the directive that sets its order."""
    order, live, change = patch[f"{ORDER}/{name}"], result.get(name), patch.get(name)
    for value in (order, live, change):
        if value is not None and not isinstance(value, list):
            _refuse(f"expected a list for {name}, got {_outline(value)}")
    if live is None and change is None:
        if name in patch:
            result.pop(name, None)
        return
    if name in patch and change is None:
        result.pop(name, None)
        return
    keys = node.keys if isinstance(node, Sequence) else ()
    _check_order(change or [], order or [], keys)
    if live is None:
        merged = _added_list(change or [])
    else:
        merged = live if change is None else _merge_list(live, change, node)
    result[name] = _arranged(merged, order or [], live or [], keys)


def _check_order(patch: list[Any], order: list[Any], keys: tuple[str, ...]) -> None:
    """The elements of the patch must be in the order list, one after the other."""
    identities = iter([_identity(item, keys) for item in order])
    for item in patch:
        if isinstance(item, dict) and PATCH in item:
            continue
        if _identity(item, keys) not in identities:  # consumes up to the match
            _refuse(
                f"The order in patch list:\n{_outline(patch)}\n"
                f" doesn't match {ORDER} list:\n{_outline(order)}\n"
            )


def _arranged(
    merged: list[Any], order: list[Any], live: list[Any], keys: tuple[str, ...]
) -> list[Any]:
    """Elements named in `order` have that order; the others keep their position in the live list.

    Another element comes before a named one only if it does so in the live list.
    """
    places = {_identity(item, keys): index for index, item in reversed([*enumerate(order)])}
    stood = {_identity(item, keys): index for index, item in reversed([*enumerate(live)])}
    named = [item for item in merged if _identity(item, keys) in places]
    rest = [item for item in merged if _identity(item, keys) not in places]
    named.sort(key=lambda item: places[_identity(item, keys)])
    result: list[Any] = []
    waiting = 0
    for item in named:
        index = stood.get(_identity(item, keys), -1)
        while waiting < len(rest) and stood.get(_identity(rest[waiting], keys), index) < index:
            result.append(rest[waiting])
            waiting += 1
        result.append(item)
    return result + rest[waiting:]


def _take_out(result: Object, name: str, values: Any) -> None:
    live = result.get(name)
    if isinstance(live, list) and isinstance(values, list):
        gone = {_identity(value, ()) for value in values}
        result[name] = [item for item in live if _identity(item, ()) not in gone]


def _target(key: str, directive: str, complaint: str) -> str:
    """The field of a parallel directive: the part after the slash."""
    head, slash, name = key.partition("/")
    if not slash or head != directive:
        raise BadRequest(complaint)
    return name


def _child(node: Node, name: str) -> Node:
    if isinstance(node, Fields):
        return node.get(name) or ANYTHING
    return node.values if isinstance(node, Mapping) else ANYTHING


def _key(item: Any, keys: tuple[str, ...]) -> Hashable:
    """The key of an element, typed: to Python, true is 1."""
    return tuple((type(item.get(name)), _hashable(item.get(name))) for name in keys)


def _required_key(item: Object, keys: tuple[str, ...]) -> Hashable:
    for name in keys:
        if item.get(name) is None:
            _refuse(f"map: {_outline(item)} does not contain declared merge key: {name}")
    return _key(item, keys)


def _identity(item: Any, keys: tuple[str, ...]) -> Hashable:
    if keys and isinstance(item, dict):
        return _key(item, keys)
    return (type(item), _hashable(item))


def _hashable(value: Any) -> Hashable:
    return _json(value) if isinstance(value, dict | list) else value


def _added(value: Any) -> Any:
    """A value that is new to the document, without nulls and directives."""
    if isinstance(value, dict):
        return _added_object(value)
    return _added_list(value) if isinstance(value, list) else value


def _added_object(value: Object) -> Object:
    return {
        name: _added(member)
        for name, member in value.items()
        if member is not None and not _is_directive(name) and not _is_deletion(member)
    }


def _added_list(values: list[Any]) -> list[Any]:
    return [
        _added(value)
        for value in values
        if not (isinstance(value, dict) and value.get(PATCH) in ("delete", "replace"))
    ]


def _is_deletion(value: Any) -> bool:
    return isinstance(value, dict) and value.get(PATCH) == "delete"


def _is_directive(name: str) -> bool:
    return name in (PATCH, RETAIN) or name.startswith((ORDER, TAKE_OUT))


def _plain(value: Any) -> str:
    return value[:_LONGEST] if isinstance(value, str) else _outline(value)


def _outline(value: Any) -> str:
    """A value for a message: the names of members and the types of elements.

    Not the values themselves: they may be secret, and messages are shown and logged.
    """
    if isinstance(value, dict):
        return f"map[{' '.join(value)}]"[:_LONGEST]
    if isinstance(value, list):
        return f"[{' '.join(_outline(item) for item in value[:_MOST_SHOWN])}]"[:_LONGEST]
    return type(value).__name__


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _refuse(text: str) -> NoReturn:
    raise Unprocessable(text)
