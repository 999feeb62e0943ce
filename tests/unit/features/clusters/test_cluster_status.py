"""The calls of a cluster get into its status, of that cluster alone, and are counted once."""

import logging
from datetime import timedelta
from typing import Any

import pytest

from orchid.features.clusters.calls import ClusterCalls
from orchid.features.clusters.cluster_status import ATTEMPTS, ClusterStatusWriter
from orchid.features.clusters.kinds.cluster import CONNECTED, Cluster, ClusterStatus
from orchid.kernel.wire.conditions import is_true
from orchid.kernel.wire.errors import ApiError, Conflict, ErrorSubject, Forbidden, NotFound
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.struct import replace
from tests.unit.features.small_client import SmallClient
from tests.unit.kernel.access.presenting import FakeClock

ABOUT = ErrorSubject("identity.orch.io", "clusters", "prod")


class Client(SmallClient):
    """A client whose first writes of a status fail."""

    def __init__(self, *stored: Cluster) -> None:
        super().__init__(*stored)
        self.failures: list[ApiError] = []

    async def get(self, type_: type[Cluster], name: str) -> Any:
        found = await self.find(type_, name)
        if found is None:
            raise NotFound(ABOUT)
        return found

    async def update_status(self, new: Any) -> None:
        if self.failures:
            raise self.failures.pop()
        await super().update_status(new)


class World:
    def __init__(self, *stored: Cluster) -> None:
        self.client, self.clock = Client(*stored), FakeClock()
        self.calls = ClusterCalls(self.clock)
        client: Any = self.client
        self.writer = ClusterStatusWriter(self.calls, client, self.clock)

    def call(self, name: str = "prod", uid: str = "u1", *, denied: bool = False) -> None:
        self.calls.answered(cluster(name, uid).metadata, self.clock.monotonic(), denied=denied)

    def status(self, name: str = "prod") -> ClusterStatus:
        found: Any = self.client.stored[Cluster, "", name]
        status: ClusterStatus = found.status
        return status


def cluster(name: str = "prod", uid: str = "u1") -> Cluster:
    return Cluster(metadata=ObjectMeta(name=name, uid=uid))


async def test_calls_are_added_to_those_before_and_counted_once() -> None:
    """Another server may have counted some, and a later call."""
    world = World(cluster())
    for denied in (True, False, False):
        world.call(denied=denied)
    world.calls.malformed(cluster().metadata)
    await world.writer.write()
    await world.writer.write()
    world.call()
    later = world.status()
    await world.writer.write()

    assert (later.calls, later.denials, later.malformed) == (3, 1, 1)
    assert (world.status().calls, world.status().denials) == (4, 1)
    assert is_true(world.status().conditions, CONNECTED)


async def test_the_last_call_is_when_it_came_and_never_moves_back() -> None:
    world = World(cluster())
    began = world.clock.now()
    world.call()
    world.clock.advance(30)
    await world.writer.write()
    assert world.status().last_call == began

    future = began + timedelta(hours=1)
    world.client.stored[Cluster, "", "prod"] = replace(
        cluster(), status=replace(world.status(), last_call=future)
    )
    world.call()
    await world.writer.write()
    assert world.status().last_call == future


async def test_the_calls_of_an_earlier_cluster_of_the_name_are_not_those_of_the_next() -> None:
    world = World(cluster(uid="u2"))
    world.call(uid="u1")

    await world.writer.write()

    assert world.client.writes == []


async def test_what_another_server_wrote_meanwhile_is_kept() -> None:
    """The status is read again, five times at most."""
    world = World(cluster())
    world.call()
    world.client.failures = [Conflict(ABOUT, "it changed")] * (ATTEMPTS - 1)

    await world.writer.write()

    assert world.status().calls == 1


@pytest.mark.parametrize(
    "failures",
    [
        [Conflict(ABOUT, "it changed")] * ATTEMPTS,
        [Forbidden(ABOUT, "no")],
    ],
    ids=["conflicts", "forbidden"],
)
async def test_one_that_cannot_be_written_does_not_keep_the_others(
    failures: list[ApiError], caplog: pytest.LogCaptureFixture
) -> None:
    """Nor one that was removed; the log names it."""
    world = World(cluster("a"), cluster("b"))
    world.client.failures = failures
    for name in ("removed", "a", "b"):
        world.call(name)

    with caplog.at_level(logging.WARNING):
        await world.writer.write()

    assert world.status("b").calls == 1
    assert world.status("a").calls == 0
    assert [record.__dict__["cluster"] for record in caplog.records] == ["a"]


async def test_what_was_counted_is_written_when_the_server_stops() -> None:
    world = World(cluster())
    world.call()

    await world.writer.leave()

    assert world.status().calls == 1
