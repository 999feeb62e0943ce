"""The interface of the listener: a request in, a response or a stream out.

Start with `Handler`: one coroutine function from `HttpRequest` to `Response` or `Stream`. Nothing
here touches a socket, and nothing beyond listener.py, connection.py and tls/ does.

The rule for handlers: the listener drives a handler's coroutine *eagerly*. Until its first
suspension there is no task (`asyncio.current_task()` is None), so that a response from memory costs
no trip through the event loop. Therefore, before the first `await` that really waits, a handler
uses neither `asyncio.timeout` nor `asyncio.TaskGroup` nor anything else that needs the current
task. Afterwards it runs inside an ordinary task, which is cancelled when `HttpRequest.timeout` has
passed since that first suspension. A handler that needs such tools from its first line begins with
`await asyncio.sleep(0)`. Waiting for a result that requests share, or for a commit on etcd
(kernel/base/scheduling/shared_result.py), does not begin a task, as if the result had been there.
Context variables set by a handler are its own: each request runs in a copy of the context.

A disconnected client does not cancel a handler: it runs to its end and its response is dropped.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol

import msgspec


class Peer:
    """The peer of one connection; lives as long as the connection does."""

    __slots__ = ("__weakref__", "address", "certificate", "chain", "known", "verified_by_tls")

    def __init__(
        self,
        address: str,
        certificate: bytes | None = None,
        *,
        chain: tuple[bytes, ...] = (),
        verified_by_tls: bool = False,
    ) -> None:
        self.address = address  # ip:port, or "" without an address
        # DER of the leaf certificate. The handshake proves that the client holds its key; that a
        # trusted
        # CA issued it is only verified if `verified_by_tls`.
        self.certificate = certificate
        self.chain = chain  # DER of the intermediates it sent, if available
        self.verified_by_tls = verified_by_tls
        # A request on this connection was authenticated. It says nothing about other requests.
        self.known = False


class HeadMemo(msgspec.Struct, eq=False):
    """Results that depend on the headers of a request alone, cached beside them by its handler."""

    facts: Any = None  # values of the headers
    caller: Any = None  # the result of authentication

    __repr__ = object.__repr__  # shows no field: the caller is in it


class HttpRequest(msgspec.Struct, eq=False):
    """A complete request with its body; nothing in it is decoded or trusted."""

    method: str
    target: str  # as sent: path?query, or a whole URL
    path: str  # still percent-encoded
    query: str  # without the question mark; "" if there is none
    # Names in lower case, the first value of each. Requests with equal headers may share them.
    headers: Mapping[str, str]
    peer: Peer
    body: bytes = b""
    repeated: list[tuple[str, str]] = []  # the second and later values of headers
    # The body exceeded the limit: `body` is empty, and the connection ends after the response.
    too_large: bool = False
    # Seconds the handler may take once it suspends; it may change this until then.
    timeout: float = 60.0
    # If the requests of its turn have waited together for earlier writes: since when.
    waited_since: float = 0.0
    # Cache of values that depend on the headers alone. Requests on the same connection with exactly
    # the same header bytes, except the value of Content-Length, share it.
    memo: HeadMemo = msgspec.field(default_factory=HeadMemo)

    __repr__ = object.__repr__  # shows no field: there are tokens in it

    def all(self, name: str) -> list[str]:
        """Every value of a header, in the order sent; `name` is in lower case."""
        first = self.headers.get(name)
        if first is None:
            return []
        return [first, *(value for other, value in self.repeated if other == name)]


class Arrived(msgspec.Struct, eq=False):
    """A request, and its requirements for the connection."""

    request: HttpRequest
    keep_alive: bool
    chunked: bool  # the client supports chunked responses: HTTP/1.1
    answered: bool = False  # the response was sent, or the client is gone
    lingers: bool = False  # the client may still be sending a body that is not read


class Response(msgspec.Struct, eq=False):
    """A complete response; the listener adds Content-Length, Date and Connection."""

    status: int
    headers: bytes = b""  # rendered lines, each ending in CRLF; no Content-Length
    body: bytes | bytearray = b""  # a long list is a bytearray: it grows without a copy
    is_cached: bool = False  # the body is cached elsewhere: a slow client costs no memory

    __repr__ = object.__repr__  # shows no field: there may be tokens in it


class Chunk:
    """A piece of a stream; its HTTP framing is created once and shared by all streams.

    A piece with complete watch events may have them as objects, for readers in this process.
    """

    __slots__ = ("data", "events", "framed")

    def __init__(self, data: bytes, events: Sequence[Any] = ()) -> None:
        self.data = data
        self.events = events  # each a type and an Entry; empty if there are only bytes
        # An empty chunk would end the stream (RFC 9112, 7.1), so it frames to nothing.
        self.framed = b"%x\r\n%b\r\n" % (len(data), data) if data else b""


class Sink(Protocol):
    """The destination of one stream."""

    def send(self, chunk: Chunk) -> None:
        """Write or queue a chunk, never blocking; does nothing once closed.

        A client that leaves more than the limit unread is disconnected: that closes the sink.
        """

    def when_taken(self, step: Callable[[], None]) -> None:
        """Call `step` from the event loop once the client has read what was sent.

        For large amounts of data. It is not called once the stream is over.
        """

    def finish(self) -> None:
        """End the stream properly; the connection may carry another request."""

    def abort(self) -> None:
        """Abort the connection without the final chunk, so that the client sees a broken stream."""

    @property
    def closed(self) -> bool:
        """Whether the stream is over, for whatever reason."""

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` exactly once when the stream is over, or soon if it already is.

        It is called from the event loop, never from inside `send`, so that a sender to many sinks
        may change the set of them in the callback.
        """


class Stream:
    """A response whose body comes in pieces; `opened` gets the sink once the head is written.

    The listener calls `open` in every case: for a disconnected client, or a HEAD request, with a
    closed sink. So callbacks of `on_close` are always called, once.
    """

    __slots__ = ("_callbacks", "_opened", "_sink", "headers", "status")

    def __init__(self, status: int, headers: bytes, opened: Callable[[Sink], None]) -> None:
        self.status = status
        self.headers = headers
        self._opened = opened
        self._sink: Sink | None = None
        self._callbacks: list[Callable[[], None]] = []

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the stream is over; must be set before it is opened."""
        self._callbacks.append(callback)

    def open(self, sink: Sink) -> None:
        """Start the stream on a sink."""
        self._sink = sink
        # Not stored: they may refer back to the stream, which would then wait for a collection.
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            sink.on_close(callback)
        self._opened(sink)

    def finish(self) -> None:
        """End the stream properly, if it is open."""
        if self._sink is not None:
            self._sink.finish()


class CallerStatus(Enum):
    """Result of authenticating the head of a request."""

    KNOWN = "known"
    UNKNOWN = "unknown"  # anonymous, allowed on this path
    REFUSED = "refused"  # bad credentials: 401 and nothing else


Handler = Callable[[HttpRequest], Coroutine[Any, Any, Response | Stream]]
Recognize = Callable[[HttpRequest], Coroutine[Any, Any, CallerStatus]]
