"""WebSocket (RFC 6455), as far as a watch needs it: the handshake, frames out, frames in.

`handshake` checks a request for it; `WebSocketStream` is the sink of a stream over one, a frame for
each event. Client data is not stored: pings are answered, a close ends the stream, messages are
skipped. No extension is offered, so no frame is ever compressed.
"""

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Iterator
from typing import Final

from orchid.kernel.http.listener_state import ListenerState
from orchid.kernel.http.messages import Chunk, HttpRequest, Sink
from orchid.kernel.http.streaming import OpenStream, StreamConnection

SWITCHING: Final = 101
_BAD_REQUEST, _FORBIDDEN = 400, 403
_VERSION = "13"
_KEY_BYTES = 16
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3

TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA
_FINAL, _MASKED, _RESERVED, _OPCODE, _LENGTH = 0x80, 0x80, 0x70, 0x0F, 0x7F
_TWO_BYTES, _EIGHT_BYTES = 126, 127  # a length of this value means that the true one follows
_WIDE: Final = {_TWO_BYTES: 2, _EIGHT_BYTES: 8}  # in so many bytes
_LONGEST_CONTROL = 125
_MASK_BYTES = 4
_MOST_FRAMES: Final = 1000  # in one piece of received data: a client of a watch has little to send
_NORMAL, _PROTOCOL_ERROR = 1000, 1002


def is_asked_for(http: HttpRequest) -> bool:
    """Whether the request asks to switch to a WebSocket."""
    wanted = http.headers.get("upgrade", "").lower() == "websocket"
    return wanted and "upgrade" in http.headers.get("connection", "").lower()


def handshake(http: HttpRequest, secret_prefix: str) -> bytes | int:
    """The headers of a 101, or the status of a refusal.

    `secret_prefix` begins the subprotocol that is a token: it is never chosen, never echoed.
    """
    headers = http.headers
    if headers.get("sec-websocket-version") != _VERSION:
        return _BAD_REQUEST
    key = headers.get("sec-websocket-key", "").strip()
    if not _is_key(key):
        return _BAD_REQUEST
    if not headers.get("origin"):
        return _FORBIDDEN
    protocols = [name for name in _offered(http) if not name.startswith(secret_prefix)]
    if len(protocols) > 1:
        return _BAD_REQUEST
    digest = hashlib.sha1(key.encode("ascii") + _GUID, usedforsecurity=False).digest()
    lines = [b"Upgrade: websocket", b"Connection: Upgrade"]
    lines.append(b"Sec-WebSocket-Accept: " + base64.b64encode(digest))
    lines += [b"Sec-WebSocket-Protocol: " + name.encode("latin-1") for name in protocols]
    return b"".join(line + b"\r\n" for line in lines)


def _offered(http: HttpRequest) -> list[str]:
    values = ",".join(http.all("sec-websocket-protocol")).split(",")
    return [name.strip() for name in values if name.strip()]


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == _KEY_BYTES
    except (binascii.Error, ValueError):
        return False


def frame(opcode: int, payload: bytes) -> bytes:
    """A complete frame from the server, which masks nothing (RFC 6455, 5.1)."""
    size = len(payload)
    if size <= _LONGEST_CONTROL:
        return bytes((_FINAL | opcode, size)) + payload
    if size < 1 << 16:
        return bytes((_FINAL | opcode, _TWO_BYTES)) + size.to_bytes(2, "big") + payload
    return bytes((_FINAL | opcode, _EIGHT_BYTES)) + size.to_bytes(8, "big") + payload


def event_frame(data: bytes) -> bytes:
    """An event as a frame: JSON as text; protobuf without its length prefix."""
    return frame(TEXT, data) if data[:1] == b"{" else frame(BINARY, data[4:])


class BadFrame(Exception):
    """The client violates the protocol."""


class FrameReader:
    """Parses a client's frames; stores nothing of messages and little of the rest."""

    __slots__ = ("_held", "_skipping")

    def __init__(self) -> None:
        self._held = b""  # less than one head and a control frame's payload
        self._skipping = 0  # bytes of a message that are still to come

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The complete control frames; raises BadFrame for invalid data."""
        data, self._held = self._held + data, b""
        start, frames = self._skip(data, 0), 0
        while len(data) - start >= 2:  # noqa: PLR2004 -- the two bytes that every frame begins with
            frames += 1
            first, second = data[start], data[start + 1]
            if first & _RESERVED or not second & _MASKED or frames > _MOST_FRAMES:
                raise BadFrame  # RFC 6455, 5.1 and 5.2
            opcode, length = first & _OPCODE, second & _LENGTH
            wide = _WIDE.get(length, 0)
            body = start + 2 + wide + _MASK_BYTES
            if opcode < CLOSE:
                if body > len(data):
                    break
                wider = data[start + 2 : start + 2 + wide]
                self._skipping = int.from_bytes(wider, "big") if wide else length
                start = self._skip(data, body)
                continue
            if wide or not first & _FINAL:
                raise BadFrame  # RFC 6455, 5.5
            if body + length > len(data):
                break
            yield opcode, _unmasked(data[body - _MASK_BYTES : body], data[body : body + length])
            start = body + length
        self._held = data[start:]

    def _skip(self, data: bytes, start: int) -> int:
        """The end of the current message, or of its received part."""
        skipped = min(self._skipping, len(data) - start)
        self._skipping -= skipped
        return start + skipped


def _unmasked(mask: bytes, payload: bytes) -> bytes:
    size = len(payload)
    key = (mask * (size // _MASK_BYTES + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")


class WebSocketStream(OpenStream):
    """The sink of a stream whose chunks are messages."""

    __slots__ = ("_frames",)

    def __init__(
        self,
        service: ListenerState,
        connection: StreamConnection,
        transport: asyncio.Transport,
    ) -> None:
        super().__init__(service, connection, transport)
        self._frames = FrameReader()

    def send(self, chunk: Chunk) -> None:
        if chunk.data:
            super().send(Chunk(event_frame(chunk.data)))

    def finish(self) -> None:
        """Send a close frame, without waiting for the peer's: nothing more is read."""
        self._end_with(_NORMAL)

    def receive(self, data: bytes) -> None:
        """Process client data; of many pings, answer the last (RFC 6455, 5.5.3)."""
        asked: bytes | None = None
        try:
            for opcode, payload in self._frames.feed(data):
                if opcode == PING:
                    asked = payload
                elif opcode == CLOSE:
                    self._end_with(_NORMAL)
                    return
        except BadFrame:
            self._end_with(_PROTOCOL_ERROR)
            return
        if asked is not None:
            super().send(Chunk(frame(PONG, asked)))

    def _end_with(self, code: int) -> None:
        super().send(Chunk(frame(CLOSE, code.to_bytes(2, "big"))))
        super().finish()


_: type[Sink] = WebSocketStream
