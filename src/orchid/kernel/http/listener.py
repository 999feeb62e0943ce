"""The listener: sockets, TLS, and the lifetime of connections.

Start with `Listener`. It accepts, passes each socket to a `Connection`, enforces timeouts, reloads
the TLS files when they change, and drains. HTTP on a connection is in connection.py, parsing in
reading/, the interface to the rest of the server in messages.py.

Accepting is done here rather than by asyncio's server, so that handshakes count as connections, the
limit applies before a client costs anything, and each connection gets the newest TLS context.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from math import inf
from typing import Final

from orchid.kernel.base.clock import Monotonic
from orchid.kernel.base.scheduling.step_queue import StepQueue
from orchid.kernel.http.budget import Budget, network_of
from orchid.kernel.http.connection import Connection
from orchid.kernel.http.earlier_writes import Refresh
from orchid.kernel.http.listener_state import ConnectionLimits, Failure, ListenerState
from orchid.kernel.http.messages import Handler, Recognize, Response
from orchid.kernel.http.peer import host_and_port
from orchid.kernel.http.stages import Stages
from orchid.kernel.http.tls.channel import TlsChannel
from orchid.kernel.http.tls.files import TlsFiles

__all__ = ["ConnectionLimits", "Listener"]

log = logging.getLogger(__name__)

_BACKLOG: Final = 1024
# In one turn of the event loop: steps of handshakes, and initial pieces of watches.
HANDSHAKES_AT_ONCE: Final = 4
PIECES_AT_ONCE: Final = 4
READINGS_AT_ONCE: Final = 4  # connections that continue decrypting
_ACCEPTS_AT_ONCE: Final = 16  # each costs a signature in its handshake
_LOOK_AT_FILES_EVERY: Final = 5.0
_RUSH: Final = 100  # handshakes after which freed memory is returned immediately
_RUSH_SECONDS: Final = 0.2  # at least, between two calls
_CALM_SECONDS: Final = 10.0  # after fewer handshakes than that
_KEEP_ALIVE_SECONDS: Final = 180  # as in Kubernetes: a dead client's watch ends
_SHUTDOWN_SECONDS: Final = 2.0
_LOOK_SECONDS = 0.01  # between two looks at requests that wait without a task
_INTERNET: Final = frozenset({socket.AF_INET, socket.AF_INET6})
# Too many open files or too little memory: wait, and accept again later.
_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Listener:
    """Serves HTTP/1.1 to a handler, over TLS unless `tls` is None."""

    _handshakes: StepQueue  # created when listening starts, and so is:
    _readings: StepQueue  # for connections with much data to decrypt
    _stages: Stages  # for all others

    def __init__(
        self,
        handler: Handler,
        *,
        timeout_response: Response,
        failure: Failure,
        monotonic: Monotonic,
        limits: ConnectionLimits | None = None,
        tls: TlsFiles | None = None,
        recognize: Recognize | None = None,
        refresh: Refresh | None = None,
        after_rush: Callable[[], None] = lambda: None,
    ) -> None:
        """`recognize` authenticates the sender of a head before the body is read.

        `refresh` is awaited before the requests of a turn are handled. `after_rush` is called after
        many handshakes.
        """
        self._limits = limits or ConnectionLimits()
        self._tls = tls
        self._service = ListenerState(
            handler,
            self._limits,
            timeout_response,
            failure,
            recognize=recognize,
            monotonic=monotonic,
        )
        self._sockets: list[socket.socket] = []
        self._names: list[tuple[str, int]] = []
        self._accepting = False
        self._accepts_at_once = _ACCEPTS_AT_ONCE
        self._arriving: set[asyncio.Task[None]] = set()
        self._shaking_hands = Budget[TlsChannel](
            self._limits.max_handshakes, self._limits.max_handshakes_per_address
        )
        self._timer: asyncio.TimerHandle | None = None
        self._look_at_files = 0.0
        self._refresh = refresh
        self._after_rush = after_rush
        self._rush = 0  # handshakes since the last call
        self._tidied = -inf  # time of the last call
        self.failed_handshakes = 0

    # Metrics

    @property
    def port(self) -> int:
        """The port of the first socket; 0 if it has none."""
        return self._names[0][1] if self._names else 0

    @property
    def addresses(self) -> list[str]:
        """Its addresses, as host:port."""
        return [host_and_port(host, port) for host, port in self._names]

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._service.connections)

    @property
    def requests(self) -> int:
        """The number of requests passed to the handler."""
        return self._service.requests

    @property
    def refusals(self) -> int:
        """Requests that were malformed or took too long to arrive."""
        return self._service.refusals

    @property
    def dropped(self) -> int:
        """Connections and handshakes of unknown clients that were ended to make room."""
        return self._service.dropped

    @property
    def cut_off(self) -> int:
        """Streams that were aborted because their reader was too slow."""
        return self._service.cut_off

    # Lifetime

    async def start(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        sockets: Sequence[socket.socket] = (),
        shares: bool = False,
    ) -> None:
        """Listen on an address, or on sockets that are bound already; port 0 picks a free one.

        From sockets that it `shares` with other processes it accepts one connection at a time, so
        that a burst is spread over all idle processes.
        """
        self._accepts_at_once = 1 if shares else _ACCEPTS_AT_ONCE
        self._sockets = list(sockets) or await bind(host, port)
        for bound in self._sockets:
            _prepare(bound)
            if bound.family in _INTERNET:
                self._names.append(bound.getsockname()[:2])
        self._service.loop = asyncio.get_running_loop()
        self._service.context = copy_context()
        self._service.streams = StepQueue(self._service.loop, PIECES_AT_ONCE)
        self._handshakes = StepQueue(self._service.loop, HANDSHAKES_AT_ONCE)
        self._readings = StepQueue(self._service.loop, READINGS_AT_ONCE)
        self._stages = Stages(
            self._service.loop,
            self._service,
            monotonic=self._service.monotonic,
            refresh=self._refresh,
        )
        self._service.run_steps = self._stages.run_steps
        self._accept_again()
        self._sweep()

    async def drain(self, grace: float) -> None:
        """Stop accepting, let running requests finish, then return.

        Connections that have not ended after `grace` seconds are aborted.
        """
        service = self._service
        service.draining = True
        self._stop_accepting()
        for bound in self._sockets:
            bound.close()
        for task in self._arriving:
            task.cancel()
        for channel in self._shaking_hands:
            channel.abort()
        self._stages.stop_waiting()
        for connection in tuple(service.connections):
            connection.drain()
        service.settle()
        try:
            async with asyncio.timeout(grace):
                await self._all_ended()
        except TimeoutError:
            await self._cut_off_all()
        await asyncio.gather(*self._arriving, return_exceptions=True)
        service.deadlines.close()
        if self._timer is not None:
            self._timer.cancel()

    async def _all_ended(self) -> None:
        """Wait for the last connection, then for handlers whose clients have gone."""
        await self._service.quiet.wait()
        while self._service.waiting or self._service.tasks:
            if tasks := self._service.tasks:
                await asyncio.wait(tasks)
            else:
                await asyncio.sleep(_LOOK_SECONDS)

    async def _cut_off_all(self) -> None:
        for connection in tuple(self._service.connections):
            connection.abort()
        for task in tuple(self._service.tasks):
            task.cancel()
        for request in tuple(self._service.waiting):
            request.cancel()
        try:
            async with asyncio.timeout(_SHUTDOWN_SECONDS):
                await self._all_ended()
        except TimeoutError:
            left = len(self._service.tasks) + len(self._service.waiting)
            log.error("listener.drain_incomplete: %d", left)

    # Accepting

    def _accept_again(self) -> None:
        if not self._accepting and not self._service.draining:
            self._accepting = True
            for bound in self._sockets:
                self._service.loop.add_reader(bound, self._accept, bound)

    def _stop_accepting(self) -> None:
        if self._accepting:
            self._accepting = False
            for bound in self._sockets:
                self._service.loop.remove_reader(bound)

    def _is_full(self) -> bool:
        arriving = len(self._arriving) + len(self._shaking_hands)
        return self.connections + arriving >= self._limits.max_connections

    def _accept(self, bound: socket.socket) -> None:
        for _ in range(self._accepts_at_once):
            is_full = self._is_full()
            if is_full and not self._can_make_room():
                self._stop_accepting()  # the next sweep tries again
                return
            try:
                client, peername = bound.accept()
            except OSError as problem:
                if problem.errno in _SHORTAGES:
                    log.warning("listener.cannot_accept: %s", problem.strerror)
                    self._make_room()
                    self._stop_accepting()
                return
            if is_full:
                self._make_room()
            client.setblocking(False)
            task = self._service.loop.create_task(self._admit(client, network_of(peername)))
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)

    def _can_make_room(self) -> bool:
        return len(self._shaking_hands) > 0 or self._service.oldest_unknown() is not None

    def _make_room(self) -> None:
        """End the oldest connection of an unknown client, or else the oldest handshake."""
        connection, channel = self._service.oldest_unknown(), self._shaking_hands.oldest()
        if connection is not None:
            self._service.drop(connection)
        elif channel is not None:
            self._drop(channel)

    def _drop(self, channel: TlsChannel) -> None:
        self._shaking_hands.release(channel)
        self._service.dropped += 1
        channel.abort()

    async def _admit(self, client: socket.socket, address: str) -> None:
        with suppress(OSError):  # the client has gone again
            await self._service.loop.connect_accepted_socket(
                lambda: self._protocol(address), client
            )

    def _protocol(self, address: str) -> asyncio.Protocol:
        tls = self._tls
        if tls is None:
            return Connection(self._service)
        verified = tls.verifies_clients

        def opened(channel: TlsChannel) -> Connection:
            self._shaking_hands.release(channel)
            self._rush += 1
            if self._rush >= _RUSH:
                self._tidy(_RUSH_SECONDS)
            return Connection(self._service, peer_is_verified=verified)

        deadline = self._service.monotonic() + self._limits.header_timeout
        channel = TlsChannel(
            tls.context,
            self._handshakes.run,
            opened,
            self._handshake_failed,
            deadline=deadline,
            later=self._readings.add,
            soon=self._readings.run,
            stages=self._stages,
            monotonic=self._service.monotonic,
        )
        self._shaking_hands.hold(channel, address)
        while (oldest := self._shaking_hands.excess(address)) is not None:
            self._drop(oldest)
        return channel

    def _tidy(self, pause: float) -> None:
        now = self._service.monotonic()
        if now >= self._tidied + pause:
            self._rush, self._tidied = 0, now
            self._after_rush()

    def _handshake_failed(self, channel: TlsChannel) -> None:
        """Count a failed handshake: noise, a scan, or a client that does not trust us."""
        self._shaking_hands.release(channel)
        self.failed_handshakes += 1

    # Timeouts

    def _sweep(self) -> None:
        """End everything past its deadline; one sweep for all, so that a request needs no timer."""
        service = self._service
        now = self._service.monotonic()
        service.tick()
        for connection in [late for late in service.connections if late.deadline <= now]:
            connection.expire(now)
        for channel in [late for late in self._shaking_hands if late.deadline <= now]:
            channel.abort()
        if not self._is_full() or self._can_make_room():
            self._accept_again()
        if self._rush and not self._shaking_hands:
            self._tidy(_CALM_SECONDS)
        if self._tls is not None and now >= self._look_at_files:
            self._look_at_files = now + _LOOK_AT_FILES_EVERY
            self._tls.poll()
        self._timer = service.loop.call_later(self._interval(), self._sweep)

    def _interval(self) -> float:
        return max(0.01, min(1.0, self._limits.shortest / 4))


async def bind(host: str, port: int) -> list[socket.socket]:
    """Bind every address of a host; all get the same port, also a free one."""
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    bound: list[socket.socket] = []
    try:
        for family, kind, protocol, _name, address in dict.fromkeys(addresses):
            listening = socket.socket(family, kind, protocol)
            bound.append(listening)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind((address[0], port, *address[2:]))
            port = port or listening.getsockname()[1]
    except OSError:
        for listening in bound:
            listening.close()
        raise
    return bound


def _prepare(bound: socket.socket) -> None:
    """Listen, with options that accepted sockets inherit."""
    bound.setblocking(False)
    if bound.family in _INTERNET:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEP_ALIVE_SECONDS)
    bound.listen(_BACKLOG)
