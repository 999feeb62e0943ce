"""The parent process: owns the listening sockets and the store, and supervises the workers.

Start with `Parent.run`. It starts one process per `WorkerRole` (always a new program, never a fork
of this one, which has threads), sends its role over an inherited socket, and restarts it when it
dies. The first worker writes the objects that must always exist; until then, none accepts
connections. On stop the workers drain first; the store is closed after that.

All workers accept from the same sockets, so that a connection goes to an idle worker: no client
waits for one that is stopped, busy or being replaced. The parent serves no client itself, knows no
kinds and holds no objects.
"""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from orchid.kernel.base.clock import Monotonic
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.store.interface import GroupingStore, Store
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.store.retention import Retention
from orchid.kernel.workers.counter import SharedCounter
from orchid.kernel.workers.launching import Launcher, send_signal
from orchid.kernel.workers.messages import Begin, Open, Ready, UnfitMessage, packed
from orchid.kernel.workers.store_server import Session, StoreServer

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
SILENT_LOOKS: Final = 20  # a worker that sent nothing during so many checks is replaced
STARTING_LOOKS: Final = 120  # before its first message: a busy machine starts slowly
STABLE_SECONDS: Final = 5.0  # a worker that lived shorter is restarted only after a pause
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
LATE_SECONDS: Final = 5.0  # on top of a worker's grace period for its clients


class WorkerRole(msgspec.Struct, frozen=True):
    """The role of a process."""

    name: str
    listens: bool = False
    prepares: bool = False
    controls: bool = False  # runs the controllers, and other work of a single process


def roles(settings: Settings) -> list[WorkerRole]:
    """All processes of a server with these settings.

    The controllers have a process of their own. Without them the first worker has their role, which
    includes more: the copy of the revocations, warnings, and the listener for revocation lists.
    """
    count, controlled = settings.given.workers, bool(settings.given.controllers)
    workers = [
        WorkerRole(f"worker-{n}", listens=True, prepares=n == 0, controls=n == 0 and not controlled)
        for n in range(count)
    ]
    return [*workers, WorkerRole("controllers", controls=True)] if controlled else workers


