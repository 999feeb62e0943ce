"""Delete: one object, or all selected ones.

An object with finalizers is only marked; it is removed with its last finalizer (`update.py`).
`orphan` and `foregroundDeletion` are finalizers that the propagation policy sets and
features/objects/controllers/collect_dependents.py removes.
"""

import asyncio
from typing import Annotated, Any, TypeVar

import msgspec

from orchid.kernel.base.clock import whole_seconds
from orchid.kernel.engine.admission import Admission
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.objects import Objects, Raced
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request
from orchid.kernel.engine.verbs.listing import Listing
from orchid.kernel.wire.errors import Conflict, ErrorSubject, Invalid, NotFound
from orchid.kernel.wire.fields import Path, forbidden, invalid
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.struct import Wire, describe, proto, replace

T = TypeVar("T", bound=Object)

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
PAGE = 10_000
YIELD_EVERY = 100  # objects that are deleted before other requests get a turn
IGNORE = Path() / "ignoreStoreReadErrorWithClusterBreakingPotential"


class Preconditions(Wire):
    """Conditions for a deletion."""

    uid: Annotated[str | None, proto(1), describe("The required uid.")] = None
    resource_version: Annotated[str | None, proto(2), describe("The required resourceVersion.")] = (
        None
    )


class DeleteOptions(Wire):
    """Options of a deletion, from the body or from the query."""

    kind: Annotated[str, describe("The kind of the document.")] = ""
    api_version: Annotated[str, describe("The API version of the document.")] = ""
    grace_period_seconds: Annotated[
        int | None, proto(1), describe("The grace period in seconds.")
    ] = None
    preconditions: Annotated[
        Preconditions | None, proto(2), describe("Conditions for the deletion.")
    ] = None
    orphan_dependents: Annotated[
        bool | None, proto(3), describe("Deprecated in favour of propagationPolicy.")
    ] = None
    propagation_policy: Annotated[
        str | None,
        proto(4),
        describe("The deletion of dependents: Foreground, Background or Orphan."),
    ] = None
    dry_run: Annotated[tuple[str, ...], proto(5), describe("With `All`, nothing is stored.")] = ()
    ignore_store_read_error_with_cluster_breaking_potential: Annotated[
        bool | None,
        proto(6),
        describe("Remove a stored object that cannot be decoded, without any checks."),
    ] = None

    @property
    def orphans(self) -> bool:
        """Whether dependents are to stay."""
        return bool(self.orphan_dependents) or self.propagation_policy == "Orphan"

    @property
    def ignores_read_errors(self) -> bool:
        return bool(self.ignore_store_read_error_with_cluster_breaking_potential)


class Deleted(msgspec.Struct, frozen=True):
    """The result: removed, or only marked because finalizers are left."""

    entry: Entry[Any]
    gone: bool


