"""Field ownership: updates `metadata.managedFields` in every write.

The rules work on plain JSON values and are in `kernel/engine/patch/managed_fields.py`; this
converts from and to objects.

Most new objects have the same fields as an earlier one. The outline of an object is the names of
its fields and whether they are empty; objects with the same outline have the same owned fields, so
these are cached by outline (`Ownership.after_create`).
"""

import functools
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import msgspec

from orchid.kernel.base.clock import whole_seconds
from orchid.kernel.engine.endpoint_fields import resets, without_resets
from orchid.kernel.engine.kind import Endpoint, Kind
from orchid.kernel.engine.patch import managed_fields
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.codec.documents import encode, to_builtins
from orchid.kernel.wire.meta import ManagedFieldsEntry, Object
from orchid.kernel.wire.schema import Anything, Fields, Mapping, Node, Sequence
from orchid.kernel.wire.text import timestamp

T = TypeVar("T", bound=Object)
Owners = tuple[ManagedFieldsEntry, ...]
Outline = Callable[[Any], Hashable]

MOST_OUTLINES = 4096
LARGEST_OUTLINED = 4096  # bytes of a body; a larger one is seldom like another


class Ownership:
    """Records field managers after a create or an update."""

    def __init__(self) -> None:
        # Managed fields of new objects by outline: most new objects resemble an earlier one.
        self._created: dict[Hashable, dict[str, Any]] = {}

    def after_create(self, kind: Kind[T], new: T, request: Request) -> Owners:
        """The managed fields of a new object."""
        if new.metadata.managed_fields:
            return self._tracked(kind, None, None, without_resets(kind, new), request)
        key = (kind, _outline_of(kind)(msgspec.to_builtins(new)))
        fields = self._created.get(key)
        if fields is None:
            fields = self._fields_of_new(kind, new, request)
            if len(self._created) >= MOST_OUTLINES:
                self._created.clear()
            if request.body_weight <= LARGEST_OUTLINED:
                self._created[key] = fields
        if not fields:
            return ()
        entry = ManagedFieldsEntry(
            manager=request.manager,
            operation=managed_fields.UPDATE,
            api_version=kind.api_version,
            time=whole_seconds(request.now),
            fields_type="FieldsV1",
            fields_v1=fields,
            subresource=request.target.subresource,
        )
        return (entry,)

    def _fields_of_new(self, kind: Kind[T], new: T, request: Request) -> dict[str, Any]:
        sent = to_builtins(without_resets(kind, new))
        entries = self._entries(kind, None, None, sent, request)
        return entries[0]["fieldsV1"] if entries else {}

    def after_update(
        self, kind: Kind[T], endpoint: Endpoint | None, old: T, new: T, request: Request
    ) -> T:
        sent = new.metadata.managed_fields
        if not old.metadata.managed_fields and (endpoint is not None or not sent):
            # Updates do not begin to track an untracked object; no need to look at its fields.
            return new.with_meta(managed_fields=()) if sent else new
        owners = self._tracked(kind, endpoint, to_builtins(old), new, request)
        return new.with_meta(managed_fields=owners)

    def _tracked(
        self,
        kind: Kind[T],
        endpoint: Endpoint | None,
        live: dict[str, Any] | None,
        new: T,
        request: Request,
    ) -> Owners:
        entries = self._entries(kind, endpoint, live, to_builtins(new), request)
        return msgspec.convert(entries, tuple[ManagedFieldsEntry, ...]) if entries else ()

    def _entries(
        self,
        kind: Kind[Any],
        endpoint: Endpoint | None,
        live: dict[str, Any] | None,
        sent: dict[str, Any],
        request: Request,
    ) -> list[dict[str, Any]] | None:
        return managed_fields.after_update(
            live,
            sent,
            schema=kind.schema,
            manager=request.manager,
            api_version=kind.api_version,
            served=kind.api_versions,
            subresource=request.target.subresource,
            reset=resets(kind, endpoint),
            now=timestamp(request.now),
            main_resource=endpoint is None,
        )


@functools.cache
def _outline_of(kind: Kind[Any]) -> Outline:
    return outline_of(kind.schema, resets(kind, None))


# --- outlines -------------------------------------------------------------------------------------


def outline_of(schema: Fields, leaving_out: tuple[str, ...] = ()) -> Outline:
    """The outlines of objects with these fields, without the given paths."""
    return _of_fields(schema, "", leaving_out, {})


def _of(node: Node, path: str, left_out: tuple[str, ...], outlines: dict[int, Outline]) -> Outline:
    if isinstance(node, Fields):
        return _of_fields(node, path + ".", left_out, outlines)
    if isinstance(node, Mapping):
        return _of_mapping(_of(node.values, path, left_out, outlines))
    if isinstance(node, Anything):
        return _of_anything
    if isinstance(node, Sequence) and not node.atomic:
        return encode  # its elements are owned one by one
    return bool


class _Members(dict[str, Outline | None]):
    """The outlines of the members of a record; None for omitted ones."""

    def __missing__(self, name: str) -> Outline:
        return _of_anything  # undeclared


def _of_fields(
    node: Fields, prefix: str, left_out: tuple[str, ...], outlines: dict[int, Outline]
) -> Outline:
    inside = [path for path in left_out if path.startswith(prefix)]
    if not inside and id(node) in outlines:
        return outlines[id(node)]  # a type may be recursive
    members = _Members()

    def outline(value: Any) -> Hashable:
        parts: list[Any] = []
        for name, item in value.items():
            look = members[name]
            # An empty value is described by its type alone.
            parts += (name, look(item) if item and look is not None else type(item))
        return tuple(parts)

    if not inside:
        outlines[id(node)] = outline
    for name, field in node.fields.items():
        path = prefix + name
        members[name] = None if path in left_out else _of(field.node, path, left_out, outlines)
    return outline


def _of_mapping(inner: Outline) -> Outline:
    def outline(value: Any) -> Hashable:
        return (*value, *map(inner, value.values()))

    return outline


def _of_anything(value: Any) -> Hashable:
    if isinstance(value, dict):
        return (*value, *map(_of_anything, value.values()))
    return None if value is None else bool(value)
