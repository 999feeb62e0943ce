"""The life of a server: start, serve until asked to stop, drain."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchid.assembly.access import as_bad_settings
from orchid.assembly.controllers import controlling
from orchid.assembly.controllers.default_roles import default_policy
from orchid.assembly.controllers.running import run_controllers
from orchid.assembly.listeners import list_listener
from orchid.assembly.platform.importing import import_authority, import_later, report_older
from orchid.assembly.server import Assembly
from orchid.features.console.settings import ConsoleSettings
from orchid.features.ledger.known_keys import note_keys
from orchid.features.objects.kinds.lease import Lease, server_prefix
from orchid.features.revoking.revocation_file import FileTooLarge
from orchid.features.rights.reconcile import reconcile
from orchid.features.token_keys.key_import import TokenKeyFiles, TokenKeyImport
from orchid.kernel.base import process_memory
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.http.listener import Listener
from orchid.kernel.settings.errors import BadSettings, NotAvailable
from orchid.kernel.wire.errors import NotFound, Unavailable

if TYPE_CHECKING:
    from orchid.assembly.console.listener import ServedConsole

log = logging.getLogger(__name__)

Ready = Callable[[], Awaitable[Sequence[socket.socket]]]


async def start(server: Assembly) -> None:
    """Load every object, and write the objects that must always exist."""
    try:
        await _start(server)
    except Unavailable as problem:  # a full disk, or etcd went away
        raise NotAvailable(f"the server cannot start: {problem}") from None


async def _start(server: Assembly) -> None:
    await server.feed.wait_loaded()
    server.sealing.require_keys()
    if not server.settings.given.etcd_servers:
        await _remove_old_leases(server)
    if server.revocation_copy is not None:
        try:
            await server.revocation_copy.put_back()
        except FileTooLarge as problem:
            raise BadSettings(str(problem)) from None
    names = server.settings.names
    for name in (
        "default", names.system_namespace, names.public_namespace, names.node_lease_namespace,
    ):  # fmt: skip
        await server.ensure_namespace(name)
    await server.access.lifetimes.begin()
    if server.access.authorization.uses("RBAC"):
        await reconcile(default_policy(names), server.local, names)
    if server.settings.stores_token_keys:
        await _import_token_keys(server)
    else:
        await server.note_token_keys()
    if server.access.platform is not None:
        await import_authority(server)
        with as_bad_settings():
            for check in server.access.platform.checks:
                check()


async def _remove_old_leases(server: Assembly) -> None:
    """Delete the Leases of earlier processes, which count as live servers for a while.

    A process that was killed leaves its own. No other server has the embedded store open.
    """
    cache, names = server.feed.of(Lease), server.settings.names
    prefix = cache.kind.key(names.system_namespace, server_prefix(names))
    for entry in [one for key, one in cache.entries.items() if key.startswith(prefix)]:
        with contextlib.suppress(NotFound):
            await server.local.delete(entry.object)


async def _import_token_keys(server: Assembly) -> None:
    """Create objects for token keys that are only in files, and the first key if there is none."""
    given = server.settings.given
    files = TokenKeyFiles(
        server.files.signing_key,
        tuple(map(Path, given.service_account_key_file)),
        is_configured=bool(given.service_account_signing_key_file),
        is_shared=bool(given.etcd_servers),
    )
    importing = TokenKeyImport(
        server.settings.names,
        files,
        server.feed,
        server.store,
        server.random,
        clock=server.clock,
        publish_time=str(given.token_key_publish_time),
        unrecorded=server.access.lifetimes.longest_until_now,
    )
    try:
        await importing.run()
    except Refusal as refusal:
        raise BadSettings(str(refusal)) from None
    await server.feed.fresh()


async def run(
    server: Assembly,
    stop: asyncio.Event,
    ready: Ready,
    *,
    beside: Sequence[Coroutine[Any, Any, None]] = (),
    prepares: bool = True,
    listens: bool = True,
    controls: bool = True,
) -> None:
    """Load, prepare, serve until `stop` is set, then drain; flags leave out parts.

    `ready` is awaited before serving, and returns the sockets to listen on. The coroutines in
    `beside` run as long as the server does.
    """
    settings, monotonic = server.settings, server.clock.monotonic
    process_memory.prepare()
    async with asyncio.TaskGroup() as tasks:
        background = [tasks.create_task(work) for work in (server.feed.run(), *beside)]
        await (start(server) if prepares else server.feed.wait_loaded())
        if prepares:
            await server.own_certificates.record(server.clock)
        listener = server.listener() if prepares else None
        # Their settings are in use before the server is announced.
        console = await _console(server) if controls else None
        plain = await list_listener(settings, server.lists, monotonic) if controls else None
        process_memory.settle()
        sockets = await ready()
        listener = listener or server.listener()  # another process has prepared its files
        if listens:
            await listener.start(sockets=sockets, shares=settings.given.workers > 1)
        background += [tasks.create_task(console.run())] if console else []
        background += [tasks.create_task(work) for work in _upkeep(server, controls)]
        reporting = tasks.create_task(server.applied.run()) if listens else None
        controllers = tasks.create_task(_control(server)) if controls else None
        await stop.wait()
        server.readiness.stopping = True
        server.trust.stop_waiting()
        log.info("server.stopping")
        if controllers is not None:
            await _stop(controllers)  # first, so that another server can take over immediately
        for one in (listener if listens else None, plain, console.listener if console else None):
            await _drain(one, settings.shutdown_grace)
        if reporting is not None:
            reporting.cancel()
            await _leave(server)
        for task in background:
            task.cancel()
    await _close(server)


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def _close(server: Assembly) -> None:
    await server.token_counts.write()
    await server.access.long_tokens.write()
    server.close()


async def _drain(listener: Listener | None, grace: float) -> None:
    if listener is not None:
        await listener.drain(grace)


async def _console(server: Assembly) -> "ServedConsole | None":
    """The console, listening; None if it is not configured."""
    if not server.settings.given.of(ConsoleSettings).console_listen:
        return None
    try:
        from orchid.assembly.console.listener import ServedConsole  # noqa: PLC0415 -- off by default
    except ModuleNotFoundError as problem:
        if problem.name != "jinja2":
            raise
        raise BadSettings(
            "--console-listen needs the extra console: pip install 'orchid-identity[console]'"
        ) from None
    console = ServedConsole(server)
    await console.start()
    return console


async def _leave(server: Assembly) -> None:
    """Write data that only this process has, after the last request."""
    await server.applied.leave()
    await server.cluster_status.leave()
    await server.trust.consumers.write()
    if server.exchange is not None:
        await server.exchange.leave()


def _upkeep(server: Assembly, warns: bool) -> list[Coroutine[Any, Any, None]]:
    """The background tasks; of several processes only one warns and writes files."""
    access = server.access
    work = [
        access.follow_keys(server.note_token_keys),
        access.authorization.follow(),
        server.watches.run(),
        server.watchdog.run(),
        server.token_uses.run(),
        server.token_counts.run(),
        access.long_tokens.run(server.clock, sweeps=warns),
        server.cluster_status.run(),
        server.trust.run(),
        server.sealing.run(),
        server.ends.run(warns=warns),
        server.ledger_standing.run(keeps=warns),
        asyncio.to_thread(process_memory.enlarge_pages),
    ]
    if warns and (shown := server.file_keys()) is not None:
        work.append(shown.run())
    if server.probe is not None:
        work.append(server.probe.run())
    if warns:
        work += [server.own_certificates.run(server.clock), server.host.run()]
        work += [import_later(server), report_older(server), server.file_authorities.run()]
        work.append(server.sealing.resealing(server.settings).run())
    if warns and server.revocation_copy is not None:
        work.append(server.revocation_copy.run())
    if server.exchange is not None:
        work.append(server.exchange.run())
    return [*work, access.oidc.run()] if access.oidc else work


async def _control(server: Assembly) -> None:
    """Run the configured controllers until cancelled; again when the cluster CA is imported."""
    platform = server.access.platform
    if platform is not None and not platform.is_stored:
        imported = asyncio.Event()
        platform.changed.append(imported.set)
        running = asyncio.ensure_future(_run_controllers(server, is_stored=False))
        waiting = asyncio.ensure_future(imported.wait())
        try:
            await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
        finally:
            running.cancel()
            waiting.cancel()
            await asyncio.wait((running, waiting))
    await _run_controllers(server, is_stored=platform is not None)


async def _run_controllers(server: Assembly, *, is_stored: bool) -> None:
    context = controlling.controller_context(
        server.settings,
        server.files,
        server.clock,
        server.access.keys.legacy_signer,
        server.notice_metrics,
        stores_authority=is_stored,
        hsm=server.access.hsm,
    )
    if not is_stored:
        known = controlling.authorities(context.signers)
        await note_keys(server.store, "authority", known, server.clock.now())
    await run_controllers(server.wanted_controllers, server.clients, context)
