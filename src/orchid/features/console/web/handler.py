"""Between a listener of kernel/http and the pages: HTTP messages become those of the console.

`web_request` reads a request, `rendered` writes a response. A response with a stream is sent piece
by piece until its end, or until the browser leaves.
"""

import asyncio
import functools
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Final

from orchid.features.console.web import guard
from orchid.features.console.web.messages import (
    LARGEST_BODY,
    UnreadableRequest,
    WebRequest,
    WebResponse,
    parse_target,
)
from orchid.kernel.http.messages import Chunk, HttpRequest, Response, Sink, Stream
from orchid.kernel.outbound.failures import CallFailed

log = logging.getLogger(__name__)

METHODS: Final = ("GET", "HEAD", "POST")
ONCE: Final = ("host", "origin", "cookie", "content-length", "sec-fetch-site")
PLAIN: Final = "text/plain; charset=utf-8"


def web_request(http: HttpRequest) -> WebRequest:
    """The request of a browser; raises UnreadableRequest."""
    if http.method not in METHODS:
        raise UnreadableRequest("only GET, HEAD and POST are served")
    if http.too_large or len(http.body) > LARGEST_BODY:
        raise UnreadableRequest("the form is too large")
    repeated = [name for name, _ in http.repeated if name in ONCE]
    if repeated:
        raise UnreadableRequest(f"the header {repeated[0]} occurs twice")
    path, query = parse_target(http.target)
    peer = http.peer
    return WebRequest(
        http.method, path, query, http.headers, http.body, peer.address, peer.certificate
    )


def plain(status: int, text: str, *headers: tuple[str, str]) -> WebResponse:
    """A line of text, with the headers of every page: it may repeat words of the request."""
    return guard.protected(WebResponse(status, f"{text}\n".encode(), media=PLAIN), *headers)


def rendered(response: WebResponse) -> Response | Stream:
    """The response of a page, as the listener sends it."""
    lines = [*response.headers, ("Content-Type", response.media)]
    head = "".join(f"{name}: {value}\r\n" for name, value in lines).encode("latin-1", "replace")
    if response.stream is None:
        return Response(response.status, head, response.body)
    return Stream(response.status, head, functools.partial(_open, response.stream))


def _open(pieces: AsyncIterator[bytes], sink: Sink) -> None:
    task = asyncio.get_running_loop().create_task(_send(pieces, sink))

    def cancel() -> None:  # while it is open, the sink keeps the task
        task.cancel()

    sink.on_close(cancel)


async def _send(stream: Any, sink: Sink) -> None:
    try:
        async with aclosing(stream) as pieces:
            async for piece in pieces:
                sink.send(Chunk(piece))
    except CallFailed as problem:
        log.info("console.stream_ended: %s", problem)
    finally:
        sink.finish()
