"""Parser of HTTP/1.1 responses: `AnswerReader` is fed received bytes and enforces limits.

It knows no socket. Interim responses (1xx) are skipped; bytes after the end of a response are
refused.
"""

from typing import Any, NamedTuple

import httptools

from orchid.kernel.outbound.failures import AnswerOverLimit, AnswerRefused, ServerUnreachable

MAX_HEAD = 64 * 1024
MAX_HEADERS = 128

_SUCCESS = 200  # lower ones are interim


class Answer(NamedTuple):
    """A received response."""

    status: int
    body: bytes
    retry_after: float = 0.0  # seconds, if the server requests a pause


class AnswerReader:
    """One response within limits; the parser calls the `on_` methods."""

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
        """Process received bytes; b"" means that the server has closed the connection."""
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
        """The body bytes since the last call; they no longer count for the limit."""
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
            raise AnswerOverLimit(f"the answer is larger than {self._max_body} bytes")
        self._body += data

    def on_message_complete(self) -> None:
        self.complete = self.has_head
        self.leaves_open = bool(self._parser.should_keep_alive())  # only known here

    def _is_framed(self) -> bool:
        return b"content-length" in self._headers or b"transfer-encoding" in self._headers

    def _end(self) -> None:
        if not self.has_head or (self._is_framed() and not self.complete):
            raise ServerUnreachable("the connection was closed before the answer was complete")
        self.complete = True
