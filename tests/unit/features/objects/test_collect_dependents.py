"""The garbage collector deletes what it should, and nothing else.

test_housekeeping.py has complete scenarios; this file has the cases in which deleting would be a
mistake.
"""

from typing import Any

import pytest

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.objects.controllers.collect_dependents import (
    CollectDependents,
    DependencyNode,
    Notes,
)
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.rights.kinds.role import ClusterRole
from orchid.kernel.client.client import Client
from orchid.kernel.wire.meta import Object, ObjectMeta, OwnerReference
from tests.unit.features.beside import Beside

COLLECTOR = "garbagecollector"
HELD = ("example.com/hold",)


def owned_by(owner: Object, *, blocks: bool | None = None, uid: str = "") -> OwnerReference:
    return OwnerReference(
        api_version="v1",
        kind=type(owner).__name__,
        name=owner.name,
        uid=uid or owner.metadata.uid,
        block_owner_deletion=blocks,
    )


async def config(
    world: Beside, name: str, *owners: OwnerReference, finalizers: tuple[str, ...] = ()
) -> ConfigMap:
    meta = ObjectMeta(
        name=name, namespace="default", owner_references=owners, finalizers=finalizers
    )
    return await world.admin.create(ConfigMap(metadata=meta))


async def cluster_role(world: Beside, name: str, *owners: OwnerReference) -> ClusterRole:
    return await world.admin.create(
        ClusterRole(metadata=ObjectMeta(name=name, owner_references=owners))
    )


def node_of(one: Object) -> DependencyNode:
    meta = one.metadata
    return DependencyNode(type(one), meta.namespace, meta.name, meta.uid)


class StaleClient:
    """The client of a collector that reads an object just before another takes its name."""

    def __init__(self, client: Client, stale: Object) -> None:
        self._client = client
        self._stale = stale
        self.deleted: list[tuple[str, str]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def find(self, type_: type[Object], name: str, namespace: str = "") -> Object | None:
        if name == self._stale.name:
            return self._stale
        return await self._client.find(type_, name, namespace)

    async def delete(self, type_: type[Object], name: str, namespace: str, **more: Any) -> None:
        self.deleted.append((name, more.get("uid", "")))
        await self._client.delete(type_, name, namespace, **more)


async def test_cluster_scoped_object_with_an_owner_in_a_namespace_stays(world: Beside) -> None:
    """Such an owner cannot be looked up: the reference does not say in which namespace."""
    gone = await config(world, "gone")
    await world.admin.delete(ConfigMap, "gone", "default")
    await cluster_role(world, "kept", owned_by(gone))
    await config(world, "child", owned_by(gone))
    async with world.running(COLLECTOR):
        await world.until_gone(ConfigMap, "child", "default")

    kept = node_of(await world.admin.get(ClusterRole, "kept"))
    collector = CollectDependents(world.admin)
    await collector.attend(kept, None)
    found = await world.admin.get(ClusterRole, "kept")
    assert found.metadata.owner_references == (owned_by(gone),)


async def test_cluster_scoped_object_with_a_cluster_scoped_owner_goes_with_it(
    world: Beside,
) -> None:
    """So that the test above is about the namespace."""
    owner = await cluster_role(world, "owner")
    reference = OwnerReference(
        api_version=world.admin.catalog.of(ClusterRole).api_version,
        kind="ClusterRole",
        name="owner",
        uid=owner.metadata.uid,
    )
    await cluster_role(world, "child", reference)
    async with world.running(COLLECTOR):
        await world.admin.delete(ClusterRole, "owner")
        await world.until_gone(ClusterRole, "child")


async def test_owner_waits_only_for_dependents_that_block_its_deletion(world: Beside) -> None:
    """A dependent without blockOwnerDeletion is deleted as well, and not waited for."""
    owner = await config(world, "owner")
    await config(world, "child", owned_by(owner, blocks=False), finalizers=HELD)
    async with world.running(COLLECTOR):
        await world.admin.delete(ConfigMap, "owner", "default", propagation="Foreground")
        await world.until_gone(ConfigMap, "owner", "default")
        await world.until_like(
            ConfigMap,
            "child",
            "default",
            condition=lambda found: found.metadata.deletion_timestamp is not None,
        )


async def test_owner_does_not_wait_for_an_object_outside_its_namespace(world: Beside) -> None:
    """It cannot depend on the owner, is not deleted for it, and would hold it up for ever."""
    owner = await config(world, "owner")
    await cluster_role(world, "kept", owned_by(owner, blocks=True))
    async with world.running(COLLECTOR):
        await world.admin.delete(ConfigMap, "owner", "default", propagation="Foreground")
        await world.until_gone(ConfigMap, "owner", "default")

    assert await world.admin.find(ClusterRole, "kept")


@pytest.mark.parametrize("blocks", [True, False, None])
def test_blocking_depends_on_the_reference_to_that_owner(blocks: bool | None) -> None:
    """A dependent may block the deletion of one of its owners and not of another."""
    notes = Notes()
    dependent = DependencyNode(ConfigMap, "default", "child", "c")
    first = OwnerReference(uid="1", block_owner_deletion=blocks)
    second = OwnerReference(uid="2", block_owner_deletion=True)

    notes.put(dependent, (first, second))

    assert notes.is_blocked("1") is (blocks is True)
    assert notes.is_blocked("2")


async def test_namesake_of_a_dependent_is_not_deleted_in_its_place(world: Beside) -> None:
    """Between reading an object and deleting it, another may take its name: the uid decides."""
    gone = await config(world, "gone")
    await world.admin.delete(ConfigMap, "gone", "default")
    child = await config(world, "child", owned_by(gone))
    await world.admin.delete(ConfigMap, "child", "default")
    namesake = await config(world, "child")
    client: Any = StaleClient(world.admin, child)

    await CollectDependents(client).attend(node_of(child), None)

    assert client.deleted == [("child", child.metadata.uid)]
    found = await world.admin.get(ConfigMap, "child", "default")
    assert found.metadata.uid == namesake.metadata.uid


async def test_incarnation_that_is_gone_is_forgotten_and_its_dependents_are_looked_at(
    world: Beside,
) -> None:
    """A namesake of an owner is not the owner, whatever it says of itself."""
    owner = await config(world, "owner")
    child = await config(world, "child", owned_by(owner))
    await world.admin.delete(ConfigMap, "owner", "default")
    namesake = await config(world, "owner", finalizers=HELD)
    collector = CollectDependents(world.admin)
    collector._notes.put(node_of(child), child.metadata.owner_references)

    await collector.attend(node_of(owner), None)

    assert len(collector.queue) == 1
    assert await collector.queue.take() == (node_of(child), None)
    assert (await world.admin.get(ConfigMap, "owner", "default")) == namesake


async def test_owner_with_the_same_name_and_another_uid_is_no_owner(world: Beside) -> None:
    """An account that was made again does not keep what belonged to the one before."""
    account = await world.account("app")
    await config(world, "child", owned_by(account, uid="of-an-earlier-one"))
    async with world.running(COLLECTOR):
        await world.until_gone(ConfigMap, "child", "default")

    assert await world.admin.find(ServiceAccount, "app", "default")
