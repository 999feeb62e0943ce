"""The listener of `orchid console`: HTTP/1.1 on loopback, for the browser of one user.

Start with `LoopbackListener`. The parser is the one of the API server. Limits: connections, size of
head and body, and time. The listener knows no page: it passes a `WebRequest` to its handler and
writes the `WebResponse`.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final

import httptools

from orchid.features.console.web import guard
from orchid.features.console.web.messages import (
    LARGEST_BODY,
    UnreadableRequest,
    WebRequest,
    WebResponse,
    parse_target,
)

log = logging.getLogger(__name__)

LOOPBACK: Final = "127.0.0.1"
MOST_CONNECTIONS: Final = 64
LARGEST_HEAD: Final = 32 * 1024
MOST_HEADERS: Final = 64
READ_SIZE: Final = 64 * 1024
HEAD_SECONDS: Final = 30.0  # between requests, and for the head and body of one
NO_CONTENT: Final = 204
METHODS: Final = ("GET", "HEAD", "POST")
ONCE: Final = ("host", "origin", "cookie", "content-length", "sec-fetch-site")
REASONS: Final = {
    200: "OK",
    204: "No Content",
    303: "See Other",
    304: "Not Modified",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    413: "Content Too Large",
    421: "Misdirected Request",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
}

Handler = Callable[[WebRequest], Awaitable[WebResponse]]


class LoopbackListener:
    """Accepts connections on loopback and answers their requests."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, port: int = 0) -> int:
        """Listen; returns the port. Raises OSError if it is in use."""
        self._server = await asyncio.start_server(self._accept, LOOPBACK, port, limit=READ_SIZE)
        bound: socket.socket = self._server.sockets[0]
        return int(bound.getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= MOST_CONNECTIONS:
            writer.transport.abort()
            return
        self._connections.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass  # the browser has gone, or the console ends
        finally:
            self._connections.discard(task)
            writer.transport.abort() if writer.is_closing() else writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        keeps_open = True
        while keeps_open:
            incoming = WebRequestReader()
            try:
                async with asyncio.timeout(HEAD_SECONDS):
                    while not incoming.complete:
                        data = await reader.read(READ_SIZE)
                        if not data:
                            return
                        incoming.feed(data)
                request = incoming.request()
            except UnreadableRequest as problem:
                await _send(writer, _plain(400, str(problem)), keeps_open=False)
                return
            response = await self._respond(request)
            keeps_open = incoming.keeps_open and response.stream is None
            with_body = request.method != "HEAD"
            await _send(writer, response, keeps_open, with_body=with_body)
            if response.stream is not None and with_body:
                await _send_stream(reader, writer, response.stream)

    async def _respond(self, request: WebRequest) -> WebResponse:
        if request.method not in METHODS:
            return _plain(405, "only GET, HEAD and POST are served")
        try:
            return await self._handler(request)
        except UnreadableRequest as problem:
            return _plain(400, str(problem))
        except Exception:
            log.exception("console.failed: %s", request.method)
            return _plain(500, "the console failed; its terminal has the reason")


class WebRequestReader:
    """One request within limits; the parser calls the `on_` methods."""

    def __init__(self) -> None:
        self._parser: Any = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body = b""
        self._received = 0
        self.complete = False
        self.keeps_open = False

    def feed(self, data: bytes) -> None:
        self._received += len(data)
        if self._received > LARGEST_HEAD + LARGEST_BODY:
            raise UnreadableRequest("the request is too large")
        if self.complete:
            raise UnreadableRequest("one request at a time")
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if isinstance(error.__context__, UnreadableRequest):
                raise error.__context__ from None
            raise UnreadableRequest("the request is not HTTP/1.1") from None

    def request(self) -> WebRequest:
        path, query = parse_target(self._url.decode("latin-1"))
        method = self._parser.get_method().decode("ascii", "replace")
        return WebRequest(method, path, query, self._headers, self._body)

    def on_message_begin(self) -> None:
        if self.complete:
            raise UnreadableRequest("one request at a time")

    def on_url(self, data: bytes) -> None:
        self._url += data
        if len(self._url) > LARGEST_HEAD:
            raise UnreadableRequest("the target is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        key = name.decode("latin-1").lower()
        if len(self._headers) >= MOST_HEADERS or len(value) > LARGEST_HEAD:
            raise UnreadableRequest("too many or too long headers")
        if key in self._headers and key in ONCE:
            raise UnreadableRequest(f"the header {key} occurs twice")
        self._headers[key] = value.decode("latin-1")

    def on_body(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > LARGEST_BODY:
            raise UnreadableRequest("the form is too large")

    def on_message_complete(self) -> None:
        self.complete = True
        self.keeps_open = bool(self._parser.should_keep_alive())


def _plain(status: int, text: str) -> WebResponse:
    found = WebResponse(status, f"{text}\n".encode(), media="text/plain; charset=utf-8")
    return guard.protected(found)


async def _send(
    writer: asyncio.StreamWriter,
    response: WebResponse,
    keeps_open: bool,
    *,
    with_body: bool = True,
) -> None:
    head = [f"HTTP/1.1 {response.status} {REASONS.get(response.status, 'Status')}"]
    head += [f"{name}: {value}" for name, value in response.headers]
    head.append(f"Content-Type: {response.media}")
    head.append(f"Connection: {'keep-alive' if keeps_open else 'close'}")
    if response.stream is None and response.status != NO_CONTENT:
        head.append(f"Content-Length: {len(response.body)}")
    data = "\r\n".join((*head, "", "")).encode("latin-1", "replace")
    writer.write(data + (response.body if with_body else b""))
    await writer.drain()


async def _send_stream(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stream: Any
) -> None:
    """Send a stream until it ends, or until the browser closes the connection.

    Without the second, the streams of the last pages that a user saw would count for a while.
    """
    sending = asyncio.create_task(_send_pieces(writer, stream))
    leaving = asyncio.create_task(reader.read(1))  # a browser sends nothing after its request
    try:
        await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        sending.cancel()
        leaving.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)


async def _send_pieces(writer: asyncio.StreamWriter, stream: Any) -> None:
    async with contextlib.aclosing(stream) as pieces:
        async for piece in pieces:
            writer.write(piece)
            await writer.drain()