class Deleting:
    """The verbs delete and deletecollection."""

    def __init__(self, objects: Objects, admission: Admission, listing: Listing) -> None:
        self._objects = objects
        self._admission = admission
        self._listing = listing

    async def delete(
        self, kind: Kind[T], name: str, options: DeleteOptions, request: Request
    ) -> Deleted:
        while True:
            entry = await self._objects.current(kind, request.namespace, name)
            require_preconditions(kind, options, entry)
            if kind.keeps_dependents and options.orphans:
                text = "what it owns is deleted with it, and is of no use to another object"
                problem = forbidden(Path() / "propagationPolicy", text)
                raise Invalid(kind.about_kind(name), [problem])
            await self._admission.review(request, kind, None, entry.object)
            try:
                return await self._delete(kind, entry, options, request)
            except Raced as raced:
                await self._objects.catch_up(raced)

    async def delete_unreadable(self, kind: Kind[Any], request: Request) -> None:
        """Remove a stored object that cannot be decoded, without any hooks."""
        while True:
            try:
                if await self._objects.remove_unreadable(kind, request.namespace, request.name):
                    return
            except Raced as raced:
                await self._objects.catch_up(raced)
            else:
                text = "is only for objects that cannot be read; try again without it"
                raise Invalid(kind.about(request.name), [invalid(IGNORE, True, text)])

    async def delete_collection(
        self, kind: Kind[T], options: DeleteOptions, request: Request
    ) -> None:
        """Delete every selected object, page by page; stops at the first failure."""
        query = request.options
        while True:
            page = await self._listing.page(
                kind, request.with_options(query._replace(limit=query.limit or PAGE))
            )
            for count, entry in enumerate(page.entries):
                await self._delete_listed(kind, entry, options, request)
                if count % YIELD_EVERY == 0:
                    await asyncio.sleep(0)  # a dry run never awaits
            if query.limit or not page.continue_:
                return
            query = query._replace(
                continue_=page.continue_, resource_version="", resource_version_match=""
            )

    async def _delete_listed(
        self, kind: Kind[T], entry: Entry[T], options: DeleteOptions, request: Request
    ) -> None:
        meta = entry.meta
        single = request.at(meta.namespace, meta.name)
        try:
            await self.delete(kind, meta.name, options, single)
        except NotFound:
            return  # another client was faster, with the same result

    async def _delete(
        self, kind: Kind[T], entry: Entry[T], options: DeleteOptions, request: Request
    ) -> Deleted:
        old = entry.object
        finalizers = adjusted_finalizers(old.metadata.finalizers, options)
        if kind.keeps_dependents:
            finalizers = tuple(finalizer for finalizer in finalizers if finalizer != ORPHAN)
        if kind.rules.holds_deletion(old) or finalizers:
            marked = kind.rules.prepare_for_deletion(
                replace(old, metadata=_marked(old.metadata, finalizers, request)), old, request
            )
            if marked == old:
                return Deleted(entry, gone=False)
            if request.options.dry_run:
                return Deleted(Entry.unsaved(kind, marked), gone=False)
            return Deleted(await self._objects.write(kind, marked, entry, request), gone=False)
        if request.options.dry_run:
            return Deleted(entry, gone=True)
        revision = await self._objects.remove(entry, request)
        return Deleted(entry.at(revision), gone=True)


def _marked(meta: ObjectMeta, finalizers: tuple[str, ...], request: Request) -> ObjectMeta:
    now, before = whole_seconds(request.now), meta.deletion_timestamp
    first = before is None
    return replace(
        meta,
        finalizers=finalizers,
        deletion_timestamp=now if before is None or before > now else before,
        deletion_grace_period_seconds=0,
        generation=meta.generation + 1 if first and meta.generation > 0 else meta.generation,
    )


def adjusted_finalizers(finalizers: tuple[str, ...], options: DeleteOptions) -> tuple[str, ...]:
    """Set or remove the two finalizers of a propagation policy."""
    policy = options.propagation_policy
    if policy is None and options.orphan_dependents is None:
        return finalizers
    requested = ""
    if options.orphans:
        requested = ORPHAN
    elif policy == "Foreground":
        requested = FOREGROUND
    kept = tuple(f for f in finalizers if f == requested or f not in (ORPHAN, FOREGROUND))
    return kept if not requested or requested in kept else (*kept, requested)


def require_preconditions(kind: Kind[Any], options: DeleteOptions, entry: Entry[Any]) -> None:
    preconditions = options.preconditions
    if preconditions is None:
        return
    about = ErrorSubject(kind.group, kind.name, entry.meta.name)
    if preconditions.uid is not None and preconditions.uid != entry.meta.uid:
        raise Conflict(
            about,
            f"the UID in the precondition ({preconditions.uid}) does not match the UID in record "
            f"({entry.meta.uid}). The object might have been deleted and then recreated",
        )
    if preconditions.resource_version is not None and preconditions.resource_version != str(
        entry.revision
    ):
        raise Conflict(
            about,
            f"the ResourceVersion in the precondition ({preconditions.resource_version}) does not "
            f"match the ResourceVersion in record ({entry.revision}). "
            "The object might have been modified",
        )
