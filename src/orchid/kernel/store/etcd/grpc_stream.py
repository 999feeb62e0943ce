"""GrpcStream: one call of a connection, with its messages in both directions.

A connection (grpc_connection.py) sends what a stream has to send, and passes on what it receives.
"""

import asyncio
from collections import deque
from typing import Final, Protocol

from orchid.kernel.store.etcd.frames import PROTOCOL_ERROR, ProtocolError
from orchid.kernel.store.etcd.grpc_calls import GrpcFailure, NotProcessed, OutcomeUnknown

LARGEST_MESSAGE: Final = 1 << 30
_NOTHING: Final = memoryview(b"")
_PREFIX: Final = 5  # of a message: whether it is compressed, and its length


class StreamOwner(Protocol):
    """What a stream needs of its connection."""

    loop: asyncio.AbstractEventLoop

    def send(self, stream: "GrpcStream") -> None:
        """Send its data, as far as possible now."""

    def credit(self, stream: "GrpcStream") -> None:
        """Let the peer send more, unless too much waits for its reader."""

    def cancel(self, stream: "GrpcStream", failure: GrpcFailure) -> None:
        """End the call; the peer is notified."""


class GrpcStream:
    """One call: its messages in both directions."""

    __slots__ = (
        "_connection",
        "block",
        "deadline",
        "done",
        "ended",
        "failure",
        "held",
        "id",
        "is_sent",
        "messages",
        "outgoing",
        "send_window",
        "status",
        "uncredited",
        "unread",
        "wakeup",
    )

    def __init__(self, connection: StreamOwner, block: bytes, deadline: float | None) -> None:
        self._connection = connection
        self.block = block
        self.deadline = deadline
        self.id = 0  # until it is opened
        self.outgoing = _NOTHING  # not sent yet
        self.ended = False  # nothing more will be sent after `outgoing`
        self.is_sent = False  # the whole request, with its end, was passed to the transport
        self.send_window = 0
        self.uncredited = 0  # bytes received that the peer may not send again yet
        self.held = bytearray()  # of an incomplete message
        self.messages: deque[bytes] = deque()
        self.unread = 0  # bytes in `messages`
        self.status: bytes | None = None  # of HTTP
        self.done = False
        self.failure: GrpcFailure | None = None
        self.wakeup: asyncio.Future[None] | None = None

    def write(self, message: bytes, *, last: bool = False) -> None:
        """Send a message; `last` ends our side of the call."""
        sent = b"\x00" + len(message).to_bytes(4) + message
        self.outgoing = memoryview(bytes(self.outgoing) + sent if self.outgoing else sent)
        self.ended = last
        self._connection.send(self)

    async def read(self) -> bytes | None:
        """The next message; None when the call has ended with OK."""
        while not self.messages:
            if self.failure is not None:
                raise self.failure
            if self.done:
                return None
            self.wakeup = self._connection.loop.create_future()
            try:
                await self.wakeup
            finally:
                self.wakeup = None
        message = self.messages.popleft()
        self.unread -= len(message) + _PREFIX
        if not self.done:
            self._connection.credit(self)
        return message

    def take(self, data: bytes) -> None:
        """Parse complete messages; their boundaries are not those of frames."""
        if self.held:
            self.held += data
            if len(self.held) < _message_size(self.held):
                return
            data, self.held = bytes(self.held), bytearray()
        at, end = 0, len(data)
        while end - at >= _PREFIX and end - at >= (size := _message_size(data, at)):
            self.messages.append(data[at + _PREFIX : at + size])
            self.unread += size
            at += size
            self.wake()
        if at < end:
            self.held += data[at:]

    def cancel(self, failure: GrpcFailure | None = None) -> None:
        """End the call; a reader gets the failure."""
        if not self.done:
            self._connection.cancel(self, failure or OutcomeUnknown("the call was cancelled"))

    def finish(self, failure: GrpcFailure | None) -> None:
        self.done, self.failure = True, failure
        self.outgoing = _NOTHING
        self.wake()

    def wake(self) -> None:
        if self.wakeup is not None and not self.wakeup.done():
            self.wakeup.set_result(None)

    def lost(self, reason: str) -> GrpcFailure:
        """The failure of a call whose connection is gone: unsent calls were not executed."""
        return OutcomeUnknown(reason) if self.is_sent else NotProcessed(reason)


def _message_size(data: bytes | bytearray, at: int = 0) -> int:
    """The size of a message with its prefix, or of the prefix alone while that is incomplete."""
    if len(data) - at < _PREFIX:
        return _PREFIX
    size = int.from_bytes(data[at + 1 : at + _PREFIX])
    if data[at] or size > LARGEST_MESSAGE:
        raise ProtocolError(PROTOCOL_ERROR, "a message that is compressed or too large")
    return _PREFIX + size
