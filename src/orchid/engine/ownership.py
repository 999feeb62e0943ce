"""Field ownership: updates `metadata.managedFields` in every write.

The rules work on plain JSON values and are in `patch/managed_fields.py`; this converts from and to
objects.
"""

import functools
from collections.abc import Hashable
from typing import Any, TypeVar

import msgspec

from orchid.engine.endpoint_fields import resets, without_resets
from orchid.engine.kind import Endpoint, Kind
from orchid.engine.outline import Outline, outline_of
from orchid.engine.patch import managed_fields
from orchid.engine.request import Request
from orchid.wire.codec.documents import to_builtins
from orchid.wire.meta import ManagedFieldsEntry, Object
from orchid.wire.text import timestamp, whole_seconds

T = TypeVar("T", bound=Object)
Owners = tuple[ManagedFieldsEntry, ...]

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
