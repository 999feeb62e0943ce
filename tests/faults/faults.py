"""The faults: a plan that follows from a seed, and the hands that carry it out.

`plan` gives fault after fault without end: each kind once in some order, then again in another.
`SQLiteFaults` and `EtcdFaults` know how each kind is done, one method each, to what was started by
systems.py and to nothing else. Every fault ends healed: what was stopped goes on, what was killed
is started again, and is ready before the next.

A full disk is one: a file takes all the room (or, where no small disk could be mounted, no file
may grow). A slow disk is simulated: the process that owns the data is stopped and continued many
times a second, so that its operations take long. Clocks jump by an hour, in either direction.

Three faults come with operations of their own (`Clients`): revocations are changed while no
controller runs, right after the leader of the controllers was killed, and between a backup and its
restore. Restores are for SQLite only: a restored etcd forgets the revocations since its snapshot,
as docs/revocation.md says, because no file beside it has them.
"""

import asyncio
import os
import random
import re
import resource
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, NamedTuple, Protocol

from tests.e2e.worker_processes import children, parent_of
from tests.faults.systems import CONTROLLERS, Machine, ServerOnSQLite, ServersOnEtcd, System
from tests.unit.kernel.store.etcd_process import Member

LONGEST_PAUSE, LONGEST_HOLD = 1.5, 8.0
MOST_KEPT = 30  # revisions that a compaction leaves
STOPPED_SECONDS, GOING_SECONDS = 0.03, 0.01  # of a slow disk
JUMP_SECONDS, SEEN_SECONDS = 3600, 1.2
SMALLEST_FILE = 64 << 10  # bytes that a file may have where a disk cannot be filled
CONTROLLERS_STARTED = re.compile(r"workers\.started role=controllers pid=(\d+)")
ELECTED = re.compile(r"leader\.elected identity=(\S+)")

Strike = Callable[[int, float], Coroutine[Any, Any, None]]


class Fault(NamedTuple):
    """The next fault: its victim (counted round), its duration, and the time since the last."""

    kind: str
    target: int
    hold: float
    pause: float

    def __str__(self) -> str:
        return f"{self.kind} (target {self.target}, {self.hold:.2f} s)"


def plan(seed: int, kinds: Sequence[str]) -> Iterator[Fault]:
    """Fault after fault, most of them short; the same for the same seed and kinds."""
    rng = random.Random(f"{seed}/faults")
    while True:
        for kind in rng.sample(kinds, len(kinds)):
            hold, pause = rng.random() ** 3 * LONGEST_HOLD, rng.random() * LONGEST_PAUSE
            yield Fault(kind, rng.randrange(1000), hold, pause)


class Clients(Protocol):
    """The clients of a run, as far as faults need them."""

    async def change_revocations(self) -> None:
        """Lift a hold, put one, and revoke for good."""
        ...

    def at_rest(self) -> AbstractAsyncContextManager[None]:
        """Let no client do anything until the block ends."""
        ...

    async def change_since_backup(self, *, whole_signer: bool) -> None:
        """Issue certificates, and change revocations, of one certificate or of a whole signer."""
        ...

    def restored(self) -> None:
        """Forget what a restore has undone."""
        ...


