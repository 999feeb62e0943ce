"""Field ownership: the `metadata.managedFields` of an object after a write.

Start at `after_update`, for everything but apply (server_side_apply.py). An entry is identified by
its manager, operation and subresource, an Update also by its apiVersion. A write moves changed
fields from all other managers to the writer; removed fields have no owner any more.

This runs on every write, so it avoids work: without a change the stored list is returned, and an
entry that lost nothing is reused.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from orchid.kernel.engine.patch.compare import (
    compare_tracked,
    has_nameless_elements,
    stripped,
    zero,
)
from orchid.kernel.engine.patch.field_set import FieldSet
from orchid.kernel.wire.schema import Fields
from orchid.kernel.wire.text import timestamp

APPLY = "Apply"
UPDATE = "Update"
ANCIENT = "ancient-changes"
MOST_UPDATERS = 10

Identity = tuple[str, str, str, str]


class FieldOwner(msgspec.Struct, frozen=True):
    """An entry: the fields of one manager. `entry` is its encoded form while that is valid."""

    manager: str
    operation: str
    api_version: str
    subresource: str
    time: str
    fields: FieldSet
    entry: dict[str, Any] | None = None

    @property
    def identity(self) -> Identity:
        version = self.api_version if self.operation == UPDATE else ""
        return (self.manager, self.operation, version, self.subresource)

    def owning(self, fields: FieldSet, *, time: str | None = None) -> FieldOwner:
        if fields is self.fields and time is None:
            return self
        when = self.time if time is None else time
        return FieldOwner(
            self.manager, self.operation, self.api_version, self.subresource, when, fields
        )

    def written(self) -> dict[str, Any]:
        if self.entry is not None:
            return self.entry
        entry: dict[str, Any] = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
        }
        if self.time:
            entry["time"] = self.time
        entry["fieldsType"] = "FieldsV1"
        entry["fieldsV1"] = self.fields.tree
        if self.subresource:
            entry["subresource"] = self.subresource
        return entry


Owners = dict[Identity, FieldOwner]


def after_update(
    live: dict[str, Any] | None,
    new: dict[str, Any],
    *,
    schema: Fields,
    manager: str,
    api_version: str,
    served: frozenset[str],
    subresource: str,
    reset: tuple[str, ...],
    now: str,
    main_resource: bool,
) -> list[dict[str, Any]] | None:
    """The managedFields of `new` after a create (no `live`), a PUT or a patch; or None.

    `served` has every apiVersion in which the same object is served.
    """
    stored = [] if live is None else live["metadata"].get("managedFields") or []
    sent = new["metadata"].get("managedFields") if main_resource else None
    start = stored if sent is None or sent == stored else _sent_or_stored(sent, stored)
    if not start and live is not None:
        return None  # updates do not begin to track an object that has no entries
    old = zero(schema) if live is None else live
    if has_nameless_elements(schema, old, new):
        return None  # an element without its key cannot be named in an entry
    changed, removed = compare_tracked(schema, old, new)
    if reset:
        untracked = FieldSet.of_paths(reset)
        changed, removed = changed.without(untracked), removed.without(untracked)
    if start is stored and not changed and not removed:
        return stored or None
    owners = _kept(start, changed.union(removed), served)
    if changed:
        writer = FieldOwner(manager, UPDATE, api_version, subresource, now, changed)
        before = owners.get(writer.identity)
        if before is not None:
            writer = writer.owning(before.fields.union(changed))
        owners[writer.identity] = writer
    return written(_capped(owners))


def same_but_times(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether two objects differ only in the times of their entries (and their version).

    If so, the old entries should stay: the write changed nothing.
    """
    return _comparable(old) == _comparable(new)


def read(entries: Iterable[Any]) -> Owners:
    """The stored entries, which we wrote ourselves or checked with `read_from_client`."""
    owners: Owners = {}
    for entry in entries:
        ownership = FieldOwner(
            entry.get("manager", ""),
            entry.get("operation", ""),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
            entry.get("time") or "",
            FieldSet(entry.get("fieldsV1") or {}),
            entry,
        )
        owners[ownership.identity] = ownership
    return owners


