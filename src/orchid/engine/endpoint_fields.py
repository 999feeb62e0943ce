"""What an endpoint may write, said once as data: put back everything else.

`Kind.writes`, `Kind.creates` and `Endpoint.writes` name fields by their wire path (`spec`,
`status.conditions`); None means every field. The same words give the fields that the endpoint
never owns (`resets`), for managedFields.
"""

import functools
from typing import Any, TypeVar

from orchid.engine.kind import Endpoint, Kind
from orchid.wire.meta import Object
from orchid.wire.schema import Fields
from orchid.wire.struct import replace

T = TypeVar("T", bound=Object)


def keep_unwritten(kind: Kind[T], endpoint: Endpoint | None, new: T, old: T) -> T:
    """On update: fields that this endpoint may not write keep their stored value."""
    for path in _unwritable(kind, endpoint):
        new = _copied(kind.schema, path.split("."), new, old)
    return new


def blank_unwritten(kind: Kind[T], new: T) -> T:
    """On create: fields that a create may not set are empty."""
    if kind.creates is None:
        return new
    for path in _complement(kind, kind.creates):
        new = _copied(kind.schema, path.split("."), new, _blank(kind.type))
    return new


@functools.cache
def resets(kind: Kind[Any], endpoint: Endpoint | None) -> tuple[str, ...]:
    """The paths that nobody comes to own through an endpoint, as few as say it all."""
    unwritable = _unwritable(kind, endpoint)
    if endpoint:
        return (*unwritable, *endpoint.unowned)
    return tuple(path for path in unwritable if path not in kind.owned)


def without_resets(kind: Kind[T], new: T) -> T:
    """A new object without what nobody comes to own by creating it, however large that is."""
    for path in resets(kind, None):
        new = _copied(kind.schema, path.split("."), new, _blank(kind.type))
    return new


def _unwritable(kind: Kind[Any], endpoint: Endpoint | None) -> tuple[str, ...]:
    writes = endpoint.writes if endpoint else kind.writes
    return () if writes is None else _complement(kind, writes)


@functools.cache
def _complement(kind: Kind[Any], writes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_unwritten(kind.schema, "", writes))


def _unwritten(schema: Fields, prefix: str, writes: tuple[str, ...]) -> list[str]:
    found = []
    for name, known in schema.fields.items():
        path = prefix + name
        if path in writes or path in ("kind", "apiVersion", "metadata"):
            continue
        inner = known.node
        if isinstance(inner, Fields) and any(w.startswith(path + ".") for w in writes):
            found += _unwritten(inner, path + ".", writes)
        else:
            found.append(path)
    return found


def _copied(schema: Fields, path: list[str], new: Any, old: Any) -> Any:
    known = schema.fields[path[0]]
    name = known.python_name
    if len(path) == 1:
        return replace(new, **{name: getattr(old, name)})
    assert isinstance(known.node, Fields)
    inner = _copied(known.node, path[1:], getattr(new, name), getattr(old, name))
    return replace(new, **{name: inner})


@functools.cache
def _blank(type_: type[T]) -> T:
    return type_()
