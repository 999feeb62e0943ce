"""Who owns which field: the `metadata.managedFields` of an object after a write.

Start at `after_update`, for everything but apply (server_side_apply.py). An entry is known by its
manager, operation and subresource, an Update also by its apiVersion. A write takes what it changes
away from everyone and gives it to the writer; what it removes has no owner any more.

This runs on every write, so it avoids work: nothing changed means the stored list as it stands, and
an entry that lost nothing is kept as it is.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchid.engine.patch.compare import compare, stripped, zero
from orchid.engine.patch.field_set import EMPTY, FieldSet
from orchid.wire.schema import Fields

APPLY = "Apply"
UPDATE = "Update"
ANCIENT = "ancient-changes"
MOST_UPDATERS = 10

Identity = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Ownership:
    """One entry: the fields of one manager. `entry` is its written form while that still holds."""

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

    def owning(self, fields: FieldSet, *, time: str | None = None) -> Ownership:
        if fields is self.fields and time is None:
            return self
        when = self.time if time is None else time
        return replace(self, fields=fields, time=when, entry=None)

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


Owners = dict[Identity, Ownership]


def after_update(
    live: dict[str, Any] | None,
    new: dict[str, Any],
    *,
    schema: Fields,
    manager: str,
    api_version: str,
    subresource: str,
    reset: tuple[str, ...],
    now: str,
    main_resource: bool,
) -> list[dict[str, Any]] | None:
    """The entries that `new` must carry after a create (no `live`), a PUT or a patch; or None."""
    stored = [] if live is None else _entries(live)
    owners, as_stored = _starting_point(stored, new, main_resource=main_resource)
    if not owners and live is not None:
        return None  # an object that nobody tracks is not tracked by updates
    old = zero(schema) if live is None else live
    changed, removed = _tracked_changes(schema, old, new, reset)
    if as_stored and not changed and not removed:
        return stored or None
    writer = Ownership(manager, UPDATE, api_version, subresource, "", EMPTY)
    owners = _kept(owners, changed.union(removed), api_version)
    if changed:
        mine = owners.get(writer.identity, writer)
        owners[writer.identity] = mine.owning(mine.fields.union(changed), time=now)
    return written(_capped(owners))


def same_but_times(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether two objects differ in nothing but the times of their entries (and their version).

    If so, the old entries should be kept: the write changed nothing.
    """
    return _comparable(old) == _comparable(new)


def read(entries: Iterable[Any]) -> Owners:
    """The stored entries, which we wrote ourselves or checked with `read_from_client`."""
    owners: Owners = {}
    for entry in entries:
        ownership = Ownership(
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


def read_from_client(entries: Any) -> Owners:
    """Entries that a client sent; raise ValueError if one of them is none."""
    if not isinstance(entries, list):
        raise ValueError("not a list of entries")
    owners: Owners = {}
    for entry in entries:
        ownership = _checked(entry)
        if ownership.fields:
            owners[ownership.identity] = ownership
    return owners


def written(owners: Owners) -> list[dict[str, Any]] | None:
    """The entries in the order in which they are stored; None if there is none."""
    if not owners:
        return None
    if len(owners) == 1:
        return [ownership.written() for ownership in owners.values()]
    ordered = sorted(
        owners.values(),
        key=lambda one: (one.operation, one.time, one.manager, one.api_version, one.subresource),
    )
    return [ownership.written() for ownership in ordered]


def _entries(value: dict[str, Any]) -> list[dict[str, Any]]:
    return value["metadata"].get("managedFields") or []


def _starting_point(
    stored: list[dict[str, Any]], new: dict[str, Any], *, main_resource: bool
) -> tuple[Owners, bool]:
    """The entries to start from, and whether they are just the stored ones.

    A client may hand in entries of its own on the main resource, or reset them with an empty list.
    One that does not know of them must not lose them by accident.
    """
    sent = new["metadata"].get("managedFields") if main_resource else None
    if sent is None or sent == stored:
        return read(stored), True
    if sent in ([], [{}]):
        return {}, False
    try:
        owners = read_from_client(sent)
    except ValueError:
        owners = {}
    return (owners, False) if owners else (read(stored), True)


def _tracked_changes(
    schema: Fields, old: dict[str, Any], new: dict[str, Any], reset: tuple[str, ...]
) -> tuple[FieldSet, FieldSet]:
    changed, removed = compare(schema, old, new)
    if reset:
        untracked = FieldSet.of_paths(reset)
        return stripped(changed.without(untracked)), removed.without(untracked)
    return stripped(changed), removed


def _kept(owners: Owners, gone: FieldSet, api_version: str) -> Owners:
    """What everyone keeps. Entries of a version that is not served cannot be judged, and go."""
    left: Owners = {}
    for identity, ownership in owners.items():
        fields = ownership.fields.difference(gone)
        if fields and ownership.api_version == api_version:
            left[identity] = ownership.owning(fields)
    return left


def _capped(owners: Owners) -> Owners:
    """At most ten updaters: the oldest of a version are counted together."""
    updaters = [one for one in owners.values() if one.operation == UPDATE]
    if len(updaters) <= MOST_UPDATERS:
        return owners
    updaters.sort(key=lambda one: (one.time, one.identity))
    result = dict(owners)
    buckets: dict[str, Ownership] = {}
    surplus = len(updaters) - MOST_UPDATERS
    for one in updaters:
        if not surplus:
            break
        bucket = buckets.get(one.api_version)
        if bucket is None:
            buckets[one.api_version] = one
            continue
        del result[one.identity]
        result.pop(bucket.identity, None)
        united = bucket.fields.union(one.fields)
        bucket = Ownership(ANCIENT, UPDATE, one.api_version, "", one.time, united)
        buckets[one.api_version] = result[bucket.identity] = bucket
        surplus -= 1
    return result


def _checked(entry: Any) -> Ownership:
    if not isinstance(entry, dict) or entry.get("operation") not in (APPLY, UPDATE):
        raise ValueError("not an entry")
    if entry.get("fieldsType") != "FieldsV1" or not entry.get("apiVersion"):
        raise ValueError("an entry of another kind")
    names = [entry.get(name) or "" for name in ("manager", "apiVersion", "subresource", "time")]
    if not all(isinstance(name, str) for name in names):
        raise ValueError("not an entry")
    manager, api_version, subresource, time = names
    fields = stripped(FieldSet.parse(entry.get("fieldsV1")))
    return Ownership(
        manager, entry["operation"], api_version, subresource, _normal_time(time), fields
    )


def _normal_time(text: str) -> str:
    """UTC in whole seconds, so that times sort as text."""
    if not text:
        return ""
    moment = datetime.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time without a zone")
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _comparable(value: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: part for key, part in value["metadata"].items() if key != "resourceVersion"}
    entries: Sequence[dict[str, Any]] = metadata.get("managedFields") or ()
    metadata["managedFields"] = [
        {key: part for key, part in entry.items() if key != "time"} for entry in entries
    ]
    return value | {"metadata": metadata}
