"""The program of a worker process, which kernel/workers/parent.py starts.

Its only argument is the number of an inherited socket, over which the parent sends everything else.
It ends on SIGTERM from the parent (after draining) and when the parent is gone.
"""

import asyncio
import logging
import signal
import socket
import sys

import uvloop

from orchid.assembly.settings import read
from orchid.assembly.worker import serve_as_worker
from orchid.kernel.base import telemetry
from orchid.kernel.base.clock import SystemClock
from orchid.kernel.settings.checking import Settings, check
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.store.interface import StoreUnavailable
from orchid.kernel.workers.messages import UnfitMessage
from orchid.kernel.workers.remote_store import RemoteStore

log = logging.getLogger(__name__)

UNFIT, ORPHANED = 2, 3
GIVE_UP_SECONDS = 2.0
HEARD_SECONDS = 30.0


def main() -> int:
    """Work until stopped; return the exit code."""
    # Ctrl-C reaches the parent as well, which then stops the workers in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return uvloop.run(work(socket.socket(fileno=int(sys.argv[1]))))


async def work(link: socket.socket) -> int:
    """Serve as the parent requests over the link."""
    try:
        store = await RemoteStore.connect(link, SystemClock.monotonic)
    except StoreUnavailable:
        return ORPHANED
    beating = asyncio.create_task(store.beat())
    settings = check(read(None, store.begin.given))
    telemetry.configure(settings.given.log_level, settings.given.log_format)
    try:
        return await _serve(settings, store)
    finally:
        beating.cancel()


async def _serve(settings: Settings, store: RemoteStore) -> int:
    stop = asyncio.Event()
    serving = asyncio.ensure_future(serve_as_worker(settings, store, stop))

    def end() -> None:
        stop.set()
        if not store.opened.is_set():
            serving.cancel()  # no client is served yet, so there is nothing to drain

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
    await asyncio.wait([serving, store.link.lost], return_when=asyncio.FIRST_COMPLETED)
    if not serving.done():
        log.error("worker.parent_gone")
        serving.cancel()
        await asyncio.wait([serving], timeout=GIVE_UP_SECONDS)
        return ORPHANED
    problem = None if serving.cancelled() else _foreseen(serving.exception())
    if problem is not None:
        # Closing the socket now could lose the message; the parent closes it after reading.
        store.link.send(UnfitMessage(str(problem)))
        await asyncio.wait([store.link.lost], timeout=HEARD_SECONDS)
    await store.close()
    return UNFIT if problem else 0


def _foreseen(failure: BaseException | None) -> BadSettings | None:
    """The bad setting behind a failure; raises any other failure."""
    if failure is None or isinstance(failure, BadSettings):
        return failure
    if isinstance(failure, BaseExceptionGroup) and (foreseen := failure.subgroup(BadSettings)):
        failure = foreseen.exceptions[0]
        if isinstance(failure, BadSettings):
            return failure
    raise failure


if __name__ == "__main__":
    sys.exit(main())