class Parent:
    """Runs workers over a given store and sockets."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        sockets: Sequence[socket.socket],
        program: Sequence[str],
        monotonic: Monotonic,
    ) -> None:
        self._settings = settings
        self._store = store
        self._monotonic = monotonic
        self._counter = SharedCounter.create()
        self._launcher = Launcher(program, self._counter.descriptor, sockets)
        # etcd is no GroupingStore: other servers write to it as well, so that each worker has its
        # own connection to it, and nothing is shared here.
        shared = store if isinstance(store, GroupingStore) else MemoryStore()
        self._server = StoreServer(shared, self._counter)
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._waiting: dict[str, Session] = {}  # ready, but not everything is prepared yet
        self._unready = {role.name for role in roles(settings)}
        self._stop = asyncio.Event()
        self._prepared = False
        self._problem = ""  # why a worker cannot start, for the operator
        self._announce: Callable[[], None] = lambda: None
        self._tasks: asyncio.TaskGroup  # set by `run`

    async def run(self, stop: asyncio.Event, announce: Callable[[], None]) -> None:
        """Serve until `stop` is set, then drain. `announce` is called when ready."""
        self._announce, self._stop = announce, stop
        await self._server.start()
        retention = Retention(
            self._store, self._monotonic, keep=self._settings.history, forgotten=self._server.forgot
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                keepers = [
                    tasks.create_task(self._keep(role), name=role.name)
                    for role in roles(self._settings)
                ]
                background = [
                    tasks.create_task(self._server.run()),
                    tasks.create_task(retention.run()),
                ]
                await stop.wait()
                log.info("server.stopping")
                await self._finish(keepers)
                for task in background:
                    task.cancel()
        finally:
            await self._launcher.close()
            self._counter.close()

    # One process

    async def _keep(self, role: WorkerRole) -> None:
        """Keep one process running for a role: start it, and restart it when it ends."""
        pause = 0.0
        while not self._stop.is_set():
            begun = self._monotonic()
            try:
                code = str(await self._life(role))
            except OSError as problem:
                code = f"none, it was not started: {problem}"
            if self._stop.is_set():
                return
            if not self._prepared or (self._problem and self._unready):
                raise BadSettings(
                    self._problem
                    or f"{role.name} ended with exit code {code} before it could serve"
                )
            lived = self._monotonic() - begun
            pause = 0.0 if lived > STABLE_SECONDS else max(FIRST_PAUSE, pause * 2)
            log.warning("workers.died", extra={"role": role.name, "code": code})
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), min(pause, LONGEST_PAUSE))

    async def _life(self, role: WorkerRole) -> int:
        """Start a process, wait for its end and return its exit code."""
        process, link = await self._launcher.launch(listens=role.listens)
        self._processes[role.name] = process
        session: Session | None = None
        try:
            session = await self._server.attach(
                link, lambda report: self._reported(role, session, report)
            )
            session.begin(self._first_word(role))
            log.info("workers.started", extra={"role": role.name, "pid": process.pid})
            if self._stop.is_set():
                send_signal(process, signal.SIGTERM)
            return await self._ended(process, role, session)
        finally:
            send_signal(process, signal.SIGKILL)
            await process.wait()
            self._processes.pop(role.name, None)
            self._waiting.pop(role.name, None)
            if session is not None:
                session.close()

    def _first_word(self, role: WorkerRole) -> Begin:
        return Begin(
            given=self._settings.given.as_written(),
            listens=role.listens,
            prepares=role.prepares and not self._prepared,
            controls=role.controls,
            sockets=self._launcher.descriptors(listens=role.listens),
            counter=self._counter.descriptor,
            revision=self._server.sent_revision,
            oldest=self._server.oldest,
        )

    async def _ended(
        self, process: asyncio.subprocess.Process, role: WorkerRole, session: Session
    ) -> int:
        """Wait for a process to end; kill it when it has sent nothing for too long.

        Checks are counted, not seconds: time in which the parent itself was stopped must not count
        against the worker.
        """
        waiting = asyncio.ensure_future(process.wait())
        silent, heard = 0, session.heard
        try:
            while not waiting.done():
                await asyncio.wait([waiting], timeout=LOOK_SECONDS)
                silent = silent + 1 if heard == session.heard else 0
                heard = session.heard
                if silent >= (SILENT_LOOKS if heard else STARTING_LOOKS):
                    log.error("workers.silent", extra={"role": role.name, "pid": process.pid})
                    send_signal(process, signal.SIGKILL)
            # Its last messages may still be in the socket.
            await asyncio.wait([session.ended], timeout=LOOK_SECONDS)
            return waiting.result()
        finally:
            waiting.cancel()

    # Reports

    def _reported(
        self, role: WorkerRole, session: Session | None, report: Ready | UnfitMessage
    ) -> None:
        assert session is not None
        if isinstance(report, UnfitMessage):
            log.error("workers.unfit: %s", report.problem, extra={"role": role.name})
            self._problem = report.problem
            session.close()
            return
        log.info("workers.ready", extra={"role": role.name})
        self._waiting[role.name] = session
        self._prepared = self._prepared or role.prepares
        if self._prepared:
            for ready in self._waiting.values():
                ready.write(packed(Open()))
            self._served(set(self._waiting))
            self._waiting.clear()

    def _served(self, names: set[str]) -> None:
        if self._unready:
            self._unready -= names
            if not self._unready:
                self._announce()
        if not self._unready and not self._stop.is_set():
            self._tasks.create_task(self._launcher.refill())

    # Shutdown

    async def _finish(self, keepers: Sequence[asyncio.Task[None]]) -> None:
        """Stop accepting, let every worker drain, and end those that take too long."""
        await self._launcher.close()
        for process in self._processes.values():
            send_signal(process, signal.SIGTERM)
        _, late = await asyncio.wait(keepers, timeout=self._settings.shutdown_grace + LATE_SECONDS)
        for task in late:
            log.error("workers.drain_incomplete: %s", task.get_name())
            task.cancel()