def read_from_client(entries: Any) -> list[dict[str, Any]]:
    """Entries of a client in our form; raises ValueError if one is malformed."""
    if not isinstance(entries, list):
        raise ValueError("not a list of entries")
    owners = [_checked(entry) for entry in entries]
    return [ownership.written() for ownership in owners if ownership.fields]


def written(owners: Owners) -> list[dict[str, Any]] | None:
    """The entries in the order in which they are stored; None if there is none."""
    if not owners:
        return None
    if len(owners) == 1:
        return [ownership.written() for ownership in owners.values()]
    ordered = sorted(
        owners.values(),
        key=lambda owner: (
            owner.operation,
            owner.time,
            owner.manager,
            owner.api_version,
            owner.subresource,
        ),
    )
    return [ownership.written() for ownership in ordered]


def _sent_or_stored(sent: Any, stored: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entries to start from.

    A client may send entries, or reset them with an empty list. A client without knowledge of them
    must not lose them by accident.
    """
    if sent in ([], [{}]):
        return []
    try:
        return read_from_client(sent) or stored
    except ValueError:
        return stored


def _kept(entries: list[dict[str, Any]], gone: FieldSet, served: frozenset[str]) -> Owners:
    """The remaining entries of all managers. Entries of an unserved version are dropped."""
    left: Owners = {}
    for identity, ownership in read(entries).items():
        fields = ownership.fields.difference(gone)
        if fields and ownership.api_version in served:
            left[identity] = ownership.owning(fields)
    return left


def _capped(owners: Owners) -> Owners:
    """At most ten updaters: the oldest of a version are merged."""
    updaters = [owner for owner in owners.values() if owner.operation == UPDATE]
    if len(updaters) <= MOST_UPDATERS:
        return owners
    updaters.sort(key=lambda owner: (owner.time, owner.identity))
    result = dict(owners)
    buckets: dict[str, FieldOwner] = {}
    surplus = len(updaters) - MOST_UPDATERS
    for owner in updaters:
        if not surplus:
            break
        bucket = buckets.get(owner.api_version)
        if bucket is None:
            buckets[owner.api_version] = owner
            continue
        del result[owner.identity]
        result.pop(bucket.identity, None)
        united = bucket.fields.union(owner.fields)
        bucket = FieldOwner(ANCIENT, UPDATE, owner.api_version, "", owner.time, united)
        buckets[owner.api_version] = result[bucket.identity] = bucket
        surplus -= 1
    return result


def _checked(entry: Any) -> FieldOwner:
    if not isinstance(entry, dict) or entry.get("operation") not in (APPLY, UPDATE):
        raise ValueError("not an entry")
    if entry.get("fieldsType") != "FieldsV1" or not entry.get("apiVersion"):
        raise ValueError("an entry of another kind")
    names = [entry.get(name) or "" for name in ("manager", "apiVersion", "subresource", "time")]
    if not all(isinstance(name, str) for name in names):
        raise ValueError("not an entry")
    manager, api_version, subresource, time = names
    fields = stripped(FieldSet.parse(entry.get("fieldsV1")))
    return FieldOwner(
        manager, entry["operation"], api_version, subresource, _normal_time(time), fields
    )


def _normal_time(text: str) -> str:
    """UTC in whole seconds, so that times sort as text."""
    if not text:
        return ""
    moment = datetime.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time without a zone")
    return timestamp(moment)


def _comparable(value: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: part for key, part in value["metadata"].items() if key != "resourceVersion"}
    entries: Sequence[dict[str, Any]] = metadata.get("managedFields") or ()
    metadata["managedFields"] = [
        {key: part for key, part in entry.items() if key != "time"} for entry in entries
    ]
    return value | {"metadata": metadata}
