"""The parent starts what it is asked to, keeps it running, and ends it in order."""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from orchid.kernel.settings.checking import Settings, check
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.workers import parent as parent_module
from orchid.kernel.workers.parent import Parent, WorkerRole, roles
from tests.settings import written

SMALL_WORKER = Path(__file__).with_name("small_worker.py")


def settings_for(workers: int = 2, controllers: Sequence[str] = (), grace: str = "5s") -> Settings:
    given = written(workers=workers, controllers=tuple(controllers), shutdown_grace=grace)
    return check(given)


class Running:
    """A parent at work, with small workers on a socket of its own."""

    def __init__(self, mode: str, settings: Settings) -> None:
        bound = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = bound.getsockname()[1]
        program = (sys.executable, str(SMALL_WORKER), mode)
        self.stop = asyncio.Event()
        self.announced = asyncio.Event()
        self.parent = Parent(settings, MemoryStore(), [bound], program, time.monotonic)
        self.task = asyncio.create_task(self.parent.run(self.stop, self.announced.set))

    async def answer(self) -> int:
        """The process id of whichever worker takes the next connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        pid = await reader.read()
        writer.close()
        return int(pid)

    async def other_than(self, pid: int) -> int:
        while (found := await self.answer()) == pid:
            pass
        return found


@asynccontextmanager
async def running(mode: str, settings: Settings) -> AsyncIterator[Running]:
    server = Running(mode, settings)
    async with asyncio.timeout(60):
        try:
            await server.announced.wait()
            yield server
        finally:
            server.stop.set()
            await server.task


def test_controllers_have_a_process_of_their_own() -> None:
    """Exactly one process runs them, and only if some are wanted."""
    named = [role.name for role in roles(settings_for(2, ["*"]))]

    assert named == ["worker-0", "worker-1", "controllers"]
    assert [role for role in roles(settings_for(2, ["*"])) if role.controls] == [
        WorkerRole("controllers", controls=True)
    ]
    assert [role.prepares for role in roles(settings_for(3))] == [True, False, False]


def test_one_process_has_the_role_of_the_controllers_even_without_them() -> None:
    """Else nobody would copy revocations for a restore, nor serve lists without TLS."""
    assert [role.controls for role in roles(settings_for(3, []))] == [True, False, False]
    assert [role.controls for role in roles(settings_for(2, ["*"]))] == [False, False, True]


async def test_the_parent_announces_ready_workers_and_stops_them() -> None:
    """Nothing is left behind."""
    async with running("serve", settings_for()) as server:
        processes = dict(server.parent._processes)
        assert await server.answer() in {process.pid for process in processes.values()}

    assert [process.returncode for process in processes.values()] == [0, 0]


async def test_killed_worker_is_replaced() -> None:
    """The others serve meanwhile, and the new one serves as the old one did."""
    async with running("serve", settings_for(1)) as server:
        first = await server.answer()

        os.kill(first, signal.SIGKILL)
        second = await server.other_than(first)

        assert second != first


async def test_spare_process_stands_by_and_takes_the_place_of_a_dead_one() -> None:
    """It is there before it is needed, and another one after."""
    async with running("serve", settings_for(1)) as server:
        first = await server.answer()
        launcher = server.parent._launcher
        await launcher.refill()
        assert launcher._spare is not None
        spare = launcher._spare.process.pid

        os.kill(first, signal.SIGKILL)

        assert await server.other_than(first) == spare


async def test_program_that_cannot_be_run_ends_the_start() -> None:
    """A failed start of the first process is reported, with its reason."""
    bound = socket.create_server(("127.0.0.1", 0))
    parent = Parent(settings_for(), MemoryStore(), [bound], ["/nowhere/python"], time.monotonic)

    with pytest.raises(BaseExceptionGroup) as caught:
        await parent.run(asyncio.Event(), lambda: None)

    assert "No such file" in str(caught.value.exceptions[0])


async def test_worker_without_a_sign_of_life_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is stopped, or stuck, does not keep its connections for ever."""
    monkeypatch.setattr(parent_module, "LOOK_SECONDS", 0.25)
    async with running("mute", settings_for(1)) as server:
        first = await server.answer()

        second = await server.other_than(first)

        assert second != first


async def test_worker_that_starts_slowly_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its first word it is no sign of trouble that a worker is silent."""
    monkeypatch.setattr(parent_module, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(parent_module, "STARTING_LOOKS", 10_000)
    async with running("slow", settings_for(1)) as server:
        assert await server.answer() > 0


async def test_deaf_worker_is_ended_after_the_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop takes only so long."""
    monkeypatch.setattr(parent_module, "LATE_SECONDS", 0.05)
    async with running("deaf", settings_for(1, grace="50ms")) as server:
        [process] = server.parent._processes.values()

    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("mode", "words"), [("unfit", "--listen: not like this"), ("crash", "exit code 7")]
)
async def test_worker_that_cannot_start_ends_the_start(mode: str, words: str) -> None:
    """A wrong setting is reported once, and the worker is not restarted."""
    server = Running(mode, settings_for())

    with pytest.raises(BaseExceptionGroup) as caught:
        await asyncio.wait_for(server.task, 30)

    found = caught.value.subgroup(BadSettings)
    assert found is not None
    assert words in str(found.exceptions[0])
    assert not server.announced.is_set()


async def test_stop_before_the_start_is_done_ends_quietly() -> None:
    """Cancelling the start immediately leaves no process behind."""
    server = Running("serve", settings_for())
    await asyncio.sleep(0)
    server.stop.set()

    await asyncio.wait_for(server.task, 30)

    assert server.parent._processes == {}
