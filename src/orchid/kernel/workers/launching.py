"""Starting worker processes, with a warm spare.

Start with `Launcher.launch`. A Python program takes most of a second to load its modules. The spare
has loaded them and waits for its first message, so that a worker that dies is replaced sooner. It
holds no objects, and accepts no connection before its first message.
"""

import asyncio
import logging
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from orchid.kernel.base import helper_process

log = logging.getLogger(__name__)


class Launched(NamedTuple):
    """A process that waits for its first message, and our end of its socket."""

    process: asyncio.subprocess.Process
    link: socket.socket


class Launcher:
    """Starts a program with its inherited link, counter and listening sockets."""

    def __init__(
        self, program: Sequence[str], counter: int, sockets: Sequence[socket.socket]
    ) -> None:
        """`program` starts a worker; the number of its socket is added as the last argument."""
        self._program = program
        self._counter = counter
        self._sockets = sockets
        self._spare: Launched | None = None
        self._closed = False

    def descriptors(self, *, listens: bool) -> tuple[int, ...]:
        """The sockets that a process may accept on."""
        return tuple(bound.fileno() for bound in self._sockets) if listens else ()

    async def launch(self, *, listens: bool) -> Launched:
        """A new process; one that listens may be the spare."""
        if listens and self._spare is not None:
            spare, self._spare = self._spare, None
            return spare
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                return Launched(await self._run(theirs.fileno(), listens=listens), ours)
        except BaseException:
            ours.close()
            raise

    async def _run(self, link: int, *, listens: bool) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._program,
            str(link),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=[link, self._counter, *self.descriptors(listens=listens)],
            # It keeps our working directory: paths in its settings may be relative to it.
            env=helper_process.environment(),
        )

    async def refill(self) -> None:
        """Start a spare process for the next listening worker, if there is none."""
        if self._spare is None and not self._closed:
            try:
                await self._put_aside(await self.launch(listens=True))
            except OSError as problem:
                log.warning("workers.no_spare: %s", problem)  # retried when the next worker ends

    async def _put_aside(self, launched: Launched) -> None:
        if self._spare is None and not self._closed:
            self._spare = launched
        else:
            await discard(launched)

    async def close(self) -> None:
        """Close the sockets and end the spare. Idempotent.

        Workers that still accept have their own descriptors of the sockets.
        """
        self._closed = True
        for bound in self._sockets:
            bound.close()
        if self._spare is not None:
            spare, self._spare = self._spare, None
            await discard(spare)


async def discard(launched: Launched) -> None:
    """End a process that has not started any work."""
    launched.link.close()
    send_signal(launched.process, signal.SIGKILL)
    await launched.process.wait()


def send_signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal to a process, unless it has ended."""
    with suppress(ProcessLookupError):
        process.send_signal(number)