class Faults:
    """Faults that can happen to any system."""

    def __init__(self, system: System, clients: Clients) -> None:
        self._machines = system.machines
        self._clients = clients
        self.kinds: dict[str, Strike] = {
            "server killed": self._kill_server,
            "server stopped": self._stop_server,
            "server restarted": self._restart_server,
            "clock jump": self._jump_clock,
            "controllers killed": self._kill_controllers,
            "controllers off": self._leave_controllers_out,
        }

    async def strike(self, fault: Fault) -> None:
        """Do it, hold it, heal it."""
        await self.kinds[fault.kind](fault.target, fault.hold)

    def _machine(self, target: int) -> Machine:
        return self._machines[target % len(self._machines)]

    async def _kill_server(self, target: int, hold: float) -> None:
        machine = self._machine(target)
        machine.kill()
        await asyncio.sleep(hold / 4)
        await asyncio.to_thread(machine.start)

    async def _stop_server(self, target: int, hold: float) -> None:
        await stopped(self._machine(target).running.pid, hold)

    async def _restart_server(self, target: int, hold: float) -> None:
        machine = self._machine(target)
        await asyncio.to_thread(machine.stop)
        await asyncio.sleep(hold / 4)
        await asyncio.to_thread(machine.start)

    async def _kill_controllers(self, target: int, hold: float) -> None:
        raise AssertionError("each system has its own way")

    async def _leave_controllers_out(self, target: int, hold: float) -> None:
        """Change revocations while every server runs without controllers."""
        await self._restart_all("")
        await self._clients.change_revocations()
        await self._restart_all(CONTROLLERS)

    async def _restart_all(self, controllers: str) -> None:
        for machine in self._machines:
            await asyncio.to_thread(machine.stop)
        for machine in self._machines:
            await asyncio.to_thread(machine.start, controllers)

    async def _jump_clock(self, target: int, hold: float) -> None:
        clock = self._machine(target).clock
        clock.set(JUMP_SECONDS if target % 2 else -JUMP_SECONDS)
        await asyncio.sleep(hold + SEEN_SECONDS)
        clock.set(0)
        await asyncio.sleep(SEEN_SECONDS)


class SQLiteFaults(Faults):
    """Faults of the process that owns the file, and of its workers."""

    def __init__(self, system: ServerOnSQLite, clients: Clients) -> None:
        super().__init__(system, clients)
        self._system = system
        self._disk = system.file_disk
        self.kinds |= {
            "full disk": self._fill_disk,
            "slow disk": self._slow_disk,
            "backup restored": self._restore,
        }
        if system.workers > 1:
            self.kinds |= {
                "parent killed": self._kill_parent,
                "worker killed": self._kill_worker,
                "worker stopped": self._stop_worker,
            }

    def _worker(self, target: int) -> int | None:
        workers = sorted(children(self._machine(0).running))
        return workers[target % len(workers)] if workers else None

    async def _kill_controllers(self, target: int, hold: float) -> None:
        """Kill the process that runs the controllers: a child of its own, or the server."""
        machine = self._machine(target)
        children_of_controllers = CONTROLLERS_STARTED.findall(machine.running.log_text())
        if not children_of_controllers:
            await self._kill_server(target, hold)
            return
        with suppress(ProcessLookupError):
            os.kill(int(children_of_controllers[-1]), signal.SIGKILL)
        await self._clients.change_revocations()
        await asyncio.sleep(hold / 4)

    async def _restore(self, target: int, hold: float) -> None:
        """Put a backup into place that is older than some revocations."""
        machine = self._machine(target)
        async with self._clients.at_rest():
            copy = await self._system.back_up()
            await self._clients.change_since_backup(whole_signer=bool(target % 2))
            await asyncio.to_thread(machine.stop)
            await self._system.restore(copy)
            await asyncio.to_thread(machine.start)
            self._clients.restored()

    async def _kill_parent(self, target: int, hold: float) -> None:
        """Its workers find out by themselves; the next one can listen only once they have gone."""
        machine = self._machine(target)
        workers = children(machine.running)
        os.kill(machine.running.pid, signal.SIGKILL)
        await asyncio.to_thread(machine.running.process.wait)
        await asyncio.sleep(hold / 4)
        while any(parent_of(worker) for worker in workers):  # noqa: ASYNC110 - not our children
            await asyncio.sleep(0.05)
        await asyncio.to_thread(machine.start)

    async def _kill_worker(self, target: int, hold: float) -> None:
        worker = self._worker(target)
        if worker is not None:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        await asyncio.sleep(hold)

    async def _stop_worker(self, target: int, hold: float) -> None:
        worker = self._worker(target)
        if worker is not None:
            await stopped(worker, hold)

    async def _fill_disk(self, target: int, hold: float) -> None:
        if not self._disk.mounted:
            await limited(self._machine(target).running.pid, hold)
            return
        await asyncio.to_thread(self._disk.fill)
        try:
            await asyncio.sleep(hold)
        finally:
            self._disk.clear()

    async def _slow_disk(self, target: int, hold: float) -> None:
        await slowed(self._machine(target).running.pid, hold)


