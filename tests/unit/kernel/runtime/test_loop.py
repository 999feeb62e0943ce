"""The loop of a controller: failures, missed events, and breaking servers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.kernel.client.client import Client, ListSelection
from orchid.kernel.client.transport import Transport
from orchid.kernel.outbound.answer import Answer
from orchid.kernel.outbound.failures import CallFailed
from orchid.kernel.outbound.https_client import Pieces
from orchid.kernel.runtime import loop
from orchid.kernel.runtime.loop import Controller, Start, Sweeper, Worker
from orchid.kernel.runtime.work_queue import BackOff
from orchid.kernel.wire.meta import ObjectMeta
from tests.unit.features.beside import PATIENCE, Beside

QUICKLY = BackOff(first=0.001, longest=0.001)


class Remembering(Controller[ConfigMap]):
    """Records the objects it gets, and fails the given number of times."""

    name = "remembering"
    back_off = QUICKLY
    minds_deletions = True

    def __init__(self, client: Client) -> None:
        super().__init__(client, ListSelection(ConfigMap, "default"))
        self.seen: list[str] = []
        self.failures = 0
        self.at_once = self.most_at_once = 0
        self.changed = asyncio.Event()

    async def reconcile(self, found: ConfigMap) -> None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if self.failures:
            self.failures -= 1
            raise ZeroDivisionError("expected failure")
        self.seen.append(found.name)
        self.changed.set()

    async def gone(self, last: ConfigMap) -> None:
        self.seen.append(f"-{last.name}")
        self.changed.set()

    async def until_seen(self, *names: str, times: int = 1) -> None:
        async with asyncio.timeout(PATIENCE):
            while any(self.seen.count(name) < times for name in names):
                self.changed.clear()
                await self.changed.wait()


class Fragile:
    """A transport whose streams can be cut, and whose positions can be forgotten."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.cut = asyncio.Event()
        self.expired = False
        self.opened: list[str] = []

    async def send(self, method: str, target: str, body: bytes = b"", media: str = "") -> Answer:
        return await self._inner.send(method, target, body, media or "application/json")

    @asynccontextmanager
    async def stream(self, target: str) -> AsyncIterator[Pieces]:
        self.opened.append(target)
        if self.expired:
            self.expired = False
            yield self._gone()
            return
        async with self._inner.stream(target) as pieces:
            yield self._cuttable(pieces)

    async def _gone(self) -> AsyncIterator[bytes]:
        yield (
            b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},'
            b'"status":"Failure","message":"too old","reason":"Expired","code":410}}\n'
        )

    async def _cuttable(self, pieces: Pieces) -> AsyncIterator[bytes]:
        while True:
            piece = asyncio.ensure_future(anext(pieces))
            cut = asyncio.ensure_future(self.cut.wait())
            try:
                await asyncio.wait((piece, cut), return_when=asyncio.FIRST_COMPLETED)
            finally:
                cut.cancel()
                cut_off = piece.cancel()  # which does nothing to one that is done
            if cut_off:
                self.cut.clear()
                raise CallFailed("cut by the test")
            yield piece.result()

    async def close(self) -> None:
        await self._inner.close()


@asynccontextmanager
async def started(controller: loop.Running) -> AsyncIterator[None]:
    task = asyncio.create_task(controller.run())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


async def write(world: Beside, name: str) -> None:
    await world.admin.create(ConfigMap(metadata=ObjectMeta(name=name, namespace="default")))


@pytest.fixture
def fragile(world: Beside) -> Fragile:
    return Fragile(world.admin._transport)


@pytest.fixture
def controller(world: Beside, fragile: Fragile) -> Remembering:
    return Remembering(Client(fragile, world.admin.catalog))


async def test_object_is_looked_at_again_after_a_failure(
    world: Beside, controller: Remembering
) -> None:
    """Even an unforeseen one: it is logged, and the object comes back."""
    controller.failures = 3
    async with started(controller):
        await write(world, "a")
        await controller.until_seen("a")

    assert controller.failures == 0


