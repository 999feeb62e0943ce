"""Run a server until stopped.

worker.py runs a worker of it, assembly/controllers/remote_controllers.py the controllers alone.
"""

import asyncio
import contextlib
import logging
import socket
from typing import Any

from orchid.assembly import first_files, lifecycle, setting_files
from orchid.assembly.server import Assembly
from orchid.assembly.stores import has_sealed, opened_audit, opened_store
from orchid.features.ledger.own_log import sequenced
from orchid.features.sealing.key_file import lost_sealing_key, makes_sealing_key
from orchid.features.sealing.settings import is_unsealed
from orchid.kernel.base import helper_process, process_memory
from orchid.kernel.base.clock import SystemClock
from orchid.kernel.http.listener import bind
from orchid.kernel.settings import data_directory
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.store.retention import Retention

log = logging.getLogger(__name__)

WORKER_PROGRAM = helper_process.command("orchid.worker")


async def serve(settings: Settings, stop: asyncio.Event, announce: Any) -> None:
    """Serve until `stop` is set, then drain. `announce` is called when the server is ready."""
    clock = SystemClock()
    setting_files.require_usable(settings)
    data_directory.make(settings)
    async with contextlib.AsyncExitStack() as opened:
        # The store comes first: with its lock, only one server writes files in the directory.
        store = await opened.enter_async_context(opened_store(settings, clock))
        if makes_sealing_key(settings) and await has_sealed(store):
            raise BadSettings(lost_sealing_key(settings))
        if is_unsealed(settings.given) and await has_sealed(store):
            raise BadSettings(
                "--encryption-provider-config: the store has Secrets that are sealed; start with "
                "the file that has their keys"
            )
        files = first_files.prepare(settings, clock.now())
        for problem in setting_files.refused_credentials(settings, files):
            log.warning("settings.contradict: %s", problem)
        await opened.enter_async_context(sequenced(settings, store))
        if settings.given.workers > 1:
            from orchid.kernel.workers.parent import Parent  # noqa: PLC0415 -- most have one process

            sockets = await _bound(settings)
            workers = Parent(settings, store, sockets, WORKER_PROGRAM, clock.monotonic)
            process_memory.settle()
            process_memory.enlarge_pages()
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

            await lifecycle.run(server, stop, ready, beside=[retention.run()])


async def _bound(settings: Settings) -> list[socket.socket]:
    try:
        return await bind(settings.host, settings.port)
    except OSError as problem:
        why = problem.strerror or problem
        raise BadSettings(f"--listen: {settings.given.listen}: {why}") from None
