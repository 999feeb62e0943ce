"""Update: change one existing object. PUT, the patches and apply all end here.

A change is a function from the current object to the new one. It is computed again after every lost
race, unless the client named the version it wants to change.
"""

import functools
import itertools
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar

from orchid.kernel.base.scheduling.offload import Offload
from orchid.kernel.engine.admission import Admission
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.objects import Objects, Raced, stored_form
from orchid.kernel.engine.endpoint_fields import keep_unwritten
from orchid.kernel.engine.kind import Endpoint, Kind
from orchid.kernel.engine.ownership import Ownership
from orchid.kernel.engine.patch.managed_fields import same_but_times
from orchid.kernel.engine.request import Request
from orchid.kernel.engine.strategy import Strategy
from orchid.kernel.engine.verbs.create import deduplicated, in_namespace
from orchid.kernel.engine.verbs.read import parse_version
from orchid.kernel.wire.codec.documents import to_builtins
from orchid.kernel.wire.errors import (
    MODIFIED,
    BadRequest,
    Conflict,
    Invalid,
    refuse_if_any,
)
from orchid.kernel.wire.fields import METADATA, FieldError, gathered, invalid
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.rules.metadata import update_errors
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.text import shown

T = TypeVar("T", bound=Object)

Change = Callable[[Entry[T]], T]


class Updating:
    """The verb update."""

    def __init__(
        self, objects: Objects, admission: Admission, ownership: Ownership, offload: Offload
    ) -> None:
        self._objects = objects
        self._admission = admission
        self._ownership = ownership
        self._offload = offload

    def replace(
        self, kind: Kind[T], endpoint: Endpoint | None, new: T, request: Request
    ) -> Awaitable[Entry[T]]:
        """PUT: the client sent the whole object."""
        if new.metadata.namespace != (request.target.namespace if kind.namespaced else ""):
            new = in_namespace(kind, new, request.target.namespace)
        require_name(new, request)
        if new.metadata.owner_references:
            new = deduplicated(new, request)
        change = functools.partial(self._replaced, kind, endpoint, new, request)
        return self.change(kind, endpoint, change, request)

    def _replaced(
        self, kind: Kind[T], endpoint: Endpoint | None, new: T, request: Request, entry: Entry[T]
    ) -> T:
        old = entry.object
        if new.metadata.uid:
            require_uid(kind, new, old.metadata.uid)
        return self._ownership.after_update(kind, endpoint, old, new, request)

    async def is_missing(self, kind: Kind[Any], request: Request) -> bool:
        await self._objects.feed.fresh()
        return self._objects.cache(kind).get(request.namespace, request.name) is None

    async def change(
        self, kind: Kind[T], endpoint: Endpoint | None, change: Change[T], request: Request
    ) -> Entry[T]:
        """Apply a change to the newest object until it wins, or the client's version is stale."""
        while True:
            target = request.target
            entry = await self._objects.current(kind, target.namespace, target.name)
            weight = request.body_weight + len(entry.tail)
            changed = await self._offload(weight, functools.partial(change, entry))
            new = await self._checked(kind, endpoint, changed, entry, request)
            try:
                return await self._store(kind, new, entry, request)
            except Raced as raced:
                await self._objects.catch_up(raced)

    async def _checked(
        self, kind: Kind[T], endpoint: Endpoint | None, new: T, entry: Entry[T], request: Request
    ) -> T:
        """Everything between the change and the store."""
        old, rules = entry.object, endpoint.rules if endpoint else kind.rules
        new = await self._admission.admit(request, kind, new, old)
        require_version(kind, new, entry)
        new = replace(new, metadata=carried_over(new.metadata, old.metadata))
        new = keep_unwritten(kind, endpoint, new, old)
        if kind.counts_generation:
            new = with_generation(new, old)
        new = rules.prepare_for_update(new, old, request)
        judge = functools.partial(_errors, kind, rules, new, old, request.now)
        weight = request.body_weight + len(entry.tail)
        errors = await self._offload(weight, judge)
        if errors:
            refuse_if_any(kind.about_kind(new.name), errors)
        for warning in rules.warnings(new, old):
            request.warn(warning)
        await self._admission.review(request, kind, new, old)
        if errors := gathered(rules.validate_transition(new, old)):
            refuse_if_any(kind.about_kind(new.name), errors)
        return new

    async def _store(self, kind: Kind[T], new: T, entry: Entry[T], request: Request) -> Entry[T]:
        if (
            new.metadata.deletion_timestamp
            and is_held(kind, entry.object)
            and not is_held(kind, new)
        ):
            return await self._finish_deletion(kind, new, entry, request)
        value = stored_form(new)
        if is_unchanged(new, value, entry) and not self._objects.is_stale(entry.key):
            return entry
        if request.options.dry_run:
            return Entry.unsaved(kind, new.with_meta(resource_version=str(entry.revision)))
        beside = await self._admission.companions(request, kind, new, entry.object)
        return await self._objects.write(kind, new, entry, request, value=value, companions=beside)

    async def _finish_deletion(
        self, kind: Kind[T], new: T, entry: Entry[T], request: Request
    ) -> Entry[T]:
        """The last finalizer is gone: remove the object."""
        if not request.options.dry_run:
            await self._objects.remove(entry, request)
        return Entry.unsaved(kind, new.with_meta(resource_version=str(entry.revision)))


