"""The requests of one turn of the event loop, in stages: decrypt, parse, handle, encrypt all.

Under load, many sockets are ready in one turn. The code of one stage then stays in the processor's
caches for all of them, where the code of a complete request would evict its own beginning: with 32
connections a get takes a quarter less CPU time (docs/decisions/0040-stages.md). Responses leave no
later than before, because the event loop writes to its sockets at the end of a turn in any case.

On a store that other servers write to, the requests of a turn first wait together until their
writes are here (earlier_writes.py).

`Stages.receive` is called by a channel (tls/channel.py) with new data. While `handling`, channels
may hold back short responses for the last stage. A channel that fails affects no other.
"""

import asyncio
from typing import Final, Protocol

from orchid.kernel.base.clock import Monotonic
from orchid.kernel.base.scheduling.shared_result import Step
from orchid.kernel.http.earlier_writes import EarlierWrites, Refresh

# Connections that are served together. With more of them, the first response would wait longer.
TOGETHER: Final = 32


class Handling(Protocol):
    """What the handlers of requests see of the stages."""

    # The time since which the current requests have waited together for earlier writes; 0 if they
    # have not. They had all arrived by then.
    waited_since: float


class StagedChannel(Protocol):
    """A connection whose work is done in stages."""

    @property
    def known(self) -> bool:
        """Whether a request on it was authenticated."""

    def decrypt_received(self) -> bytes:
        """Decrypt the data of this turn; empty if there is nothing to handle."""

    def parse(self, data: bytes) -> None:
        """Read the requests in decrypted data."""

    def handle(self) -> None:
        """Handle the requests that were read."""

    def encrypt_unsent(self) -> None:
        """Encrypt and send the responses that were held back."""

    def abort(self) -> None:
        """End the connection: its work has failed."""


class Stages:
    """The channels of one event loop that have work in this turn."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        current: Handling,
        *,
        monotonic: Monotonic,
        refresh: Refresh | None = None,
    ) -> None:
        """`refresh`: what requests of known clients wait for together; None: for nothing."""
        self._loop = loop
        self._current = current
        self._writes = refresh and EarlierWrites[StagedChannel](
            loop, refresh, self._serve_fresh, monotonic=monotonic, together=TOGETHER
        )
        self._received: list[StagedChannel] = []
        self._unsent: list[StagedChannel] = []
        self.handling = False

    def receive(self, channel: StagedChannel) -> None:
        """Handle the data of a channel, after all sockets of this turn were read."""
        if not self._received:
            self._loop.call_soon(self._run)
        self._received.append(channel)

    def send_later(self, channel: StagedChannel) -> None:
        """Let a channel send in the last stage; only while `handling`."""
        self._unsent.append(channel)

    def run_steps(self, steps: list[Step]) -> None:
        """Continue with requests that have waited together, a few in each turn."""
        if len(steps) > TOGETHER:
            self._loop.call_soon(self.run_steps, steps[TOGETHER:])
        self.handling = True
        for step in steps[:TOGETHER]:
            try:
                step()
            except Exception as problem:
                self._report(problem)
        self.handling = False
        self._send()

    def stop_waiting(self) -> None:
        """Handle all that was received, now, without waiting for earlier writes together."""
        if self._writes is not None:
            self._writes.stop_waiting()
        while self._received:
            self._serve(self._next_received())

    def _run(self) -> None:
        received = self._next_received()
        if self._received:
            self._loop.call_soon(self._run)
        if self._writes is None:
            self._serve(received)
            return
        # Unauthenticated clients cause no store query.
        authenticated = [channel for channel in received if channel.known]
        if len(authenticated) < len(received):
            self._serve([channel for channel in received if not channel.known])
        if authenticated:
            self._writes.wait_for(authenticated)

    def _next_received(self) -> list[StagedChannel]:
        received = self._received[:TOGETHER]
        del self._received[:TOGETHER]
        return received

    def _serve_fresh(self, channels: list[StagedChannel], since: float) -> None:
        self._current.waited_since = since
        try:
            self._serve(channels)
        finally:  # later requests must never seem to have waited
            self._current.waited_since = 0.0

    def _serve(self, received: list[StagedChannel]) -> None:
        parsed = self._parse(self._decrypt(received))
        self.handling = True
        for channel in parsed:
            try:
                channel.handle()
            except Exception as problem:
                self._failed(channel, problem)
        self.handling = False
        self._send()

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, []
        for channel in unsent:
            try:
                channel.encrypt_unsent()
            except Exception as problem:
                self._failed(channel, problem)

    def _decrypt(self, received: list[StagedChannel]) -> list[tuple[StagedChannel, bytes]]:
        decrypted = []
        for channel in received:
            try:
                if data := channel.decrypt_received():
                    decrypted.append((channel, data))
            except Exception as problem:
                self._failed(channel, problem)
        return decrypted

    def _parse(self, decrypted: list[tuple[StagedChannel, bytes]]) -> list[StagedChannel]:
        parsed = []
        for channel, data in decrypted:
            try:
                channel.parse(data)
                parsed.append(channel)
            except Exception as problem:
                self._failed(channel, problem)
        return parsed

    def _failed(self, channel: StagedChannel, problem: Exception) -> None:
        """Treat an exception as the event loop treats one in a callback of a socket."""
        self._report(problem)
        channel.abort()

    def _report(self, problem: Exception) -> None:
        message = "the work of a connection has failed"
        self._loop.call_exception_handler({"message": message, "exception": problem})
