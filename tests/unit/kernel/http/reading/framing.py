"""Requests that could be framed in two ways, and a reader without a cache to compare with."""

from typing import Any

from orchid.kernel.http.messages import HttpRequest
from orchid.kernel.http.reading.head_cache import HeadCache
from orchid.kernel.http.reading.reader import BODY, HEAD, RequestReader
from tests.unit.kernel.http.readers import new_reader, outcome

# Every header that decides where a request ends or what follows it, as it may be spelled.
LINES = (
    b"Content-Length: 0",
    b"Content-Length: 5",
    b"content-length: 5",
    b"CONTENT-LENGTH:5",
    b"Content-Length:\t5",
    b"Content-Length:  \t 5",
    b"Content-Length: 5 ",
    b"Content-Length: 5\t",
    b"Content-Length: 05",
    b"Content-Length: 0000000005",
    b"Content-Length: 00",
    b"Content-Length: +5",
    b"Content-Length: -5",
    b"Content-Length: 5, 5",
    b"Content-Length: 5\r\nContent-Length: 5",
    b"Content-Length: 5\r\nContent-Length: 6",
    b"Content-Length: 6\r\ncontent-length: 5",
    b"Content-Length: 0x5",
    b"Content-Length: 5\r\n ",
    b"Content-Length:\r\n 5",
    b"Content-Length : 5",
    b"Content-Length",
    b"Content-Length:",
    b" Content-Length: 5",
    b"X: y\r\n Content-Length: 5",
    b"X: y\nContent-Length: 5",
    b"X: y\rContent-Length: 5",
    b"X: Content-Length: 5",
    b"X-Content-Length: 5",
    b"Content_Length: 5",
    b"Content-Length: 5\x00",
    b"Content-Length: 5\x0b",
    b"Content-Length: 1001",
    b"Content-Length: 9999999999",
    b"Content-Length: 18446744073709551621",
    b"Transfer-Encoding: chunked",
    b"transfer-encoding: Chunked",
    b"Transfer-Encoding:chunked ",
    b"Transfer-Encoding: \tchunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    b"Transfer-Encoding: chunked\r\nContent-Length: 5",
    b"Content-Length: 5\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: chunked, gzip",
    b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding: chunked;q=1",
    b"Transfer-Encoding : chunked",
    b"Transfer-Encoding:\r\n chunked",
    b"Transfer-Encoding: \x0bchunked",
    b"Transfer_Encoding: chunked",
    b"Connection: close",
    b"Connection: keep-alive",
    b"connection: Close",
    b"Connection: close, keep-alive",
    b"Connection: keep-alive\r\nConnection: close",
    b"Connection: keep-alive\r\nContent-Length: 5",
    b"Connection: Content-Length\r\nContent-Length: 5",
    b"Connection: upgrade\r\nUpgrade: websocket",
    b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 5",
    b"Connection: upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked",
    b"Upgrade: websocket",
    b"Upgrade: websocket\r\nContent-Length: 5",
    b"Proxy-Connection: close",
    b"Expect: 100-continue\r\nContent-Length: 5",
    b"expect: 100-Continue \r\nContent-Length: 5",
    b"Expect: 100-continue",
    b"Expect: 200-ok\r\nContent-Length: 5",
    b"Expect: 100-continue\r\nTransfer-Encoding: chunked",
    b"Trailer: X\r\nTransfer-Encoding: chunked",
    b"Host: other",
    b"X: y",
)
REQUEST_LINES = (
    b"GET /a?b HTTP/1.1",
    b"POST /a HTTP/1.1",
    b"HEAD /a HTTP/1.1",
    b"OPTIONS * HTTP/1.1",
    b"PURGE /a HTTP/1.1",
    b"CONNECT a:1 HTTP/1.1",
    b"POST /a HTTP/1.0",
    b"POST /a HTTP/1.1 ",
    b"POST /a\nX: HTTP/1.1",
    b"POST /a HTTP/2.0",
    b"\r\nPOST /a HTTP/1.1",
)
INNER = b"GET /in HTTP/1.1\r\nHost: h\r\n\r\n"
BODIES = (
    b"",
    b"hello",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"5;x=y\r\nhello\r\n0\r\nContent-Length: 7\r\n\r\n",
    b"0\r\n\r\n" + INNER,
    b"hello" + INNER,
    INNER,
)


def framed(line: bytes, headers: bytes, body: bytes) -> bytes:
    return line + b"\r\nHost: h\r\n" + headers + b"\r\nA: 1\r\n\r\n" + body


class NoCache(HeadCache):
    """Caches nothing."""

    __slots__ = ()

    def add(self, head: bytes, request: HttpRequest) -> None:
        """Forget it."""


def readings(pieces: list[bytes], *, cached: bool) -> list[Any]:
    """The results of a reader for pieces: after each, everything that a connection sees of it."""
    reader = new_reader()
    if not cached:
        reader._heads = NoCache()
    return [_after(reader, piece) for piece in pieces]


def _after(reader: RequestReader, piece: bytes) -> Any:
    reader.feed(piece)
    arriving = reader.arriving
    head = arriving and (arriving.method, arriving.target, arriving.headers)
    unread = reader.unread_bytes if reader.phase in (HEAD, BODY) else 0
    return outcome(reader), reader.wants_continue, head, unread
