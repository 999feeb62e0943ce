"""Readers to feed, and everything that one makes of its bytes."""

from orchid.kernel.http.messages import HttpRequest, Peer
from orchid.kernel.http.reading.reader import RequestReader

START = b"GET / HTTP/1.1\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


def new_reader(
    max_header_bytes: int = 1 << 20,
    max_body_bytes: int = 1000,
    *,
    peer: Peer | None = None,
) -> RequestReader:
    return RequestReader(
        peer or Peer("test"),
        max_header_bytes=max_header_bytes,
        max_headers=100,
        max_body_bytes=max_body_bytes,
        request_timeout=1,
    )


def read(data: bytes, **limits: int) -> RequestReader:
    reader = new_reader(**limits)
    reader.feed(data)
    return reader


def only_request(data: bytes) -> HttpRequest:
    reader = read(data)
    assert reader.refusal == 0
    [arrived] = reader.ready
    return arrived.request


def outcome(reader: RequestReader) -> tuple[object, ...]:
    """Everything that a reader makes of its bytes."""
    requests = [
        (
            arrived.keep_alive,
            arrived.chunked,
            arrived.lingers,
            arrived.request.method,
            arrived.request.target,
            arrived.request.path,
            arrived.request.query,
            arrived.request.headers,
            arrived.request.repeated,
            arrived.request.body,
            arrived.request.too_large,
        )
        for arrived in reader.ready
    ]
    return requests, reader.refusal, reader.phase
