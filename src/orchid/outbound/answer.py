"""Answers of HTTP/1.1 servers: `AnswerReader` is fed what arrives and keeps to its limits.

It knows no socket. Interim answers (1xx) are passed over; anything that comes after the end of an
answer is refused, because nobody asked for it.
"""

from typing import Any, NamedTuple

import httptools

from orchid.outbound.failures import AnswerRefused, ServerUnreachable

MAX_HEAD = 64 * 1024
MAX_HEADERS = 128

_SUCCESS = 200  # and lower ones are interim


class Answer(NamedTuple):
    """An answer as it came."""

    status: int
    body: bytes
    retry_after: float = 0.0  # seconds, if the server asks for a pause


class AnswerReader:
    """One answer within limits; the parser calls the `on_` methods."""

    def __init__(self, max_body: int) -> None:
        self.has_head = False
        self.complete = False
        self.leaves_open = False  # whether the connection may be used for another request
        self._parser: Any = httptools.HttpResponseParser(self)
        self._max_body = max_body
        self._body = bytearray()
        self._head_bytes = 0
        self._headers: dict[bytes, bytes] = {}
        self._header_count = 0

    @property
    def status(self) -> int:
        return int(self._parser.get_status_code())

    @property
    def retry_after(self) -> float:
        text = self._headers.get(b"retry-after", b"")
        return float(text) if text.isdigit() and len(text) < 6 else 0.0  # noqa: PLR2004 - digits

    def feed(self, data: bytes) -> None:
        """Take what arrived; nothing at all means that the server has closed the connection."""
        if not data:
            self._end()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # Our own refusals come out of the callbacks wrapped.
            if isinstance(error.__context__, AnswerRefused):
                raise error.__context__ from None
            raise AnswerRefused("the answer is not HTTP") from None
        if not self.has_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD:
                raise AnswerRefused("the head of the answer is too long")

    def take_body(self) -> bytes:
        """What has come of the body since it was last taken; it no longer counts."""
        taken, self._body = self._body, bytearray()
        return bytes(taken)

    def on_message_begin(self) -> None:
        if self.complete:
            raise AnswerRefused("the answer goes on after its end")
        self._headers.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        if self._header_count > MAX_HEADERS:
            raise AnswerRefused("the answer has too many headers")
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self.has_head = self.status >= _SUCCESS

    def on_body(self, data: bytes) -> None:
        if len(self._body) + len(data) > self._max_body:
            raise AnswerRefused(f"the answer is larger than {self._max_body} bytes")
        self._body += data

    def on_message_complete(self) -> None:
        self.complete = self.has_head
        self.leaves_open = bool(self._parser.should_keep_alive())  # known only here

    def _is_framed(self) -> bool:
        return b"content-length" in self._headers or b"transfer-encoding" in self._headers

    def _end(self) -> None:
        if not self.has_head or (self._is_framed() and not self.complete):
            raise ServerUnreachable("the connection was closed before the answer was complete")
        self.complete = True
