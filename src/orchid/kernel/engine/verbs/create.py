"""Create: a new object, from the request to the store.

The order is that of the function `create`. An acting kind stores nothing: its `create` does its
work and returns the response.
"""

import functools
from itertools import chain
from typing import Any, TypeVar

from orchid.kernel.base.clock import whole_seconds
from orchid.kernel.base.scheduling.batched_work import BatchedWork
from orchid.kernel.base.scheduling.offload import LARGE_BYTES, Offload
from orchid.kernel.engine.admission import Admission
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.objects import Objects, Raced
from orchid.kernel.engine.endpoint_fields import blank_unwritten
from orchid.kernel.engine.interfaces import Randomness
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.ownership import Ownership
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.errors import (
    AlreadyExists,
    BadRequest,
    NotFound,
    NoUniqueName,
    StillTerminating,
    refuse_if_any,
)
from orchid.kernel.wire.fields import FieldError, gathered
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.rules.metadata import creation_errors, dedup_owner_references
from orchid.kernel.wire.struct import replace

T = TypeVar("T", bound=Object)

NAME_ATTEMPTS = 8
LONGEST_BASE = 58  # of a generateName, so that five random characters still fit a label


class Creating:
    """The verb create."""

    def __init__(
        self,
        objects: Objects,
        admission: Admission,
        ownership: Ownership,
        randomness: Randomness,
        offload: Offload,
    ) -> None:
        self._objects = objects
        self._admission = admission
        self._ownership = ownership
        self._random = randomness
        self._offload = offload
        self._signatures = BatchedWork()

    async def create(
        self, kind: Kind[T], new: T, request: Request, *, has_owners: bool = False
    ) -> Entry[T]:
        """Create an object; one from apply already `has_owners` of its fields."""
        new = wiped(kind, new, request)
        if not has_owners:
            if new.metadata.owner_references:
                new = deduplicated(new, request)
            new = await self._owned(kind, new, request)
        generated = not new.metadata.name and new.metadata.generate_name
        for _ in range(NAME_ATTEMPTS if generated else 1):
            candidate = await self._checked(kind, new, request)
            try:
                if request.options.dry_run:
                    return await self._tried(kind, candidate)
                beside: tuple[Object, ...] = ()
                if self._admission.asked[kind].accompanying_new:
                    beside = await self._admission.companions(request, kind, candidate, None)
                return await self._objects.write(kind, candidate, None, request, companions=beside)
            except Raced as raced:
                await self._objects.catch_up(raced)
        raise self._taken(kind, candidate)

    async def act(
        self, kind: Kind[T], new: T, request: Request, *, under: bool = False
    ) -> Entry[T]:
        """Create an object of an acting kind; `under` another object its metadata is kept."""
        if kind.answers_what_was_sent or new.metadata.managed_fields:  # which are validated
            if not under:
                new = wiped(kind, new, request)
            elif new.metadata.namespace != request.target.namespace:
                new = in_namespace(kind, new, request.target.namespace)
            new = await self._owned(kind, new, request)
        if self._admission.asked[kind].admitting:
            new = await self._admission.admit(request, kind, new, None)
        if kind.acts is None:
            raise NotFound(kind.about(new.name))
        return Entry.unsaved(kind, await kind.acts.create(new, request))

    async def _owned(self, kind: Kind[T], new: T, request: Request) -> T:
        """The object with its managed fields."""
        if request.body_weight <= LARGE_BYTES:
            owners = self._ownership.after_create(kind, new, request)
        else:
            work = functools.partial(self._ownership.after_create, kind, new, request)
            owners = await self._offload(request.body_weight, work)
        return replace(new, metadata=replace(new.metadata, managed_fields=owners))

    async def _checked(self, kind: Kind[T], new: T, request: Request) -> T:
        """Everything between decoding and storing."""
        new = await self._admission.admit(request, kind, new, None)
        new = self._stamped(kind, new, request)
        if kind.creates is not None:
            new = blank_unwritten(kind, new)
        new = kind.rules.prepare_for_create(new, request)
        if request.body_weight <= LARGE_BYTES and not kind.rules.verifies_signature:
            errors = _errors(kind, new)
        elif request.body_weight <= LARGE_BYTES:
            errors = await self._signatures.run(functools.partial(_errors, kind, new))
        else:
            errors = await self._offload(request.body_weight, functools.partial(_errors, kind, new))
        if errors:
            refuse_if_any(kind.about_kind(new.name), errors)
        for warning in kind.rules.warnings(new, None):
            request.warn(warning)
        await self._admission.review(request, kind, new, None)
        if new.metadata.resource_version and not request.options.dry_run:
            refuse_set_version(new)
        return new

    def _stamped(self, kind: Kind[T], new: T, request: Request) -> T:
        """Set the name, uid, creation time and generation."""
        meta = new.metadata
        name = meta.name
        if not name and meta.generate_name:
            name = meta.generate_name[:LONGEST_BASE] + self._random.suffix()
        born = whole_seconds(request.now)
        stamped = replace(
            meta,
            name=name,
            uid=self._random.uid(),
            creation_timestamp=born,
            generation=1 if kind.counts_generation else meta.generation,
        )
        return replace(new, metadata=stamped)

    async def _tried(self, kind: Kind[T], new: T) -> Entry[T]:
        """The result of a dry run."""
        await self._objects.feed.fresh()
        existing = self._objects.cache(kind).get(new.namespace, new.name)
        if existing is not None:
            raise Raced(existing.revision)
        return Entry.unsaved(kind, new)

    def _taken(self, kind: Kind[Any], new: Object) -> Exception:
        about = kind.about(new.name)
        existing = self._objects.cache(kind).get(new.namespace, new.name)
        terminating = existing is not None and existing.meta.deletion_timestamp is not None
        if new.metadata.generate_name:
            return NoUniqueName(about, terminating=terminating)
        return StillTerminating(about) if terminating else AlreadyExists(about)


