"""gRPC on HTTP/2, apart from connections: request headers, statuses, failures.

A failed call raises one of these. The difference decides whether the store may retry:

    GrpcFailure
    ├── StatusReceived   etcd responded with a status other than OK
    ├── NotProcessed     etcd has certainly not executed the call
    └── OutcomeUnknown   it may have; the connection was lost, or the time was up
"""

import re
import urllib.parse
from typing import Final

from orchid.kernel.store.etcd import frames

CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, PERMISSION_DENIED = 1, 2, 4, 7
UNIMPLEMENTED, INTERNAL, UNAVAILABLE, UNAUTHENTICATED = 12, 13, 14, 16
MOST_BLOCKS: Final = 64
_is_code = re.compile(rb"[0-9]{1,2}").fullmatch
_OF_HTTP: Final = {  # gRPC's own table for responses of proxies
    b"400": INTERNAL,
    b"401": UNAUTHENTICATED,
    b"403": PERMISSION_DENIED,
    b"404": UNIMPLEMENTED,
    b"429": UNAVAILABLE,
    b"502": UNAVAILABLE,
    b"503": UNAVAILABLE,
    b"504": UNAVAILABLE,
}


class GrpcFailure(Exception):
    """A call without a response."""


class StatusReceived(GrpcFailure):
    """etcd responded with a status other than OK."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class NotProcessed(GrpcFailure):
    """etcd has certainly not executed the call."""


class OutcomeUnknown(GrpcFailure):
    """etcd may have executed the call, or may yet do so."""


class RequestHeaders:
    """The header blocks of requests to one endpoint: one for each method and timeout."""

    def __init__(self, authority: str, scheme: str) -> None:
        self._common = b"".join(
            frames.literal(name, value)
            for name, value in (
                (b":scheme", scheme.encode()),
                (b":authority", authority.encode()),
                (b"te", b"trailers"),
                (b"content-type", b"application/grpc"),
                (b"user-agent", b"orchid"),
                (b"hasleader", b"true"),  # a member without a leader refuses the call
            )
        )
        self._blocks: dict[tuple[str, int], bytes] = {}

    def block(self, path: str, seconds: float | None = None) -> bytes:
        """The block of a method, with its timeout."""
        # First calls have the same timeout; repeated ones have less.
        milliseconds = 0 if seconds is None else max(1, round(seconds * 1000))
        block = self._blocks.get((path, milliseconds))
        if block is None:
            if len(self._blocks) >= MOST_BLOCKS:
                self._blocks.clear()
            block = self._blocks[path, milliseconds] = self._encode(path, milliseconds)
        return block

    def _encode(self, path: str, milliseconds: int) -> bytes:
        # Our table has size 0, whatever the peer allows; then :method POST of the static table.
        block = b"\x20\x83" + frames.literal(b":path", path.encode()) + self._common
        if not milliseconds:
            return block
        return block + frames.literal(b"grpc-timeout", b"%dm" % milliseconds)


def failure_of(http_status: bytes, headers: dict[bytes, bytes]) -> GrpcFailure | None:
    """The failure in the trailers of a response; None: success."""
    code = headers.get(b"grpc-status")
    if code == b"0":
        return None
    if code is None:
        text = f"an answer with HTTP status {http_status.decode(errors='replace')}"
        return StatusReceived(_OF_HTTP.get(http_status, UNKNOWN), text)
    text = urllib.parse.unquote(headers.get(b"grpc-message", b"").decode(errors="replace"))
    return StatusReceived(int(code) if _is_code(code) else UNKNOWN, text)
