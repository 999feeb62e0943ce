"""The listener of `orchid console`: the one of the API server, on loopback and without TLS.

It serves the browser of one user, so its limits are lower. Other programs of this machine can
connect, too: if there are too many connections, those without a session are ended first.
"""

import asyncio
import logging
from typing import Final, Protocol

from orchid.features.console.web.handler import plain, rendered, web_request
from orchid.features.console.web.messages import (
    LARGEST_BODY,
    UnreadableRequest,
    WebRequest,
    WebResponse,
)
from orchid.kernel.base.clock import Monotonic
from orchid.kernel.http.listener import ConnectionLimits, Listener
from orchid.kernel.http.messages import HttpRequest, Response, Stream

log = logging.getLogger(__name__)

LOOPBACK: Final = "127.0.0.1"
LIMITS: Final = ConnectionLimits(
    max_connections=64,
    max_header_bytes=32 << 10,
    max_headers=64,
    max_body_bytes=LARGEST_BODY,
    header_timeout=30.0,
    body_timeout=30.0,
    idle_timeout=30.0,
)
DRAIN_SECONDS: Final = 1.0
FAILED: Final = "the console failed; its terminal has the reason"


class SignedIn(Protocol):
    """The pages, for those who have signed in."""

    async def respond(self, request: WebRequest) -> WebResponse:
        """The response to a request."""

    def has_session(self, request: WebRequest) -> bool:
        """Whether a request is that of the user."""


class LoopbackListener:
    """Serves pages on loopback."""

    def __init__(
        self, pages: SignedIn, monotonic: Monotonic, limits: ConnectionLimits = LIMITS
    ) -> None:
        self._pages = pages
        self._listener = Listener(
            self._handle,
            timeout_response=_response(plain(503, "the console took too long")),
            failure=_failed,
            monotonic=monotonic,
            limits=limits,
        )

    async def start(self, port: int = 0) -> int:
        """Listen; returns the port. Raises OSError if it is in use."""
        await self._listener.start(LOOPBACK, port)
        return self._listener.port

    async def close(self) -> None:
        await self._listener.drain(DRAIN_SECONDS)

    async def _handle(self, http: HttpRequest) -> Response | Stream:
        await asyncio.sleep(0)  # pages need a task, for timeouts
        try:
            request = web_request(http)
            if self._pages.has_session(request):
                http.peer.known = True
            return rendered(await self._pages.respond(request))
        except UnreadableRequest as problem:
            return rendered(plain(400, str(problem)))


def _failed(http: HttpRequest, problem: BaseException) -> Response:
    if isinstance(problem, asyncio.CancelledError):
        return _response(plain(503, "the console ends"))
    log.error("console.failed: %s", http.method, exc_info=problem)
    return _response(plain(500, FAILED))


def _response(page: WebResponse) -> Response:
    response = rendered(page)
    assert isinstance(response, Response)
    return response