def _errors(kind: Kind[T], new: T) -> tuple[FieldError, ...]:
    rules = kind.rules
    metadata = creation_errors(
        new.metadata,
        namespaced=kind.namespaced,
        name_errors=rules.name_errors,
        only_known_finalizers=rules.only_known_finalizers,
    )
    return gathered(chain(metadata, rules.validate(new)))


def in_namespace(kind: Kind[T], new: T, namespace: str) -> T:
    """Set the namespace of the URL; the object may not contradict it."""
    namespace = agreed_namespace(kind, new, namespace)
    return new if new.metadata.namespace == namespace else new.with_meta(namespace=namespace)


def agreed_namespace(kind: Kind[Any], new: Object, namespace: str) -> str:
    """The namespace of an object: that of the URL, which it may not contradict."""
    said = new.metadata.namespace
    if not kind.namespaced:
        return ""
    if said and said != namespace:
        raise BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    return namespace


def wiped(kind: Kind[T], new: T, request: Request) -> T:
    """A new object in its namespace, without server-set fields."""
    meta, namespace = new.metadata, request.target.namespace if kind.namespaced else ""
    if meta.namespace and meta.namespace != namespace:
        namespace = agreed_namespace(kind, new, namespace)
    return replace(
        new,
        metadata=replace(
            meta,
            namespace=namespace,
            self_link="",
            uid="",
            creation_timestamp=None,
            deletion_timestamp=None,
            deletion_grace_period_seconds=None,
        ),
    )


def deduplicated(new: T, request: Request, *, patched: bool = False) -> T:
    if not new.metadata.owner_references:
        return new
    references, warning = dedup_owner_references(
        new.metadata.owner_references, after_admission=patched
    )
    if warning is None:
        return new
    request.warn(warning)
    return new.with_meta(owner_references=references)


def refuse_set_version(new: Object) -> None:
    """A new object has no version yet. Text that is no number is ignored, as in Kubernetes."""
    version = new.metadata.resource_version
    if version.isascii() and version.isdigit() and version.strip("0"):
        raise BadRequest("resourceVersion should not be set on objects to be created")