async def test_a_deletion_reaches_controllers_that_handle_it(
    world: Beside, controller: Remembering
) -> None:
    """With the object as it was last."""
    async with started(controller):
        await write(world, "a")
        await controller.until_seen("a")
        await world.admin.delete(ConfigMap, "a", "default")
        await controller.until_seen("-a")


async def test_broken_stream_is_resumed_where_it_stopped(
    world: Beside, controller: Remembering, fragile: Fragile
) -> None:
    """Changes during the interruption are not lost, and nothing is listed again."""
    async with started(controller):
        await write(world, "a")
        await controller.until_seen("a")
        fragile.cut.set()
        await write(world, "b")
        await controller.until_seen("b")

    assert controller.seen.count("a") == 1
    assert len(fragile.opened) == 2
    assert fragile.opened[0] != fragile.opened[1]


async def test_forgotten_position_makes_the_controller_look_at_everything(
    world: Beside, controller: Remembering, fragile: Fragile
) -> None:
    """After a 410 it lists again; looking twice does no harm."""
    async with started(controller):
        await write(world, "a")
        await controller.until_seen("a")
        fragile.expired = True
        fragile.cut.set()
        await write(world, "b")
        await controller.until_seen("b")
        await controller.until_seen("a", times=2)


async def test_many_objects_are_worked_on_side_by_side_within_the_bound(
    world: Beside, controller: Remembering
) -> None:
    """As many as there are workers, never more."""
    names = [f"c{number}" for number in range(40)]
    for name in names:
        await write(world, name)
    async with started(controller):
        await controller.until_seen(*names)

    assert 1 < controller.most_at_once <= controller.workers


async def test_change_of_what_it_rests_on_makes_it_look_at_everything(
    world: Beside, controller: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rotated file concerns every object."""
    monkeypatch.setattr(loop, "POLL_SECONDS", 0.001)
    versions = iter(("old", "old"))
    monkeypatch.setattr(controller, "rests_on", lambda: next(versions, "new"))
    await write(world, "a")
    async with started(controller):
        await controller.until_seen("a", times=2)


async def test_controller_stops_although_it_fails_in_that_very_moment(
    world: Beside, controller: Remembering, fragile: Fragile
) -> None:
    """A failure must not hide the cancellation of the controller."""
    for attempt in range(20):
        task = asyncio.create_task(controller.run())
        await write(world, f"w{attempt}")
        await controller.until_seen(f"w{attempt}")
        fragile.expired = True
        fragile.cut.set()
        for _ in range(attempt):
            await asyncio.sleep(0)
        task.cancel()
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait([task])
        fragile.cut.clear()
        fragile.expired = False


async def test_sweep_that_fails_is_repeated(world: Beside) -> None:
    """A server that is away for a moment costs a moment."""
    done = asyncio.Event()

    class Sweeping(Sweeper):
        name = "sweeping"
        back_off = QUICKLY
        every = world.clock.ahead
        tries = 0

        async def sweep(self) -> None:
            self.tries += 1
            if self.tries < 3:
                raise CallFailed("away")
            done.set()
            await asyncio.Event().wait()

    async with started(Sweeping()), asyncio.timeout(PATIENCE):
        await done.wait()


class Restless(Worker[str, None]):
    """Has work at all times, none of which has to wait for anything."""

    name = "restless"

    async def follow(self, start: Start) -> None:
        self.queue.add("again")

    async def attend(self, key: str, value: None) -> None:
        self.queue.add(key)


async def test_work_that_never_waits_lets_others_have_their_turn() -> None:
    """A controller with endless work does not block the others."""
    task = asyncio.create_task(Restless().run())
    for _ in range(100):
        await asyncio.sleep(0)
    still_running = not task.done()
    task.cancel()
    await asyncio.wait([task])

    assert still_running
