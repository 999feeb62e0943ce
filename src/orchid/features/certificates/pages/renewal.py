"""Renewal information over HTTP (RFC 9773): /renewal-info/<key identifier>.<serial number>.

No credential is needed: the client has the certificate already, and gets only the time to renew it.
`Retry-After` has the time of the next request.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Protocol

import msgspec

from orchid.kernel.http.messages import Response
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.server.respond import head
from orchid.kernel.wire.errors import BadRequest, MethodNotAllowed, NoSuchRoute

PREFIX: Final = "/renewal-info/"
CACHE: Final = b"public, max-age=60"
READING: Final = ("GET", "HEAD")


class Window(Protocol):
    """When to renew, and the time until the next request."""

    @property
    def start(self) -> datetime: ...
    @property
    def end(self) -> datetime: ...
    @property
    def ask_again_seconds(self) -> int: ...


Find = Callable[[str], Window | None]  # raises ValueError for a malformed identifier


class RenewalPages:
    """Everything below the prefix; call it with an exchange."""

    def __init__(self, find: Find) -> None:
        self._find = find

    def __call__(self, state: RequestState) -> Response:
        if state.http.method not in READING:
            raise MethodNotAllowed
        try:
            window = self._find(state.http.path.removeprefix(PREFIX))
        except ValueError as problem:
            raise BadRequest(f"malformed certificate identifier: {problem}") from None
        if window is None:
            raise NoSuchRoute
        suggested = {"start": _text(window.start), "end": _text(window.end)}
        body = msgspec.json.encode({"suggestedWindow": suggested})
        headers = b"Content-Type: application/json\r\nRetry-After: %d\r\n"
        return Response(200, head(state, headers % window.ask_again_seconds, cache=CACHE), body)


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
