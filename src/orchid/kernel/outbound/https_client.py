"""HTTPS to one server: requests with complete responses, and long-lived streams.

Start with `HttpsClient`: webhooks, issuers' keys and the controllers' API calls all use it.
HTTP/1.1, always TLS with a verified name. Never follows a redirect, which could send our
credentials elsewhere. Never reads more than a given size, and never waits longer than a given time;
a stream may continue once its head has arrived. Failures are in failures.py.

Nothing is sent twice, except on an idle connection that ends without a byte of a response: the
server had already closed it.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

from orchid.kernel.base.version import __version__
from orchid.kernel.outbound.answer import Answer, AnswerReader
from orchid.kernel.outbound.failures import AnswerRefused, CallFailed, ServerUnreachable, TimedOut
from orchid.kernel.outbound.remote import Remote
from orchid.kernel.outbound.tls_stream import TlsStream

JSON: Final = "application/json"
TIMEOUT: Final = 30.0
USER_AGENT: Final = f"orchid/{__version__}"

_HTTPS_PORT: Final = 443
_OK: Final = 200

Pieces = AsyncIterator[bytes]


class ServerRefused(Exception):
    """A stream was not opened; `answer` is the response."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"answered with status {answer.status}")
        self.answer = answer


class HttpsClient:
    """Requests to one remote; up to `keeps` idle connections are pooled."""

    def __init__(
        self,
        remote: Remote,
        *,
        max_answer: int,
        timeout: float = TIMEOUT,
        keeps: int = 0,
        user_agent: str = USER_AGENT,
        accept: str = JSON,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`headers` are sent with every request; one may be a credential."""
        parts = urlsplit(remote.url)
        assert parts.hostname is not None  # validated by Remote
        self._host = parts.hostname
        self._port = parts.port or _HTTPS_PORT
        self._prefix = parts.path.rstrip("/")
        self._own_target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._remote = remote
        self._max_answer = max_answer
        self._timeout = timeout
        self._keeps = keeps
        self._idle: deque[_Connection] = deque()
        self._accept = accept
        self._fixed = f"Host: {parts.netloc}\r\nUser-Agent: {user_agent}\r\n"
        self._fixed += "".join(f"{name}: {text}\r\n" for name, text in (headers or {}).items())
        if not keeps:
            self._fixed += "Connection: close\r\n"

    async def send(
        self,
        method: str,
        target: str = "",
        body: bytes = b"",
        media: str = JSON,
        *,
        accept: str = "",
    ) -> Answer:
        """Send a request and return the complete response.

        `target` is a path below the remote's own; the default is the remote's URL.
        """
        data = self._request(method, target, body, media, accept)
        try:
            async with asyncio.timeout(self._timeout):
                return await self._exchange(data)
        except TimeoutError:
            raise TimedOut(f"no answer within {self._timeout:g} seconds") from None

    @asynccontextmanager
    async def stream(self, target: str) -> AsyncIterator[Pieces]:
        """Open a stream; raises ServerRefused unless the response is a success."""
        connection = await self._open(self._request("GET", target, b"", JSON))
        try:
            yield connection.pieces()
        finally:
            connection.close()

    async def close(self) -> None:
        while self._idle:
            self._idle.popleft().close()

    # Inside

    async def _open(self, data: bytes) -> "_Connection":
        """A connection on which the head of a successful response has arrived."""
        try:
            async with asyncio.timeout(self._timeout):
                connection = await self._connect()
                try:
                    connection.write(data)
                    if await connection.status() != _OK:
                        raise ServerRefused(await connection.whole())
                except BaseException:
                    connection.close()
                    raise
                return connection
        except TimeoutError:
            raise TimedOut(f"no answer within {self._timeout:g} seconds") from None

    async def _exchange(self, data: bytes) -> Answer:
        while True:
            kept = self._kept()
            connection = kept or await self._connect()
            try:
                connection.write(data)
                answer = await connection.whole()
            except ServerUnreachable:
                connection.close()
                if kept is None or connection.heard:
                    raise
                continue  # the server had closed the idle connection; nothing was executed
            except BaseException:
                connection.close()
                raise
            self._keep(connection)
            return answer

    def _kept(self) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()  # the last used one is most likely still open
            if connection.usable:
                return connection
            connection.close()
        return None

    def _keep(self, connection: "_Connection") -> None:
        if connection.usable and len(self._idle) < self._keeps:
            self._idle.append(connection)
        else:
            connection.close()

    async def _connect(self) -> "_Connection":
        remote = self._remote
        try:
            reader, writer = await asyncio.open_connection(self._host, self._port)
            try:
                stream = TlsStream(reader, writer, remote.tls, remote.server_name or self._host)
                await stream.shake_hands()
            except BaseException:
                writer.transport.abort()
                raise
        except OSError as error:
            raise _failure(error) from None
        except ValueError:  # of the encoding of names, or of TLS
            raise AnswerRefused(f"{self._host!r} is not the name of a host") from None
        return _Connection(stream, self._max_answer)

    def _request(
        self, method: str, target: str, body: bytes, media: str, accept: str = ""
    ) -> bytes:
        where = self._prefix + target if target else self._own_target
        head = f"{method} {where} HTTP/1.1\r\n{self._fixed}Accept: {accept or self._accept}\r\n"
        if body or method not in ("GET", "DELETE"):
            head += f"Content-Type: {media}\r\nContent-Length: {len(body)}\r\n"
        if self._remote.bearer is not None:
            head += f"Authorization: Bearer {self._remote.bearer().reveal()}\r\n"
        return f"{head}\r\n".encode("latin-1") + body


class _Connection:
    """A connection, and the response being read from it."""

    def __init__(self, stream: TlsStream, max_answer: int) -> None:
        self._stream = stream
        self._max_answer = max_answer
        self._answer = AnswerReader(max_answer)
        self.heard = False  # whether anything of the response has arrived

    @property
    def usable(self) -> bool:
        """Whether another request may be sent on it."""
        return self._answer.leaves_open and self._stream.is_open

    def write(self, data: bytes) -> None:
        self._answer, self.heard = AnswerReader(self._max_answer), False
        self._stream.write(data)

    async def status(self) -> int:
        """Wait for the head of the response."""
        while not self._answer.has_head:
            await self._read()
        return self._answer.status

    async def whole(self) -> Answer:
        """Wait for the complete response."""
        answer = self._answer
        while not answer.complete:
            await self._read()
        return Answer(answer.status, answer.take_body(), answer.retry_after)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The pieces of the body, until its end."""
        while True:
            if piece := self._answer.take_body():
                yield piece
            if self._answer.complete:
                return
            await self._read()

    def close(self) -> None:
        self._stream.close()

    async def _read(self) -> None:
        try:
            data = await self._stream.read()
        except OSError as error:
            raise _failure(error) from None
        self.heard = self.heard or bool(data)
        self._answer.feed(data)


def _failure(error: OSError) -> CallFailed:
    if isinstance(error, ssl.SSLError):
        return AnswerRefused(f"TLS failed: {error.reason or 'handshake'}")
    return ServerUnreachable(f"connection failed: {error.strerror or 'closed'}")
