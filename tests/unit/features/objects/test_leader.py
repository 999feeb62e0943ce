"""One leader at a time, with time that the test moves."""

import asyncio
from datetime import UTC, datetime

import pytest

from orchid.features.objects.kinds.lease import Lease
from orchid.features.objects.leader import Leader, Terms
from orchid.kernel.client.client import Client
from orchid.kernel.wire.errors import Conflict
from orchid.kernel.wire.naming import ORCH
from tests.unit.features.beside import PATIENCE, Beside

HOME, NAME = ORCH.system_namespace, ORCH.controller_lease


class Time:
    """Sleeping moves the hand; nobody waits."""

    def __init__(self) -> None:
        self.hand = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return self.hand

    async def sleep(self, seconds: float) -> None:
        self.hand += seconds
        await asyncio.sleep(0)


def candidate(world: Beside, identity: str, time: Time, client: Client | None = None) -> Leader:
    return Leader(
        client or world.server.clients("leader-election"),
        time,
        namespace=HOME,
        name=NAME,
        identity=identity,
        sleep=time.sleep,
    )


async def test_only_one_of_two_holds_the_lease(world: Beside) -> None:
    """The second waits while the first renews."""
    time = Time()
    first, second = candidate(world, "one", time), candidate(world, "two", time)

    assert await first.try_to_hold()
    for _ in range(20):
        time.hand += 2
        assert await first.try_to_hold()
        assert not await second.try_to_hold()


async def test_silent_leader_is_succeeded_in_less_than_fifteen_seconds(world: Beside) -> None:
    """Judged by the successor's own clock, and written down as a transition."""
    time = Time()
    assert await candidate(world, "one", time).try_to_hold()
    second = candidate(world, "two", time)
    began = time.hand

    while not await second.try_to_hold():
        await time.sleep(Terms().retry)

    lease = await world.admin.get(Lease, NAME, HOME)
    assert time.hand - began < 15
    assert lease.spec.holder_identity == "two"
    assert lease.spec.lease_transitions == 1


async def test_lease_that_was_given_back_is_free_at_once(world: Beside) -> None:
    """A leader that ends in order keeps nobody waiting."""
    time = Time()
    first, second = candidate(world, "one", time), candidate(world, "two", time)
    working = asyncio.Event()

    async def work() -> None:
        working.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(first.run(work))
    async with asyncio.timeout(PATIENCE):
        await working.wait()
    assert not await second.try_to_hold()
    task.cancel()
    await asyncio.wait([task])

    assert await second.try_to_hold()


async def test_leader_that_lost_its_lease_stops_its_work(world: Beside) -> None:
    """Two leaders at once would undo each other's work."""
    time = Time()
    first, thief = candidate(world, "one", time), candidate(world, "two", Time())
    started, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(first.run(work))
    async with asyncio.timeout(PATIENCE):
        await started.wait()
        while True:
            lease = await world.admin.get(Lease, NAME, HOME)
            try:
                await world.admin.update(
                    lease.__class__(metadata=lease.metadata, spec=thief._claim(lease.spec))
                )
                break
            except Conflict:
                continue  # a renewal was faster
        await ended.wait()
    task.cancel()
    await asyncio.wait([task])

    assert (await world.admin.get(Lease, NAME, HOME)).spec.holder_identity == "two"


class SlowAnswers:
    """A way to the server on which every renewal takes long to be answered."""

    def __init__(self, inner: Client, time: Time, seconds: float) -> None:
        self._inner = inner
        self._time = time
        self._seconds = seconds

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def update(self, lease: Lease) -> None:
        await self._inner.update(lease)
        self._time.hand += self._seconds


async def test_slow_answer_does_not_prolong_a_lease(world: Beside) -> None:
    """The lease counts from the renewal, not from its response, or two could lead."""
    time = Time()
    way = world.server.clients("leader-election")
    assert await candidate(world, "one", time).try_to_hold()
    slow = candidate(world, "one", time, SlowAnswers(way, time, 6.0))

    async def work() -> None:
        await asyncio.Event().wait()

    assert await slow.try_to_hold()
    asked = time.hand - 6.0
    async with asyncio.timeout(PATIENCE):
        await slow._lead(work)

    assert time.hand - asked < Terms().duration


async def test_same_candidate_goes_on_after_a_crash(world: Beside) -> None:
    """The only server of an embedded store does not wait for itself."""
    assert await candidate(world, "one", Time()).try_to_hold()

    assert await candidate(world, "one", Time()).try_to_hold()


async def test_of_two_that_try_at_once_one_loses(world: Beside) -> None:
    """The version of the Lease decides, not the order of arrival."""
    time = Time()
    first, second = candidate(world, "one", time), candidate(world, "two", time)
    await first.try_to_hold()
    await first._give_back()

    held = await asyncio.gather(first.try_to_hold(), second.try_to_hold(), return_exceptions=True)

    assert sum(one is True for one in held) == 1 or any(isinstance(one, Conflict) for one in held)
    assert (await world.admin.get(Lease, NAME, HOME)).spec.holder_identity in ("one", "two")


@pytest.mark.parametrize("identity", ["one"])
async def test_lease_shows_who_leads_and_since_when(world: Beside, identity: str) -> None:
    """`get leases` shows the holder."""
    await candidate(world, identity, Time()).try_to_hold()

    lease = await world.admin.get(Lease, NAME, HOME)

    assert lease.spec.holder_identity == identity
    assert lease.spec.acquire_time == lease.spec.renew_time
    assert lease.spec.lease_duration_seconds == 8


async def test_a_renewal_without_a_response_has_a_reason_in_the_log(
    world: Beside, caplog: pytest.LogCaptureFixture
) -> None:
    """A store on a full disk does not answer, and an operator looks for the word after `why`."""
    leader = candidate(world, "one", Time())
    assert await leader.try_to_hold()

    assert not await leader._renewed(-100.0)  # so no time is left

    assert [one.__dict__["why"] for one in caplog.records] == ["no response in time"]
