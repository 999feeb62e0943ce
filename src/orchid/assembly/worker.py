"""The server in a worker process, with the parent's store."""

import asyncio
import contextlib
import socket

from orchid.assembly import lifecycle
from orchid.assembly.server import Assembly
from orchid.assembly.stores import opened_audit, opened_store
from orchid.kernel.base.clock import SystemClock
from orchid.kernel.settings import data_directory
from orchid.kernel.settings.checking import Settings
from orchid.kernel.workers.counts import WorkerCounts
from orchid.kernel.workers.remote_store import RemoteStore


async def serve_as_worker(settings: Settings, parent: RemoteStore, stop: asyncio.Event) -> None:
    """Serve the role that the parent process has assigned."""
    begin = parent.begin
    # Other servers write to etcd as well, so there each worker has its own connection.
    direct = opened_store(settings, SystemClock()) if settings.given.etcd_servers else None
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
        counts.report(server.metrics.families, server.metrics.reset)
        parent.forgotten = server.feed.forget_before

        async def ready() -> list[socket.socket]:
            await parent.ready()
            return [socket.socket(fileno=number) for number in begin.sockets]

        await lifecycle.run(
            server,
            stop,
            ready,
            prepares=begin.prepares,
            listens=begin.listens,
            controls=begin.controls,
        )
