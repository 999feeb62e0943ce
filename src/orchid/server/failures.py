"""Answers of the listener to a request that took too long, or whose handler failed.

The chain never finished these requests, so there is no exchange to answer in the client's form.
"""

import asyncio
import logging
from typing import Final

from orchid.server.sockets.messages import HttpRequest, Response
from orchid.telemetry import failure_story

log = logging.getLogger(__name__)

_TEXT: Final = b"Content-Type: text/plain; charset=utf-8\r\n"
TIMEOUT: Final = Response(
    504,
    _TEXT,
    b'{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the '
    b'allotted timeout","reason":"Timeout","details":{},"code":504}\n',
)


def failed(http: HttpRequest, problem: BaseException) -> Response:
    """The answer to a request whose handler raised."""
    if isinstance(problem, asyncio.CancelledError):
        # The server stops in the middle of the request: its outcome is not known.
        return Response(503, _TEXT, b"the server is stopping\n")
    log.error("request.failed", extra={"story": failure_story(problem)})
    return Response(500, _TEXT, b"internal error\n")
