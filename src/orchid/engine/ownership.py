"""Who owns which field: keeps `metadata.managedFields` right around every write.

The rules themselves work on plain JSON values and are in `patch/managed_fields.py`; this is the
bridge from and to objects.
"""

from collections.abc import Hashable
from typing import Any, TypeVar

import msgspec

from orchid.engine.endpoint_fields import resets, without_resets
from orchid.engine.kind import Endpoint, Kind
from orchid.engine.patch import managed_fields
from orchid.engine.request import Request
from orchid.wire.codec.documents import encode, to_builtins
from orchid.wire.meta import ManagedFieldsEntry, Object
from orchid.wire.schema import Fields, Mapping, Node, Sequence
from orchid.wire.text import timestamp, whole_seconds

T = TypeVar("T", bound=Object)

MOST_OUTLINES = 4096
LARGEST_OUTLINED = 4096  # bytes of a body; a larger one is seldom like another


class Ownership:
    """Write down, after a create or an update, who has set what."""

    def __init__(self) -> None:
        # The fields of new objects by their outline: most that are made look like one before.
        self._created: dict[Hashable, dict[str, Any]] = {}

    def after_create(self, kind: Kind[T], new: T, request: Request) -> T:
        if new.metadata.managed_fields:
            return self._tracked(kind, None, None, new, request)
        fields = self._fields_of_new(kind, without_resets(kind, new), request)
        if not fields:
            return new
        entry = ManagedFieldsEntry(
            manager=request.manager,
            operation=managed_fields.UPDATE,
            api_version=kind.api_version,
            time=whole_seconds(request.now),
            fields_type="FieldsV1",
            fields_v1=fields,
            subresource=request.target.subresource,
        )
        return new.with_meta(managed_fields=(entry,))

    def _fields_of_new(self, kind: Kind[T], sent: T, request: Request) -> dict[str, Any]:
        key = (kind, outline(kind.schema, msgspec.to_builtins(sent)))
        known = self._created.get(key)
        if known is None:
            entries = self._entries(kind, None, None, to_builtins(sent), request)
            known = entries[0]["fieldsV1"] if entries else {}
            if len(self._created) >= MOST_OUTLINES:
                self._created.clear()
            if request.body_weight <= LARGEST_OUTLINED:
                self._created[key] = known
        return known

    def after_update(
        self, kind: Kind[T], endpoint: Endpoint | None, old: T, new: T, request: Request
    ) -> T:
        sent = new.metadata.managed_fields
        if not old.metadata.managed_fields and (endpoint is not None or not sent):
            # What nobody tracks is not tracked by updates; no need to look at its fields.
            return new.with_meta(managed_fields=()) if sent else new
        return self._tracked(kind, endpoint, to_builtins(old), new, request)

    def _tracked(
        self,
        kind: Kind[T],
        endpoint: Endpoint | None,
        live: dict[str, Any] | None,
        new: T,
        request: Request,
    ) -> T:
        sent = to_builtins(without_resets(kind, new) if live is None else new)
        entries = self._entries(kind, endpoint, live, sent, request)
        if not entries:
            return new.with_meta(managed_fields=()) if new.metadata.managed_fields else new
        return new.with_meta(
            managed_fields=msgspec.convert(entries, tuple[ManagedFieldsEntry, ...])
        )

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


def outline(node: Node | None, value: Any) -> Hashable:
    """What of a new object decides which fields are set: names, and whether there is anything.

    Of a list whose elements are owned one by one, the elements themselves.
    """
    if isinstance(value, dict):
        if isinstance(node, Fields):
            return tuple([(name, outline(node.get(name), item)) for name, item in value.items()])
        inner = node.values if isinstance(node, Mapping) else None
        return tuple([(name, outline(inner, item)) for name, item in value.items()])
    if isinstance(value, list | tuple) and isinstance(node, Sequence) and not node.atomic:
        return encode(value)
    return None if value is None else bool(value)
