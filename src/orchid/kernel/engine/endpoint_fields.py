"""The fields that an endpoint may write, declared as data; all others keep their values.

`Kind.writes`, `Kind.creates` and `Endpoint.writes` name fields by their wire path (`spec`,
`status.conditions`); None means every field. The same declaration yields the fields that the
endpoint never owns (`resets`), for managedFields.
"""

import functools
from typing import Any, TypeVar

from orchid.kernel.engine.kind import Endpoint, Kind
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.schema import Fields
from orchid.kernel.wire.struct import replace

T = TypeVar("T", bound=Object)
Parts = dict[str, Any]  # fields by their Python names: None for a whole field, else its parts


def keep_unwritten(kind: Kind[T], endpoint: Endpoint | None, new: T, old: T) -> T:
    """On update: fields that this endpoint may not write keep their stored value."""
    parts = _kept_parts(kind, endpoint)
    return _with_parts(parts, new, old) if parts else new


@functools.cache
def _kept_parts(kind: Kind[Any], endpoint: Endpoint | None) -> Parts:
    return _parts_of(kind, _unwritable(kind, endpoint))


def blank_unwritten(kind: Kind[T], new: T) -> T:
    """On create: fields that a create may not set are empty."""
    if kind.creates is None:
        return new
    parts, whole = _blanks(kind)
    return replace(new, **whole) if whole else _with_parts(parts, new, _blank(kind.type))


@functools.cache
def _blanks(kind: Kind[Any]) -> tuple[Parts, dict[str, Any]]:
    """The fields that a create may not set, and their empty values if none is a part of another."""
    assert kind.creates is not None
    parts = _parts_of(kind, _complement(kind, kind.creates))
    if any(parts.values()):
        return parts, {}
    blank = kind.type()
    return parts, {name: getattr(blank, name) for name in parts}


@functools.cache
def resets(kind: Kind[Any], endpoint: Endpoint | None) -> tuple[str, ...]:
    """The paths that a write through an endpoint never owns, without redundant ones."""
    unwritable = _unwritable(kind, endpoint)
    if endpoint:
        return (*unwritable, *endpoint.unowned)
    return tuple(path for path in unwritable if path not in kind.owned)


def without_resets(kind: Kind[T], new: T) -> T:
    """A new object without the fields that its creator does not own."""
    parts = _parts_of(kind, resets(kind, None))
    return _with_parts(parts, new, _blank(kind.type)) if parts else new


def _unwritable(kind: Kind[Any], endpoint: Endpoint | None) -> tuple[str, ...]:
    writes = endpoint.writes if endpoint else kind.writes
    return () if writes is None else _complement(kind, writes)


@functools.cache
def _complement(kind: Kind[Any], writes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_unwritten(kind.schema, "", writes))


def _unwritten(schema: Fields, prefix: str, writes: tuple[str, ...]) -> list[str]:
    paths = []
    for name, field in schema.fields.items():
        path = prefix + name
        if path in writes or path in ("kind", "apiVersion", "metadata"):
            continue
        inner = field.node
        if isinstance(inner, Fields) and any(w.startswith(path + ".") for w in writes):
            paths += _unwritten(inner, path + ".", writes)
        else:
            paths.append(path)
    return paths


@functools.cache
def _parts_of(kind: Kind[Any], paths: tuple[str, ...]) -> Parts:
    """The same paths as a tree."""
    tree: Parts = {}
    for path in paths:
        parts, schema = tree, kind.schema
        *outer, last = path.split(".")
        for name in outer:
            field = schema.fields[name]
            assert isinstance(field.node, Fields)
            parts, schema = parts.setdefault(field.python_name, {}), field.node
        parts[schema.fields[last].python_name] = None
    return tree


def _with_parts(parts: Parts, new: Any, old: Any) -> Any:
    """A value with these parts of another."""
    taken = {}
    for name, inner in parts.items():
        old_part = getattr(old, name)
        taken[name] = _with_parts(inner, getattr(new, name), old_part) if inner else old_part
    return replace(new, **taken)


@functools.cache
def _blank(type_: type[T]) -> T:
    return type_()
