"""Requests whose body is still arriving: authentication of the sender, and limits of the buffered
bytes.

The sender of a body is authenticated after its head: a refused client gets its response before the
body is read. Bytes of unknown clients are counted, all together and by address; beyond the limits
the oldest of their connections are ended (`ListenerState.drop_excess`).
"""

from collections.abc import Callable

from orchid.kernel.http.listener_state import ListenerState, OpenConnection
from orchid.kernel.http.messages import CallerStatus, HttpRequest
from orchid.kernel.http.reading.reader import RequestReader
from orchid.kernel.http.streaming import PendingRecognition, carry_on


class UnfinishedRequest:
    """The request that is arriving on one connection."""

    __slots__ = ("_connection", "_held", "_reader", "_service", "address", "counted", "sender")

    def __init__(
        self,
        service: ListenerState,
        connection: OpenConnection,
        reader: RequestReader,
        held: bytearray,
        address: str,
    ) -> None:
        self._service = service
        self._connection = connection
        self._reader = reader
        self._held = held  # read from the socket, but not by the reader
        self.address = address
        self.sender: CallerStatus | None = None  # None: not authenticated yet, or pending
        self.counted = False  # whether its bytes are counted

    def ask(
        self, request: HttpRequest, answered: Callable[[CallerStatus], None]
    ) -> PendingRecognition | None:
        """Authenticate the sender; if that takes time, `answered` is called with the result."""
        service = self._service
        if service.recognize is None:
            self.sender = CallerStatus.UNKNOWN
            return None
        context = service.context.copy()
        asking = service.recognize(request)
        try:
            awaited = context.run(asking.send, None)
        except StopIteration as done:
            self.recognize(done.value)
        except Exception:  # the request itself will fail in the same way, and report it
            self.sender = CallerStatus.UNKNOWN
        else:
            return PendingRecognition(answered, service, carry_on(asking, awaited), context)
        return None

    def recognize(self, sender: CallerStatus) -> None:
        """Set the result; the body of a refused client is not read."""
        self.sender = sender
        if sender is CallerStatus.KNOWN:
            self.release()
        elif sender is CallerStatus.REFUSED:
            self._reader.give_up_body()

    def count(self) -> None:
        """Count received bytes; that may end this connection, or another."""
        self.counted = True
        size = self._reader.unread_bytes + len(self._held)
        self._service.unread.hold(self._connection, self.address, size)
        self._service.drop_excess(self.address)

    def release(self) -> None:
        """Stop counting."""
        if self.counted:
            self.counted = False
            self._service.unread.release(self._connection)
