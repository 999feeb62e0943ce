"""Heads of responses: the headers that frame them, and the heads of streams and last answers.

The status line and the date are in the start of each head (`ListenerState.head`). connection.py
joins the parts of an ordinary response itself, as fast as possible.
"""

from orchid.kernel.http.messages import Response, Stream

BODILESS = frozenset({204, 304})
CLOSE = b"Connection: close\r\n"
KEEP_ALIVE = b"Connection: keep-alive\r\n"  # HTTP/1.0 clients need the header
CHUNKED = b"Transfer-Encoding: chunked\r\n"
SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\n"
# For short bodies; formatting takes as long as the rest of writing a response.
LENGTHS = tuple(b"Content-Length: %d\r\n\r\n" % size for size in range(1024))
# Copying a larger body into one piece with its head costs more than a second TLS record.
JOIN_UP_TO = 64 << 10


def stream_head(start: bytes, stream: Stream, *, chunked: bool, keep_alive: bool) -> bytes:
    """The head of a stream, whose length is not known."""
    head = start + stream.headers
    if chunked:
        head += CHUNKED
    if not keep_alive:
        head += CLOSE
    return head + b"\r\n"


def last_answer(start: bytes, answer: Response) -> bytes:
    """A short response after which the connection is closed."""
    body = bytes(answer.body)
    return b"%bContent-Length: %d\r\n\r\n%b" % (start + answer.headers + CLOSE, len(body), body)
