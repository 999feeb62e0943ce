"""Garbage collection: owner references and propagation policies.

Reads    the metadata of every kind
Deletes  objects whose owners are all gone (background), or wait for them (foreground)
Writes   removes references to missing owners from objects with other owners; removes the
         finalizers `foregroundDeletion` and `orphan` when the dependents are processed
Never    trusts its index: before it deletes anything, object and owners are read again

The index has dependents and waiting owners only: most objects have no owner.
"""

import contextlib
from typing import Any

import msgspec

from orchid.features.objects.kinds.event import Event
from orchid.kernel.client.client import ADDED, DELETED, LISTED, Client, ListSelection, WatchedChange
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.loop import Start, Worker
from orchid.kernel.wire.errors import Conflict, NotFound
from orchid.kernel.wire.meta import Object, OwnerReference, Time
from orchid.kernel.wire.policy_rules import READ, may_record_events, rule
from orchid.kernel.wire.struct import Wire

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
BACKGROUND_POLICY, FOREGROUND_POLICY, ORPHAN_POLICY = "Background", "Foreground", "Orphan"


class _SeenMeta(Wire):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    deletion_timestamp: Time | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class _Seen(Wire):
    """The part of an object that matters here; the rest is not decoded."""

    metadata: _SeenMeta


class DependencyNode(msgspec.Struct, frozen=True):
    """An object, identified by its uid."""

    type: type[Object]
    namespace: str
    name: str
    uid: str


class Owners(msgspec.Struct):
    """The state of an object's owners."""

    there: list[OwnerReference] = msgspec.field(default_factory=list)
    gone: list[OwnerReference] = msgspec.field(default_factory=list)
    waiting: list[OwnerReference] = msgspec.field(default_factory=list)


class Notes:
    """Index of dependents and owners, by uid."""

    def __init__(self) -> None:
        self._owners: dict[DependencyNode, tuple[OwnerReference, ...]] = {}
        self._dependents: dict[str, dict[DependencyNode, None]] = {}
        self.waiting: dict[
            str, DependencyNode
        ] = {}  # owners that go when their dependents have gone

    def clear(self) -> None:
        for notes in (self._owners, self._dependents, self.waiting):
            notes.clear()

    def owners(self, node: DependencyNode) -> tuple[OwnerReference, ...]:
        return self._owners.get(node, ())

    def put(self, node: DependencyNode, owners: tuple[OwnerReference, ...]) -> None:
        """Replace the owners of an object in the index."""
        self.drop(node)
        if owners:
            self._owners[node] = owners
        for owner in owners:
            self._dependents.setdefault(owner.uid, {})[node] = None

    def drop(self, node: DependencyNode) -> tuple[OwnerReference, ...]:
        owners = self._owners.pop(node, ())
        for owner in owners:
            others = self._dependents.get(owner.uid, {})
            others.pop(node, None)
            if not others:
                self._dependents.pop(owner.uid, None)
        return owners

    def dependents(self, uid: str) -> list[DependencyNode]:
        return list(self._dependents.get(uid, ()))

    def is_blocked(self, uid: str) -> bool:
        """Whether an owner must still wait for its dependents.

        Owners may own each other in a circle and would wait for each other for ever; so an owner
        that waits, directly or indirectly, for this one does not block it.
        """
        blocking = self._blocking(uid)
        if any(dependent.uid not in self.waiting for dependent in blocking):
            return True
        return any(not self._waits_for(dependent, uid) for dependent in blocking)

    def _waits_for(self, node: DependencyNode, uid: str) -> bool:
        reached = {node.uid}
        ahead = [node.uid]
        while ahead:
            for dependent in self._blocking(ahead.pop()):
                if dependent.uid == uid:
                    return True
                if dependent.uid in self.waiting and dependent.uid not in reached:
                    reached.add(dependent.uid)
                    ahead.append(dependent.uid)
        return False

    def _blocking(self, uid: str) -> list[DependencyNode]:
        """The dependents that an owner has to wait for.

        An object outside of the owner's namespace cannot depend on it, so it would never be deleted
        with the owner.
        """
        owner = self.waiting.get(uid)
        home = owner.namespace if owner is not None else ""
        return [
            node
            for node in self._dependents.get(uid, ())
            if any(
                reference.uid == uid and reference.block_owner_deletion
                for reference in self._owners[node]
            )
            and home in ("", node.namespace)
        ]


