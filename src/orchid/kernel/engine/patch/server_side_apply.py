"""Server-side apply: a manager sends every field it wants; the server merges and finds conflicts.

Start at `apply`, which has these steps:

    1  the configuration must be of this kind, without managedFields, and match the schema
    2  live, overlaid with the configuration
    3  minus fields that this manager applied before, does not apply now, and nobody else owns
    4  a field that changes and has another owner is a conflict, unless forced
    5  the new managedFields

Nothing is changed in place. Neither the store nor defaults are known here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from orchid.kernel.engine.patch import last_applied, managed_fields
from orchid.kernel.engine.patch.compare import (
    claimed,
    compare,
    element_key,
    pruned,
    stripped,
    with_parents,
    without_record,
    zero,
)
from orchid.kernel.engine.patch.field_set import EMPTY, FieldSet
from orchid.kernel.engine.patch.managed_fields import APPLY, UPDATE, FieldOwner, Owners
from orchid.kernel.engine.patch.schema_check import problems
from orchid.kernel.wire.codec import yaml_text
from orchid.kernel.wire.errors import ApplyConflict, BadRequest, Unprocessable
from orchid.kernel.wire.schema import ANYTHING, Anything, Fields, Mapping, Node, Sequence
from orchid.kernel.wire.status import StatusCause
from orchid.kernel.wire.text import quote

BEFORE_FIRST_APPLY = "before-first-apply"
MOST_PROBLEMS = 100

Object = dict[str, Any]
_METADATA = FieldSet({"f:metadata": {}})


def decode_apply_body(body: bytes) -> tuple[Object, list[str]]:
    """The configuration in a request body (YAML or JSON), and its duplicate keys."""
    try:
        value, duplicates = yaml_text.load(body)
    except yaml_text.YamlError as error:
        raise BadRequest(f"error decoding YAML: {error}") from None
    if value is None:
        return {}, duplicates
    if not isinstance(value, dict):
        raise BadRequest("error decoding YAML: a configuration must be a map")
    return value, duplicates


def apply(
    live: Object | None,
    config: Object,
    *,
    schema: Fields,
    manager: str,
    force: bool,
    api_version: str,
    served: frozenset[str],
    kind: str,
    subresource: str,
    reset: tuple[str, ...],
    now: str,
    last_applied_annotation: str,
    last_applied_manager: str,
) -> Object:
    """The object after apply, with its `metadata.managedFields`; no `live` means that it is new.

    `served` has every apiVersion in which the same object is served.
    """
    try:
        _check(config, schema, api_version, kind)
        request = _Request(schema, manager, api_version, served, subresource, reset, now)
        before = zero(schema) if live is None else without_record(live)
        owners = request.known_owners(live)
        outcome = request.outcome(before, config, owners)
        if not force:
            allowed = EMPTY
            if manager == last_applied_manager:
                allowed = last_applied.forgiven(
                    before, last_applied_annotation, schema=schema, api_version=api_version
                )
            _refuse_conflicts(outcome.conflicts, allowed)
        result = before if outcome.same else _without_nulls(outcome.merged)
        if manager == last_applied_manager:
            result = last_applied.refreshed(result, config, last_applied_annotation)
        return _recorded(result, request.owners_afterwards(owners, outcome))
    except RecursionError:
        raise BadRequest("error decoding YAML: exceeded max depth") from None


class _Outcome(msgspec.Struct, frozen=True):
    merged: Object
    claims: FieldSet
    changed: FieldSet
    removed: FieldSet
    conflicts: dict[managed_fields.Identity, FieldSet]
    same: bool  # nothing changes, not even a field that gets no owner


class _Request(msgspec.Struct, frozen=True):
    """An apply: the manager, the endpoint and the time."""

    schema: Fields
    manager: str
    api_version: str
    served: frozenset[str]
    subresource: str
    reset: tuple[str, ...]
    now: str

    @property
    def identity(self) -> managed_fields.Identity:
        return (self.manager, APPLY, "", self.subresource)

    def known_owners(self, live: Object | None) -> Owners:
        """The owners so far. At the first apply, one owner is created for everything that is
        set.
        """
        if live is None:
            return {}
        owners = managed_fields.read(live["metadata"].get("managedFields") or ())
        if owners:
            return {
                identity: owner
                for identity, owner in owners.items()
                if owner.api_version in self.served
            }
        present, _ = compare(self.schema, zero(self.schema), live)
        fields = stripped(self._tracked(present))
        if not fields:
            return {}
        owner = FieldOwner(
            BEFORE_FIRST_APPLY, UPDATE, self.api_version, self.subresource, self.now, fields
        )
        return {owner.identity: owner}

    def outcome(self, live: Object, config: Object, owners: Owners) -> _Outcome:
        merged = _merge(self.schema, live, config)
        claims = self._tracked(claimed(self.schema, config))
        # Removing fields may empty fields of the configuration; a second merge restores them.
        merged = _merge(self.schema, self._without_dropped(merged, claims, owners), config)
        differences = compare(self.schema, live, merged)
        changed, removed = map(self._tracked, differences)
        conflicts = {}
        for identity, owner in owners.items():
            shared = EMPTY if identity == self.identity else owner.fields.intersection(changed)
            if shared:
                conflicts[identity] = shared
        # A configuration that names managedFields, even if empty, counts as a write.
        same = not any(differences) and "managedFields" not in (config.get("metadata") or ())
        return _Outcome(merged, claims, changed, removed, conflicts, same)

    def owners_afterwards(self, owners: Owners, outcome: _Outcome) -> Owners:
        left: Owners = {}
        gone = outcome.changed.union(outcome.removed)
        for identity, owner in owners.items():
            fields = owner.fields.difference(gone)
            if fields and identity != self.identity:
                left[identity] = owner.owning(fields)
        mine = self._own_entry(owners.get(self.identity), outcome)
        if mine.fields:
            left[self.identity] = mine
        return left

    def _own_entry(self, before: FieldOwner | None, outcome: _Outcome) -> FieldOwner:
        fields = stripped(outcome.claims)
        if before is not None and outcome.same:
            return before if before.fields == fields else before.owning(fields)
        time = "" if outcome.same else self.now
        return FieldOwner(self.manager, APPLY, self.api_version, self.subresource, time, fields)

    def _without_dropped(self, merged: Object, claims: FieldSet, owners: Owners) -> Object:
        """Remove fields that this manager applied before, does not apply now, and nobody owns."""
        before = owners.get(self.identity)
        last = EMPTY if before is None else self._tracked(before.fields)
        if not last.difference(claims):
            return merged
        claimed_by_all = claims
        for identity, owner in owners.items():
            if identity != self.identity:
                claimed_by_all = claimed_by_all.union(owner.fields)
        mine = self._with_parents(last).difference(_METADATA)  # name and namespace stay
        managed = self._with_parents(claimed_by_all)
        present = self._present(merged)
        left = self._present(self._pruned(merged, mine))
        left = self._present(self._pruned(merged, present.difference(left.union(managed))))
        return self._pruned(merged, present.difference(left).intersection(mine))

    def _tracked(self, fields: FieldSet) -> FieldSet:
        return fields.without(FieldSet.of_paths(self.reset)) if self.reset else fields

    def _with_parents(self, fields: FieldSet) -> FieldSet:
        return FieldSet(with_parents(self.schema, fields.tree))

    def _present(self, value: Object) -> FieldSet:
        return self._with_parents(claimed(self.schema, value))

    def _pruned(self, value: Object, paths: FieldSet) -> Object:
        result: Object = pruned(self.schema, value, paths.tree)
        return result


def _check(config: Object, schema: Fields, api_version: str, kind: str) -> None:
    type_meta = config.get("apiVersion"), config.get("kind")
    if type_meta != (api_version, kind):
        version, name = (part if isinstance(part, str) else "" for part in type_meta)
        raise BadRequest(f"invalid object type: {_group_version(version)}, Kind={name}")
    metadata = config.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
        raise BadRequest("metadata.managedFields must be nil")
    refused = list(islice(problems(schema, config), MOST_PROBLEMS))
    if refused:
        names = metadata if isinstance(metadata, dict) else {}
        text = (
            refused[0]
            if len(refused) == 1
            else "errors:" + "".join(f"\n  {problem}" for problem in refused)
        )
        raise Unprocessable(
            f"failed to create typed patch object ({_text(names.get('namespace'))}/"
            f"{_text(names.get('name'))}; {_group_version(api_version)}, Kind={kind}): {text}"
        )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _group_version(api_version: str) -> str:
    return api_version if "/" in api_version else f"/{api_version}"


def _merge(node: Node, live: Any, config: Any) -> Any:
    """The live value overlaid with the configured one."""
    if isinstance(config, dict) and isinstance(live, dict) and _members_merge(node):
        result = dict(live)
        for name, value in config.items():
            result[name] = _merge(_child(node, name), live[name], value) if name in live else value
        return result
    if isinstance(node, Sequence) and not node.atomic:
        if isinstance(config, list) and isinstance(live, list):
            return _merge_elements(node, live, config)
        return live if config is None else config
    if config is None and live and _members_merge(node) and not isinstance(node, Anything):
        return live  # null has no members to overlay
    return config


def _members_merge(node: Node) -> bool:
    return isinstance(node, Anything) or (isinstance(node, Fields | Mapping) and not node.atomic)


def _child(node: Node, name: str) -> Node:
    if isinstance(node, Fields):
        return node.get(name) or ANYTHING
    return node.values if isinstance(node, Mapping) else ANYTHING


def _merge_elements(node: Sequence, live: list[Any], config: list[Any]) -> list[Any]:
    """Configured elements in their order; other live elements keep their positions.

    Both lists are read in parallel. A live element that is configured later is skipped until it is
    reached there. If it is the next configured one, the live elements behind it wait for it.
    """
    applied = {element_key(node, item): item for item in config}
    live_items = [(element_key(node, item), item) for item in live]
    live_by_key = dict(live_items)
    shared = iter([key for key in applied if key in live_by_key])
    following = next(shared, None)
    result: list[Any] = []
    index = 0
    for key, item in applied.items():
        while index < len(live_items):
            other, value = live_items[index]
            if other not in applied:
                result.append(value)
            elif other in (key, following):
                break
            index += 1
        result.append(_merge(node.items, live_by_key[key], item) if key in live_by_key else item)
        if index < len(live_items) and live_items[index][0] == key:
            index += 1
        if key == following:
            following = next(shared, None)
    return result + [value for other, value in live_items[index:] if other not in applied]


def _refuse_conflicts(
    conflicts: dict[managed_fields.Identity, FieldSet], allowed: FieldSet
) -> None:
    refused = [
        (identity, path)
        for identity in sorted(conflicts)
        for path in conflicts[identity].difference(allowed).paths()
    ]
    if refused:
        causes = [
            StatusCause("FieldManagerConflict", f"conflict with {_named(identity)}", path)
            for identity, path in refused
        ]
        raise ApplyConflict(_conflict_message(refused), causes)


def _conflict_message(found: list[tuple[managed_fields.Identity, str]]) -> str:
    if len(found) == 1:
        identity, path = found[0]
        return f"Apply failed with 1 conflict: conflict with {_named(identity)}: {path}"
    return f"Apply failed with {len(found)} conflicts: " + "\n".join(_conflict_lines(found))


def _conflict_lines(refused: list[tuple[managed_fields.Identity, str]]) -> Iterator[str]:
    last = None
    for identity, path in refused:
        if identity != last:
            yield f"conflicts with {_named(identity)}:"
            last = identity
        yield f"- {path}"


def _named(identity: managed_fields.Identity) -> str:
    manager, operation, api_version, subresource = identity
    text = quote(manager)
    if subresource:
        text += f" with subresource {quote(subresource)}"
    return f"{text} using {api_version}" if operation == UPDATE else text


def _without_nulls(value: Any) -> Any:
    """A null in a configuration claims a field and leaves it empty."""
    if isinstance(value, dict):
        return {
            name: _without_nulls(member) if isinstance(member, dict | list) else member
            for name, member in value.items()
            if member is not None
        }
    return [_without_nulls(item) if isinstance(item, dict | list) else item for item in value]


def _recorded(value: Object, owners: Owners) -> Object:
    entries = managed_fields.written(owners)
    if entries is None:
        return value
    metadata = value.get("metadata") or {}
    return value | {"metadata": metadata | {"managedFields": entries}}
