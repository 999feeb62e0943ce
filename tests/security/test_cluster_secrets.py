"""The attack: a Cluster names the Secret of another one, to read a cluster of somebody else."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.features.clusters.kinds.cluster import Cluster, ClusterInventory, ClusterSpec
from orchid.features.objects.kinds.secret import Secret
from orchid.kernel.client.client import ListSelection
from orchid.kernel.wire.conditions import FALSE, TRUE
from orchid.kernel.wire.meta import ObjectMeta
from tests.security.foreign_cluster import (
    AUTHORITY,
    HOME,
    foreign_server,
    inventoried,
    issued,
    page,
    registered,
    request,
)
from tests.unit.features.beside import Beside, beside

SECRET = "cluster-prod"


@pytest.fixture
async def world(server_files: Path) -> AsyncIterator[Beside]:
    async with beside(server_files) as made:
        yield made


async def recorded(world: Beside) -> list[str]:
    """The clusters of all records."""
    records = world.admin.scan(ListSelection(IssuedCertificate))
    return sorted([one.spec.cluster async for one in records])


async def naming(world: Beside, cluster: str, secret: str) -> Cluster:
    """A Cluster of somebody who may create Clusters, and no more."""
    spec = ClusterSpec(
        issuer="https://mine.example",
        client_authorities=AUTHORITY,
        inventory=ClusterInventory(secret_name=secret),
    )
    return await world.admin.create(Cluster(metadata=ObjectMeta(name=cluster), spec=spec))


async def test_a_cluster_does_not_use_the_secret_of_another(world: Beside) -> None:
    """Its author would read the certificates of the other one, or renew its token for it."""
    async with foreign_server() as prod, world.running("cluster-inventory"):
        prod.pages = lambda _: page(request(issued("alice")))
        await registered(world, "prod", prod.kubeconfig())
        await inventoried(world, "prod", TRUE)
        await naming(world, "mine", SECRET)

        condition = await inventoried(world, "mine")

    assert (condition.status, condition.reason) == (FALSE, "CannotRead")
    assert "does not belong to this cluster" in condition.message
    assert await recorded(world) == ["prod"]


async def unowned(world: Beside) -> None:
    """The Secret of prod as an earlier version stored it; its Cluster does not exist."""
    secret = await world.admin.get(Secret, SECRET, HOME)
    await world.admin.update(secret.with_meta(owner_references=()))
    cluster = await world.admin.get(Cluster, "prod")
    await world.admin.delete_gone(Cluster, cluster)


@pytest.mark.parametrize("name", ["prod", "mine"])
async def test_the_secret_of_an_earlier_version_is_for_its_cluster(
    world: Beside, name: str
) -> None:
    """By the name that `orchid cluster add` gave it; no other Cluster gets it."""
    async with foreign_server() as prod:
        prod.pages = lambda _: page(request(issued("alice")))
        await registered(world, "prod", prod.kubeconfig())
        await unowned(world)
        await naming(world, name, SECRET)
        async with world.running("cluster-inventory"):
            condition = await inventoried(world, name)

    is_of_it = name == "prod"
    assert (condition.status == TRUE) is is_of_it
    assert await recorded(world) == (["prod"] if is_of_it else [])
