"""The life of a server: start, serve until asked to stop, drain."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from orchid.assembly import order
from orchid.assembly.controllers.local_controllers import control
from orchid.assembly.features import FEATURES
from orchid.assembly.listeners import plain_listener
from orchid.assembly.server import Assembly
from orchid.features.console.settings import ConsoleSettings
from orchid.kernel.base import process_memory
from orchid.kernel.feature import Background
from orchid.kernel.http.listener import Listener
from orchid.kernel.settings.errors import BadSettings, NotAvailable
from orchid.kernel.wire.errors import Unavailable

if TYPE_CHECKING:
    from orchid.assembly.console.listener import ServedConsole

log = logging.getLogger(__name__)

Work = Coroutine[Any, Any, None]
Ready = Callable[[], Awaitable[Sequence[socket.socket]]]


async def start(server: Assembly) -> None:
    """Load every object, and write the objects that must always exist."""
    try:
        await server.feed.wait_loaded()
        for feature in order.by_name(FEATURES, order.PREPARE):
            if feature.prepare is not None:
                await feature.prepare(server.context)
    except Unavailable as problem:  # a full disk, or etcd went away
        raise NotAvailable(f"the server cannot start: {problem}") from None


async def run(
    server: Assembly,
    stop: asyncio.Event,
    ready: Ready,
    *,
    beside: Sequence[Work] = (),
    prepares: bool = True,
    listens: bool = True,
    controls: bool = True,
) -> None:
    """Load, prepare, serve until `stop` is set, then drain; flags leave out parts.

    `ready` is awaited before serving, and returns the sockets to listen on. The coroutines in
    `beside` run as long as the server does.
    """
    work = list(_of_features(server, controls))
    process_memory.prepare()
    async with asyncio.TaskGroup() as tasks:
        background = [tasks.create_task(task) for task in (server.feed.run(), *beside)]
        await (start(server) if prepares else server.feed.wait_loaded())
        if prepares:
            await _each(each.begin for each in work)
        listener = server.listener() if prepares else None
        # Their settings are in use before the server is announced.
        listeners, beside_them = await _other_listeners(server) if controls else ([], [])
        process_memory.settle()
        sockets = await ready()
        listener = listener or server.listener()  # another process has prepared its files
        if listens:
            await listener.start(sockets=sockets, shares=server.settings.given.workers > 1)
            listeners.insert(0, listener)
        upkeep = (*beside_them, *_upkeep(server, work, controls))
        background += [tasks.create_task(task) for task in upkeep]
        reports = [each.report() for each in work if listens and each.report is not None]
        reporting = [tasks.create_task(report) for report in reports]
        controllers = tasks.create_task(control(server)) if controls else None
        await stop.wait()
        _begin_to_stop(server, work)
        if controllers is not None:
            await _stop(controllers)  # first, so that another server can take over immediately
        for each in listeners:
            await each.drain(server.settings.shutdown_grace)
        _cancel(reporting)
        if listens:
            await _each(each.leave for each in reversed(work))
        _cancel(background)
    await _each(each.close for each in work)
    server.close()


def _begin_to_stop(server: Assembly, work: Iterable[Background]) -> None:
    server.readiness.stopping = True
    for each in work:
        if each.stopping is not None:
            each.stopping()
    log.info("server.stopping")


def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()


def _of_features(server: Assembly, controls: bool) -> Iterator[Background]:
    for feature in FEATURES:
        if feature.background is not None:
            yield from feature.background(server.context, controls)


async def _each(steps: Iterable[Callable[[], Awaitable[None]] | None]) -> None:
    for step in steps:
        if step is not None:
            await step()


async def _other_listeners(server: Assembly) -> tuple[list[Listener], list[Work]]:
    """The listeners of features and of the console, started, and what runs beside them."""
    offered = [each.plain_http(server.context) for each in FEATURES if each.plain_http]
    monotonic = server.clock.monotonic
    listeners = [await plain_listener(server.settings, each, monotonic) for each in offered if each]
    console = await _console(server)
    if console is None:
        return listeners, []
    return [*listeners, console.listener], [console.run()]


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


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


def _upkeep(server: Assembly, work: Iterable[Background], controls: bool) -> list[Work]:
    """The background tasks; of several processes only one warns and writes files."""
    tasks = [each.run() for each in work if each.run is not None]
    tasks += [server.watches.run(), server.watchdog.run(), server.ends.run(warns=controls)]
    tasks.append(asyncio.to_thread(process_memory.enlarge_pages))
    tasks += [server.probe.run()] if server.probe is not None else []
    return [*tasks, server.host.run()] if controls else tasks
