"""The way of a client's requests: `Transport`, and the one over TLS.

`Transport` is what client.py asks for: send a request and get the whole answer, or open a stream
and read it piece by piece. `TlsTransport` speaks HTTP/1.1 over TLS with connections that are kept;
the one that goes straight into our own chain, without sockets, is server/sockets/in_process.py.

Nothing here retries and nothing knows what an object is. A server that cannot be reached, breaks
off or does not speak HTTP raises `ServerUnreachable`; the credential is in no text of it.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import httptools

from orchid.credentials.secret import SecretValue

JSON = "application/json"
TIMEOUT = 60.0
MAX_ANSWER = 256 << 20
MAX_HEADERS = 256
READ_SIZE = 256 * 1024
KEPT_CONNECTIONS = 32

_HTTPS_PORT = 443


class ServerUnreachable(OSError):
    """No usable answer came; whether the request was carried out is not known."""


class Answer(NamedTuple):
    """An answer as it came."""

    status: int
    body: bytes


class ServerRefused(Exception):
    """A stream was not opened; `answer` says why."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"answered with status {answer.status}")
        self.answer = answer


Pieces = AsyncIterator[bytes]


class Transport(Protocol):
    async def send(self, method: str, target: str, body: bytes = b"", media: str = JSON) -> Answer:
        """Send one request and wait for the whole answer."""

    def stream(self, target: str) -> AbstractAsyncContextManager[Pieces]:
        """Open a stream; raises ServerRefused unless the answer is a success."""

    async def close(self) -> None: ...


class TlsTransport:
    """HTTP/1.1 over TLS to one server, with the connections kept for the next request."""

    def __init__(
        self,
        url: str,
        tls: ssl.SSLContext,
        *,
        user_agent: str,
        bearer: Callable[[], SecretValue] | None = None,
        server_name: str = "",
        timeout: float = TIMEOUT,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError(f"{url!r} is not an https address")
        self._host = parts.hostname
        self._port = parts.port or _HTTPS_PORT
        self._prefix = parts.path.rstrip("/")
        self._server_name = server_name or self._host
        self._tls = tls
        self._bearer = bearer
        self._timeout = timeout
        self._fixed = f"Host: {parts.netloc}\r\nUser-Agent: {user_agent}\r\nAccept: {JSON}\r\n"
        self._idle: deque[_Connection] = deque()

    async def send(self, method: str, target: str, body: bytes = b"", media: str = JSON) -> Answer:
        data = self._request(method, target, body, media)
        try:
            async with asyncio.timeout(self._timeout):
                return await self._exchanged(data)
        except TimeoutError:
            raise ServerUnreachable(f"no answer within {self._timeout:g} seconds") from None

    @asynccontextmanager
    async def stream(self, target: str) -> AsyncIterator[Pieces]:
        connection = await self._opened(self._request("GET", target, b"", JSON))
        try:
            yield connection.pieces()
        finally:
            connection.close()

    async def _opened(self, data: bytes) -> "_Connection":
        """A connection on which the head of a successful answer has come."""
        try:
            async with asyncio.timeout(self._timeout):
                connection = await self._connected()
                try:
                    connection.write(data)
                    status = await connection.status()
                    if status != 200:  # noqa: PLR2004 -- OK
                        raise ServerRefused(Answer(status, await connection.rest()))
                except BaseException:
                    connection.close()
                    raise
                return connection
        except TimeoutError:
            raise ServerUnreachable(f"no answer within {self._timeout:g} seconds") from None
        except _ClosedWhileIdle:
            raise ServerUnreachable("the connection was closed without an answer") from None

    async def close(self) -> None:
        while self._idle:
            self._idle.popleft().close()

    async def _exchanged(self, data: bytes) -> Answer:
        while True:
            connection, fresh = self._kept(), False
            if connection is None:
                connection, fresh = await self._connected(), True
            try:
                connection.write(data)
                answer = Answer(await connection.status(), await connection.rest())
            except _ClosedWhileIdle:
                connection.close()
                if fresh:
                    raise ServerUnreachable("the connection was closed without an answer") from None
                continue  # the server had dropped the kept connection; nothing was carried out
            except BaseException:
                connection.close()
                raise
            self._keep(connection)
            return answer

    def _kept(self) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()  # the one used last is the one most likely still open
            if connection.usable:
                return connection
            connection.close()
        return None

    def _keep(self, connection: "_Connection") -> None:
        if connection.usable and len(self._idle) < KEPT_CONNECTIONS:
            self._idle.append(connection)
        else:
            connection.close()

    async def _connected(self) -> "_Connection":
        try:
            reader, writer = await asyncio.open_connection(
                self._host, self._port, ssl=self._tls, server_hostname=self._server_name
            )
        except ssl.SSLError as error:
            raise ServerUnreachable(f"TLS failed: {error.reason or 'handshake'}") from None
        except OSError as error:
            raise ServerUnreachable(f"connection failed: {error.strerror or 'closed'}") from None
        return _Connection(reader, writer)

    def _request(self, method: str, target: str, body: bytes, media: str) -> bytes:
        head = f"{method} {self._prefix}{target} HTTP/1.1\r\n{self._fixed}"
        if body or method not in ("GET", "DELETE"):
            head += f"Content-Type: {media}\r\nContent-Length: {len(body)}\r\n"
        if self._bearer is not None:
            head += f"Authorization: Bearer {self._bearer().reveal()}\r\n"
        return f"{head}\r\n".encode("latin-1") + body


class _ClosedWhileIdle(Exception):
    """A kept connection ended before any byte of an answer."""


class _Connection:
    """One connection and the answer being read from it; the parser calls the `on_` methods."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._begin()

    def _begin(self) -> None:
        self._parser: Any = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._size = 0
        self._headers = 0
        self._heard = self._head_done = self._complete = self._broken = False

    @property
    def usable(self) -> bool:
        """Whether another request may be sent on it."""
        return not (self._broken or self._reader.at_eof() or self._writer.is_closing())

    def write(self, data: bytes) -> None:
        self._begin()
        self._writer.write(data)

    async def status(self) -> int:
        """Wait for the head of the answer."""
        while not self._head_done:
            await self._read()
        return int(self._parser.get_status_code())

    async def rest(self) -> bytes:
        """Wait for the whole body."""
        while not self._complete:
            await self._read()
        return b"".join(self._body)

    async def pieces(self) -> AsyncIterator[bytes]:
        while True:
            if self._body:
                piece = b"".join(self._body)
                self._body.clear()
                self._size = 0
                yield piece
            if self._complete:
                return
            await self._read()

    def close(self) -> None:
        # A polite TLS farewell could take for ever.
        self._writer.transport.abort()

    async def _read(self) -> None:
        try:
            data = await self._reader.read(READ_SIZE)
        except OSError as error:
            raise self._lost(f"the connection broke: {error.strerror or 'reset'}") from None
        if not data:
            raise self._lost("the connection was closed before the answer was complete")
        self._heard = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._broken = True
            raise ServerUnreachable("the answer is not HTTP, or too large") from None

    def _lost(self, text: str) -> Exception:
        self._broken = True
        return ServerUnreachable(text) if self._heard else _ClosedWhileIdle()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers += 1
        if self._headers > MAX_HEADERS:
            raise ValueError("too many headers")
        if name.lower() == b"connection" and value.lower() == b"close":
            self._broken = True

    def on_headers_complete(self) -> None:
        self._head_done = True

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > MAX_ANSWER:
            raise ValueError("too large")
        self._body.append(data)

    def on_message_complete(self) -> None:
        self._complete = True


_: type[Transport] = TlsTransport