class EtcdFaults(Faults):
    """Faults of several servers and of the members of their etcd."""

    def __init__(self, system: ServersOnEtcd, clients: Clients) -> None:
        super().__init__(system, clients)
        self._system = system
        self._cluster = system.cluster
        self.kinds |= {
            "member killed": self._kill_member,
            "member stopped": self._stop_member,
            "leader killed": self._kill_leader,
            "leader stopped": self._stop_leader,
            "quorum lost": self._lose_quorum,
            "compaction": self._compact,
            "full disk": self._fill_disk,
            "slow disk": self._slow_disk,
        }

    def _member(self, target: int) -> Member:
        return self._cluster.members[target % len(self._cluster.members)]

    async def _leader(self) -> Member:
        while True:
            leader = await asyncio.to_thread(self._cluster.leader)
            if leader is not None:
                return leader
            await asyncio.sleep(0.05)

    async def _kill_controllers(self, target: int, hold: float) -> None:
        """Kill the server whose controllers lead; another takes over when the Lease has expired."""
        elected = [ELECTED.findall(machine.running.log_text()) for machine in self._machines]
        holder = await self._system.leading_controllers()
        leading = next((n for n, each in enumerate(elected) if holder in each), target)
        self._machine(leading).kill()
        await self._clients.change_revocations()
        await asyncio.sleep(hold / 4)
        await asyncio.to_thread(self._machine(leading).start)

    async def _kill_member(self, target: int, hold: float) -> None:
        await self._kill(self._member(target), hold)

    async def _kill_leader(self, _: int, hold: float) -> None:
        await self._kill(await self._leader(), hold)

    async def _kill(self, member: Member, hold: float) -> None:
        member.kill()
        await asyncio.sleep(hold)
        member.start()
        await self._cluster.wait_healthy()

    async def _stop_member(self, target: int, hold: float) -> None:
        await self._stop([self._member(target)], hold)

    async def _stop_leader(self, _: int, hold: float) -> None:
        await self._stop([await self._leader()], hold)

    async def _lose_quorum(self, target: int, hold: float) -> None:
        await self._stop([self._member(target), self._member(target + 1)], hold)

    async def _stop(self, members: Sequence[Member], hold: float) -> None:
        for member in members:
            member.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(hold)
        finally:
            for member in members:
                member.signal(signal.SIGCONT)
        await self._cluster.wait_healthy()

    async def _compact(self, target: int, hold: float) -> None:
        """While a server does not look, so that it finds its place gone."""
        other = asyncio.create_task(self._stop_server(target, hold))
        await asyncio.sleep(hold / 2)
        await self._system.compact(target % MOST_KEPT)
        await other

    async def _fill_disk(self, target: int, hold: float) -> None:
        """A member without room gives up sooner or later; it is started again with room."""
        member = self._member(target)
        disk = self._system.disk_of(member)
        await asyncio.to_thread(disk.fill)
        try:
            await asyncio.sleep(hold)
        finally:
            disk.clear()
        if not member.alive:
            member.kill()
            member.start()
        await self._cluster.wait_healthy()

    async def _slow_disk(self, target: int, hold: float) -> None:
        await slowed(self._member(target).pid, hold)


async def stopped(pid: int, seconds: float) -> None:
    """Have a process do nothing for a while."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)


async def slowed(pid: int, seconds: float) -> None:
    """Have a process make little headway for a while."""
    for _ in range(round(seconds / (STOPPED_SECONDS + GOING_SECONDS))):
        await stopped(pid, STOPPED_SECONDS)
        await asyncio.sleep(GOING_SECONDS)


async def limited(pid: int, seconds: float) -> None:
    """Have a process find no room in its files for a while."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (SMALLEST_FILE, before[1]))
    try:
        await asyncio.sleep(seconds)
    finally:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
