"""The attack: to change what a controller publishes in a loop, so that it writes in a loop.

A user needs the right to write ConfigMaps of one namespace: of their own for the CA of the server,
of the system namespace for lists and bundles. The clock is that of the test.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.objects.kinds.namespace import ACTIVE, Namespace, NamespaceStatus
from orchid.features.revoking.controllers.publish_revocation_lists import PublishRevocationLists
from orchid.features.trust_bundles import stored_edition
from orchid.features.trust_bundles.controllers.publish_root_ca import PublishRootCA
from orchid.features.trust_bundles.kinds.published_bundle import PublishedBundle
from orchid.kernel.credentials.x509 import stored_list
from orchid.kernel.runtime.corrections import Corrections
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from tests.unit.features.beside import Beside, beside
from tests.unit.features.small_client import SmallClient
from tests.unit.features.trust_bundles.test_publish_bundles import publish, publisher, root, trust
from tests.unit.kernel.access.presenting import FakeClock

HOME, LIST = ORCH.system_namespace, "cluster"
HEAD = stored_list.head_name(LIST)
MINUTE = 60.0


@pytest.fixture
async def world(server_files: Any) -> AsyncIterator[Beside]:
    async with beside(server_files) as made:
        yield made


@asynccontextmanager
async def lists(world: Beside, clock: FakeClock) -> AsyncIterator[PublishRevocationLists]:
    """The publisher of revocation lists; it works only when a test says so."""
    (controller,) = world.made("revocation-list-publisher")
    assert isinstance(controller, PublishRevocationLists)
    controller._corrections = Corrections(clock)
    followers: list[asyncio.Task[None]] = []

    def start(follower: Any) -> None:
        followers.append(asyncio.create_task(follower))

    start(controller.follow(start))

    async def loaded() -> bool:
        return controller._loaded

    await world.until(loaded)
    try:
        yield controller
    finally:
        for one in followers:
            one.cancel()
        await asyncio.wait(followers)


async def is_there(world: Beside, name: str) -> bool:
    return await world.admin.find(ConfigMap, name, HOME) is not None


async def test_a_list_that_is_deleted_in_a_loop_is_signed_once_a_minute(world: Beside) -> None:
    """Ten minutes of a user who deletes it again and again."""
    clock, signed = FakeClock(), 0
    async with lists(world, clock) as controller:
        await controller.attend(LIST, None)
        for _ in range(600):
            clock.advance(1.0)
            if await is_there(world, HEAD):
                signed += 1
                await world.admin.delete(ConfigMap, HEAD, HOME)
            pause = await controller.attend(LIST, None)
            assert pause is None or pause > 0

    assert signed < 20


async def test_a_revocation_does_not_wait_for_the_end_of_a_loop(world: Beside) -> None:
    clock = FakeClock()
    async with lists(world, clock) as controller:
        await controller.attend(LIST, None)
        for _ in range(2):
            await world.admin.delete(ConfigMap, HEAD, HOME)
            await controller.attend(LIST, None)
        waiting = await is_there(world, HEAD)

        controller._versions[LIST] += 1  # as with each revocation in the list
        await controller.attend(LIST, None)

        assert not waiting
        assert await is_there(world, HEAD)


async def test_an_edition_that_is_deleted_in_a_loop_is_stored_once_a_minute(world: Beside) -> None:
    """Each one has another number, which all clients fetch; other certificates never wait."""
    clock, numbers = FakeClock(), set[int]()
    await trust(world, "roots", root(world))
    await publish(world, {"name": "roots"})
    async with publisher(world) as controller:
        controller._corrections = Corrections(clock)
        for _ in range(300):
            found = await world.admin.get(PublishedBundle, "pay")
            numbers.add(found.status.sequence)
            name = stored_edition.edition_name("pay", found.status.sequence)
            if await is_there(world, name):
                await world.admin.delete(ConfigMap, name, HOME)
            await controller.reconcile(found)
            clock.advance(1.0)

    assert len(numbers) < 15


async def test_the_ca_in_a_namespace_that_is_changed_in_a_loop_is_written_once_a_minute() -> None:
    """By somebody who may write the ConfigMaps of that namespace; another CA never waits."""
    clock, ca = FakeClock(), ["first"]
    client: Any = SmallClient()
    controller = PublishRootCA(client, lambda: ca[0], ORCH, clock)
    meta = ObjectMeta(name="team", uid="n1")
    namespace = Namespace(metadata=meta, status=NamespaceStatus(phase=ACTIVE))
    for _ in range(600):
        client.stored.clear()  # the user deletes it
        pause = await controller.reconcile(namespace)
        assert pause is None or 0 < pause <= MINUTE
        clock.advance(1.0)
    written = len(client.written("create"))

    client.stored.clear()
    ca[0] = "second"
    await controller.reconcile(namespace)

    assert written < 20
    assert len(client.written("create")) == written + 1
