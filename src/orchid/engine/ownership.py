"""Who owns which field: keeps `metadata.managedFields` right around every write.

The rules themselves work on plain JSON values and are in `patch/managed_fields.py`; this is the
bridge from and to objects.
"""

from typing import Any, TypeVar

import msgspec

from orchid.engine.endpoint_fields import resets, without_resets
from orchid.engine.kind import Endpoint, Kind
from orchid.engine.patch import managed_fields
from orchid.engine.request import Request
from orchid.wire.codec import to_builtins
from orchid.wire.meta import ManagedFieldsEntry, Object
from orchid.wire.text import timestamp

T = TypeVar("T", bound=Object)


class Ownership:
    """Write down, after a create or an update, who has set what."""

    def after_create(self, kind: Kind[T], new: T, request: Request) -> T:
        return self._tracked(kind, None, None, new, request)

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
        entries = managed_fields.after_update(
            live,
            to_builtins(without_resets(kind, new) if live is None else new),
            schema=kind.schema,
            manager=request.manager,
            api_version=kind.api_version,
            subresource=request.target.subresource,
            reset=resets(kind, endpoint),
            now=timestamp(request.now),
            main_resource=endpoint is None,
        )
        if not entries:
            return new.with_meta(managed_fields=()) if new.metadata.managed_fields else new
        return new.with_meta(
            managed_fields=msgspec.convert(entries, tuple[ManagedFieldsEntry, ...])
        )