class CollectDependents(Worker[DependencyNode, None]):
    name = "garbagecollector"
    workers = 8

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client
        self._notes = Notes()
        # Events have no owners, and there are many of them.
        self._kinds: tuple[Any, ...] = tuple(
            kind for kind in client.catalog.stored if kind.type is not Event
        )

    def shown(self, key: DependencyNode) -> str:
        return f"{key.type.__name__} {key.namespace}/{key.name}"

    # -- index -----------------------------------------------------------------------------

    async def follow(self, start: Start) -> None:
        self._notes.clear()
        for kind in self._kinds:
            start(self._follow(kind.type))

    async def _follow(self, type_: type[Object]) -> None:
        selection: ListSelection[Any] = ListSelection(type_, read_as=_Seen)
        async with contextlib.aclosing(self._client.follow(selection)) as batches:
            async for batch in batches:
                for event in batch:
                    self._note(type_, event)

    def _note(self, type_: type[Object], event: WatchedChange[Any]) -> None:
        if event.type in (LISTED, ADDED) and not _may_matter(bytes(event.data)):
            return  # the index has nothing about it that could have changed
        meta: _SeenMeta = event.object.metadata
        node = DependencyNode(type_, meta.namespace, meta.name, meta.uid)
        if event.type == DELETED:
            self._note_deletion(node)
            return
        before = self._notes.owners(node)
        if before != meta.owner_references:
            self._notes.put(node, meta.owner_references)
            self._look_at_waiting(before)
            if meta.owner_references:
                self.queue.add(node)
        if meta.deletion_timestamp is None:
            return
        if FOREGROUND in meta.finalizers:
            self._notes.waiting[meta.uid] = node
            self.queue.add(node)
        elif ORPHAN in meta.finalizers:
            self.queue.add(node)

    def _note_deletion(self, node: DependencyNode) -> None:
        self._notes.waiting.pop(node.uid, None)
        owners = self._notes.drop(node)
        self.queue.drop(node)
        for dependent in self._notes.dependents(node.uid):
            self.queue.add(dependent)
        self._look_at_waiting(owners)

    def _look_at_waiting(self, owners: tuple[OwnerReference, ...]) -> None:
        """Check the owners again that waited for an object which is gone or has changed owners."""
        for owner in owners:
            waiting = self._notes.waiting.get(owner.uid)
            if waiting is not None:
                self.queue.add(waiting)

    # -- work ------------------------------------------------------------------------------

    async def attend(self, key: DependencyNode, value: None) -> None:
        node = key
        live = await self._client.find(node.type, node.name, node.namespace)
        if live is None or live.metadata.uid != node.uid:
            self._note_deletion(node)
            return
        meta = live.metadata
        if meta.deletion_timestamp is not None:
            if ORPHAN in meta.finalizers:
                await self._orphan(node, live)
            elif FOREGROUND in meta.finalizers:
                await self._wait_for_dependents(node, live)
            return
        if meta.owner_references:
            await self._judge(node, live)

    async def _judge(self, node: DependencyNode, live: Object) -> None:
        owners = await self._owners(node, live)
        if owners.there:
            lost = {owner.uid for owner in (*owners.gone, *owners.waiting)}
            if lost:
                await self._release(node, live, lost)
        elif owners.waiting and self._notes.dependents(node.uid):
            # Its own dependents are deleted first, so that the owner above waits for all of them.
            await self._delete(node, FOREGROUND_POLICY)
        elif owners.waiting or owners.gone:
            await self._delete(node, _own_policy(live))

    async def _owners(self, node: DependencyNode, live: Object) -> Owners:
        owners = Owners()
        for reference in live.metadata.owner_references:
            kind = self._client.catalog.named(reference.api_version, reference.kind)
            if kind is None or (kind.namespaced and not node.namespace):
                owners.there.append(reference)  # unknown kind, so nothing is deleted because of it
                continue
            namespace = node.namespace if kind.namespaced else ""
            owner = await self._client.find(kind.type, reference.name, namespace)
            if owner is None or owner.metadata.uid != reference.uid:
                owners.gone.append(reference)
            elif owner.metadata.deletion_timestamp and FOREGROUND in owner.metadata.finalizers:
                owners.waiting.append(reference)
            else:
                owners.there.append(reference)
        return owners

    async def _wait_for_dependents(self, node: DependencyNode, live: Object) -> None:
        for dependent in self._notes.dependents(node.uid):
            if dependent.uid not in self._notes.waiting:  # those are queued by themselves
                self.queue.add(dependent)
        if not self._notes.is_blocked(node.uid):
            await self._unfinalize(node, live, FOREGROUND)

    async def _orphan(self, node: DependencyNode, live: Object) -> None:
        """Remove the owner from every dependent, then let the owner be deleted.

        The index may lag behind, and a missed dependent would be deleted later because its owner is
        gone. So all objects are read.
        """
        for kind in self._kinds:
            if node.namespace and not kind.namespaced:
                continue
            selection: ListSelection[Any] = ListSelection(kind.type, node.namespace)
            async for object_ in self._client.scan(selection):
                if any(owner.uid == node.uid for owner in object_.metadata.owner_references):
                    meta = object_.metadata
                    dependent = DependencyNode(kind.type, meta.namespace, meta.name, meta.uid)
                    await self._release(dependent, object_, {node.uid})
        await self._unfinalize(node, live, ORPHAN)

    async def _release(self, node: DependencyNode, live: Object, owners: set[str]) -> None:
        """Remove references to these owners from an object."""
        kept = [one for one in live.metadata.owner_references if one.uid not in owners]
        await self._change(node, live, {"ownerReferences": kept or None})

    async def _unfinalize(self, node: DependencyNode, live: Object, finalizer: str) -> None:
        kept = [one for one in live.metadata.finalizers if one != finalizer]
        await self._change(node, live, {"finalizers": kept or None})
        self._notes.waiting.pop(node.uid, None)

    async def _change(self, node: DependencyNode, live: Object, change: dict[str, Any]) -> None:
        meta = {"uid": node.uid, "resourceVersion": live.metadata.resource_version, **change}
        with contextlib.suppress(NotFound):
            await self._client.patch(node.type, node.name, node.namespace, {"metadata": meta})

    async def _delete(self, node: DependencyNode, policy: str) -> None:
        with contextlib.suppress(NotFound, Conflict):
            await self._client.delete(
                node.type, node.name, node.namespace, uid=node.uid, propagation=policy
            )


def _own_policy(live: Object) -> str:
    """The propagation policy in an object's finalizers, or ""."""
    if ORPHAN in live.metadata.finalizers:
        return ORPHAN_POLICY
    if FOREGROUND in live.metadata.finalizers:
        return FOREGROUND_POLICY
    return BACKGROUND_POLICY


def _may_matter(data: bytes) -> bool:
    return b'"ownerReferences"' in data or b'"finalizers"' in data


CONTROLLER = ControllerDeclaration(
    name="garbagecollector",
    long_name="garbage-collector-controller",
    account="generic-garbage-collector",
    rights=lambda naming: (
        rule(("delete", "patch", "update", *READ), "*", ("*",)),
        may_record_events(naming),
    ),
    build=lambda client, context, events: CollectDependents(client),
)
