"""Run a server, one of its workers, or only the controllers, until told to stop."""

import asyncio
import contextlib
import socket
import sys
from pathlib import Path
from typing import Any

from orchid import data_directory
from orchid.access.authorizers.union import Union
from orchid.assembly import controlling, memory
from orchid.assembly.kinds import stored_kinds
from orchid.assembly.ledger import sequenced
from orchid.assembly.server import Assembly, wanted_controllers
from orchid.assembly.stores import opened_audit, opened_store
from orchid.clock import SystemClock
from orchid.controllers.running import run_controllers
from orchid.engine.catalog import Catalog
from orchid.kinds import subject_access_review
from orchid.outbound.remote import InvalidRemote, read_kubeconfig
from orchid.server.sockets.listener import bind
from orchid.settings.checking import Settings
from orchid.settings.errors import BadSettings
from orchid.store.retention import Retention
from orchid.workers.counts import WorkerCounts
from orchid.workers.parent import Parent
from orchid.workers.remote_store import RemoteStore

WORKER_PROGRAM = (sys.executable, "-P", "-m", "orchid.worker")


async def serve(settings: Settings, stop: asyncio.Event, announce: Any) -> None:
    """Serve until `stop` is set, then drain. `announce` is told when the server is ready."""
    clock = SystemClock()
    data_directory.make(settings)
    async with contextlib.AsyncExitStack() as opened:
        # The store comes first: its lock makes sure that only one server writes files in the
        # directory.
        store = await opened.enter_async_context(opened_store(settings))
        files = data_directory.prepare(settings, clock.now())
        await opened.enter_async_context(sequenced(settings, files, store))
        if settings.given.workers > 1:
            sockets = await _bound(settings)
            workers = Parent(settings, store, sockets, WORKER_PROGRAM, clock.monotonic)
            memory.settle()
            await workers.run(stop, lambda: announce(settings, files))
            return
        async with opened_audit(settings) as audit:
            alone = not settings.given.etcd_servers
            server = Assembly(settings, files, store, audit, sole_writer=alone)
            retention = Retention(
                store, clock.monotonic, keep=settings.history, forgotten=server.feed.forget_before
            )

            async def ready() -> list[socket.socket]:
                sockets = await _bound(settings)
                announce(settings, files)
                return sockets

            await server.run(stop, ready, beside=[retention.run()])


async def serve_as_worker(settings: Settings, parent: RemoteStore, stop: asyncio.Event) -> None:
    """Do the part of the work that the parent process has given to this one."""
    begin = parent.begin
    # Other servers write to etcd as well, so there each worker has its own connection.
    direct = opened_store(settings) if settings.given.etcd_servers else None
    async with direct or contextlib.nullcontext(parent) as store, opened_audit(settings) as audit:
        files = data_directory.located(settings)
        counts = WorkerCounts(parent)
        server = Assembly(
            settings,
            files,
            store,
            audit,
            store_problem=parent.problem,
            others=counts,
            sole_writer=direct is None,
        )
        counts.tell(server.metrics.families, server.metrics.reset)
        parent.forgotten = server.feed.forget_before

        async def ready() -> list[socket.socket]:
            await parent.ready()
            return [socket.socket(fileno=number) for number in begin.sockets]

        await server.run(
            stop,
            ready,
            prepares=begin.prepares,
            listens=begin.listens,
            controls=begin.controls,
        )


async def _bound(settings: Settings) -> list[socket.socket]:
    try:
        return await bind(settings.host, settings.port)
    except OSError as problem:
        why = problem.strerror or problem
        raise BadSettings(f"--listen: {settings.given.listen}: {why}") from None


async def control(settings: Settings, kubeconfig: Path, stop: asyncio.Event) -> None:
    """Run the controllers of a remote server until `stop` is set."""
    names = settings.names
    files = data_directory.located(settings)
    try:
        remote = read_kubeconfig(kubeconfig)
    except InvalidRemote as problem:
        raise BadSettings(f"--kubeconfig: {problem}") from None
    reviews = subject_access_review.declare(names, Union())
    catalog = Catalog([*stored_kinds(names), *reviews])
    clients = controlling.RemoteClients(remote, catalog, names)
    context = controlling.controller_context(settings, files, SystemClock())
    working = asyncio.ensure_future(run_controllers(wanted_controllers(settings), clients, context))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
        await clients.close()