def _errors(
    kind: Kind[T], rules: Strategy[Any], new: T, old: T, now: datetime
) -> tuple[FieldError, ...]:
    metadata = update_errors(
        new.metadata,
        old.metadata,
        namespaced=kind.namespaced,
        name_errors=kind.rules.name_errors_on_update,
        only_known_finalizers=kind.rules.only_known_finalizers,
    )
    errors = gathered(itertools.chain(metadata, rules.validate_update(new, old)))
    if errors or not rules.checks_times:
        return errors
    return gathered(rules.validate_times(new, old, now))


def is_held(kind: Kind[T], one: T) -> bool:
    """Whether an object that is being deleted has to stay for now."""
    return bool(one.metadata.finalizers) or kind.rules.holds_deletion(one)


def is_unchanged(new: Object, value: bytes, entry: Entry[Any]) -> bool:
    """Whether storing this value would change at most times of managed fields."""
    # Times have one length, so a difference in times alone leaves the length as it was. The value
    # has no resourceVersion.
    head, version = entry.kind.head, f',"resourceVersion":"{entry.revision}"'
    if value.startswith(head) and len(value) + len(version) != len(head) + len(entry.tail):
        return False
    tail = Entry.stored(entry.kind, entry.key, value, entry.revision).tail
    return tail == entry.tail or same_but_times(to_builtins(entry.object), to_builtins(new))


def require_name(new: Object, request: Request) -> None:
    said, name = new.metadata.name, request.target.name
    if not said:
        raise BadRequest(
            f"the name of the object ({name} based on URL) was undeterminable: "
            "name must be provided"
        )
    if said != name:
        raise BadRequest(
            f"the name of the object ({shown(said)}) does not match the name on the URL ({name})"
        )


def as_new(kind: Kind[T], new: T, request: Request) -> T:
    """The object of an update that creates it; it may not have the uid of an earlier one."""
    require_uid(kind, new, "")
    version = new.metadata.resource_version
    if not version:
        return new
    parse_version(version)
    # A dry run makes no version; the one that was sent is shown.
    return new if request.options.dry_run else new.with_meta(resource_version="")


def require_uid(kind: Kind[Any], new: Object, stored_uid: str) -> None:
    """A uid in the body must match."""
    uid = new.metadata.uid
    if uid and uid != stored_uid:
        raise Conflict(
            kind.about(new.name),
            f"Precondition failed: UID in precondition: {shown(uid)}, "
            f"UID in object meta: {stored_uid}",
        )


def require_version(kind: Kind[Any], new: Object, entry: Entry[Any]) -> None:
    version = new.metadata.resource_version
    if version in ("", "0"):
        if not kind.may_update_unconditionally:
            problem = invalid(METADATA / "resourceVersion", 0, "must be specified for an update")
            raise Invalid(kind.about(new.name), [problem])
        return
    if parse_version(version, of="") != entry.revision:
        raise Conflict(kind.about(new.name), MODIFIED)


def with_generation(new: Any, old: Any) -> Any:
    """Count a change of the spec."""
    if new.spec == old.spec:
        return new
    return new.with_meta(generation=old.metadata.generation + 1)


def carried_over(new: ObjectMeta, old: ObjectMeta) -> ObjectMeta:
    """Copy immutable metadata from the stored object."""
    return replace(
        new,
        uid=new.uid or old.uid,
        self_link="",
        creation_timestamp=old.creation_timestamp,
        generation=old.generation,
        deletion_timestamp=old.deletion_timestamp or new.deletion_timestamp,
        deletion_grace_period_seconds=(
            old.deletion_grace_period_seconds
            if new.deletion_grace_period_seconds is None
            else new.deletion_grace_period_seconds
        ),
    )
