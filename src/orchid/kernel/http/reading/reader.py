"""Strict HTTP/1.1 parsing for one connection.

Start with `RequestReader.feed`. Complete requests are in `ready`, in order; an invalid one ends the
reading with a `refusal`. httptools (llhttp, no leniency) parses the grammar; this module adds
limits, one Host, one way to give the length of a body. It never touches a socket, has no timeouts
and never guesses: ambiguous requests can be smuggled past a proxy (RFC 9112, 11.2), so they are
refused.

Headers that arrived before on the connection are not converted into objects again: see
kernel/http/reading/head_cache.py. The parser reads such a head, too; it only reports no header of
it.
"""

import re
from types import SimpleNamespace
from typing import Final

import httptools

from orchid.kernel.http.messages import Arrived, HeadMemo, HttpRequest, Peer
from orchid.kernel.http.reading.head_cache import FoundHead, HeadCache
from orchid.kernel.http.reading.head_rules import (
    BAD_REQUEST,
    HEADER_NAMES,
    HEADERS_TOO_LARGE,
    METHODS,
    check_body_headers,
    check_headers,
    check_upgrade,
    origin_form,
)

CLOSE_SILENTLY: Final = -1  # a refusal without a response, for clients that do not speak HTTP/1
# The part of a request that is read next. Plain numbers: looking up an Enum member costs a call.
BETWEEN: Final = 0
HEAD: Final = 1
BODY: Final = 2
ENDED: Final = 3  # nothing more will be read from this connection

_BLANK_LINES = re.compile(rb"[\r\n]+")
_METHOD = re.compile(rb"([A-Z][A-Z-]{0,31}) [/*h]")
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]+(?=[; \t\r])")
_BEGUN = re.compile(rb"[A-Z][A-Z-]{0,31} ?")


class _Stop(Exception):
    """Ends the parser's run from inside one of its callbacks."""


class RequestReader:
    """Parses one connection's requests; `feed` it received bytes."""

    __slots__ = (
        "_arriving", "_begun", "_body", "_body_bytes", "_chunk", "_found", "_full", "_head_span",
        "_headers", "_heads", "_last", "_left", "_length", "_line", "_max_body", "_max_head",
        "_max_headers", "_parser", "_quiet", "_repeated", "_span", "_strange_method", "_taken",
        "_target", "_timeout", "peer", "phase", "ready", "refusal", "wants_continue",
    )  # fmt: skip

    def __init__(
        self,
        peer: Peer,
        *,
        max_header_bytes: int,
        max_headers: int,
        max_body_bytes: int,
        request_timeout: float,
    ) -> None:
        self.peer = peer
        self._heads = HeadCache()
        self._max_head = max_header_bytes
        self._max_headers = max_headers
        self._max_body = max_body_bytes
        self._timeout = request_timeout
        self.ready: list[Arrived] = []
        self.refusal = 0  # an HTTP status or CLOSE_SILENTLY, due after the ready requests
        self.phase = BETWEEN
        self._taken: HttpRequest | None = None  # the head that was just read
        self.wants_continue = False  # the client waits for "100 Continue" before it sends the body
        self._strange_method = ""  # of the current head, instead of a stand-in
        self._begun = b""  # the letters of an incomplete method
        self._last = b""  # the last bytes of an incomplete head
        self._left = 0  # remaining bytes of the body; negative: it is chunked
        self._length = 0  # of the body, from Content-Length; negative: it is chunked
        self._chunk = 0  # remaining bytes of the current chunk, with its line end
        self._line = b""  # the incomplete line with the size of a chunk
        self._span = 0  # bytes read of the current head or body
        self._head_span = 0  # the same of the head alone, once the body has begun
        self._found: FoundHead | None = None  # the current head, if its headers are cached
        self._target = b""
        self._headers: dict[str, str] = {}
        self._repeated: list[tuple[str, str]] | None = None
        self._arriving: Arrived | None = None
        self._body: bytes | bytearray = b""
        self._body_bytes = 0
        # Of two parsers, `_quiet` reports no headers. Each reads whole requests only, so that the
        # other may read the next one.
        self._full: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self._quiet: httptools.HttpRequestParser | None = None
        self._parser: httptools.HttpRequestParser | None = self._full

    def feed(self, data: bytes) -> None:
        """Parse a piece; the results are `ready`, `refusal`, `phase` and `wants_continue`."""
        if self._parser is None or self.phase == ENDED:
            return
        if self._begun:
            data, self._begun, self.phase = self._begun + data, b"", BETWEEN
        start, size, heads = 0, len(data), self._heads
        while start < size and self.phase != ENDED:
            head = None
            if self.phase == BETWEEN and heads.heads:
                head = heads.find(data, start)
            if head is None:
                end = self._end_of_part(data, start)
                self._feed_part(data[start:end])
                start = end
                continue
            # The headers are cached: a parser that does not report them gets the head, with its
            # body if that is there.
            end = head.end + int(head.length or 0)
            end = end if end <= size else head.end
            self.phase, self._found, self._parser = HEAD, head, self._quiet
            self._last, self._target, self._span = b"", b"", head.end - start
            assert self._parser is not None
            try:
                self._parser.feed_data(data[start:end])
            except httptools.HttpParserError as error:
                end = head.end
                self._fail_cached(error, data[start:end])
            self._taken = None
            start = end

    def _end_of_part(self, data: bytes, start: int) -> int:
        """The end of the current head or body, or of its received part.

        The parser never gets more than that at once. So the start of each request is known, and its
        result does not depend on other data that arrived with it.
        """
        if self.phase == BODY:
            if remaining := self._chunk or max(self._left, 0):
                return min(start + remaining, len(data))
            return data.find(b"\n", start) + 1 or len(data)
        if self.phase == HEAD:  # it has begun in an earlier part; so may its end
            seam = (self._last + data[start : start + 3]).find(b"\r\n\r\n")
            if seam >= 0:
                return start + seam + 4 - len(self._last)
        elif blank := _BLANK_LINES.match(data, start):
            start = blank.end()
        end = data.find(b"\r\n\r\n", start)
        return end + 4 if end >= 0 else len(data)

    def _feed_part(self, part: bytes) -> None:
        """Parse a head or a body, or a part of it."""
        begins = self.phase == BETWEEN
        if begins:
            part = part.lstrip(b"\r\n")  # blank lines before a request are ignored
            self._span = 0
            self._parser = self._full
            if not part or self._has_only_begun(part):
                return
        self._span += len(part)
        self._left -= len(part)
        is_chunked, before = self.phase == BODY and self._length < 0, self._body_bytes
        try:
            self._parse(part)
        except httptools.HttpParserUpgrade:
            # The handler decides; until it has agreed, the following data is another request,
            # because a client
            # has to wait for the response before it switches (RFC 9110, 7.8).
            self._renew_parser()
        except httptools.HttpParserError as error:
            self._fail(error, part)
        else:
            if self.phase == HEAD:
                self._last = (self._last + part)[-3:]
            elif is_chunked:
                self._follow_chunks(part, self._body_bytes - before)
            if self.phase != BETWEEN:
                self._check_growth()
            if begins and self._taken is not None:
                self._cache_head(part)
            self._taken = None

    def _follow_chunks(self, part: bytes, taken: int) -> None:
        """Follow the sizes of chunks, so that the parser gets the data of a chunk in one piece.

        It gets all other lines one by one, and it alone decides where a body ends. One line of data
        at a time would take seconds for a body of line ends.
        """
        if self.phase != BODY:
            self._line = b""
        elif taken != min(len(part), max(self._chunk - len(b"\r\n"), 0)):
            self._refuse(BAD_REQUEST)  # the parser found another size
        elif self._chunk:
            self._chunk -= len(part)
        else:
            self._line += part
            if part.endswith(b"\n"):
                match = _CHUNK_SIZE.match(self._line)
                size = int(match[0], 16) if match else 0
                self._chunk, self._line = size and size + len(b"\r\n"), b""

    def _fail_cached(self, error: httptools.HttpParserError, head: bytes) -> None:
        """Parse a head with an unknown method without the cache."""
        if isinstance(error, httptools.HttpParserInvalidMethodError):  # nothing was reported yet
            self.phase = BETWEEN
            self._renew_parser()
            self._feed_part(head)
        else:
            self._fail(error, head)

    def _cache_head(self, head: bytes) -> None:
        request = self._taken
        if request is None or self.phase == ENDED or len(head) > HeadCache.LARGEST:
            return
        self._heads.add(head, request)
        if self._heads.heads and self._quiet is None:
            self._quiet = self._new_quiet_parser()

    def _new_quiet_parser(self) -> httptools.HttpRequestParser:
        return httptools.HttpRequestParser(
            SimpleNamespace(
                on_url=self.on_url,
                on_headers_complete=self._take_cached_head,
                on_body=self.on_body,
                on_message_complete=self.on_message_complete,
            )
        )

    def _renew_parser(self) -> None:
        """Replace a parser that has stopped inside a request."""
        if self._parser is self._quiet:
            self._quiet = self._new_quiet_parser()
        else:
            self._parser = self._full = httptools.HttpRequestParser(self)

    def _has_only_begun(self, part: bytes) -> bool:
        """Store the first letters of a method until the rest arrives."""
        if not _BEGUN.fullmatch(part):
            return False
        self._begun, self._span, self.phase = part, len(part), HEAD
        return True

    def _parse(self, part: bytes) -> None:
        """Pass a part to the parser; an unknown method at its start is replaced.

        Any token may be a method (RFC 9110, 9.1), and routing will return 405. The parser gets a
        stand-in that it knows and treats like any other.
        """
        assert self._parser is not None
        try:
            self._parser.feed_data(part)
        except httptools.HttpParserInvalidMethodError:
            begins = self._span == len(part)  # "GET_", then "DELETE /": still not a DELETE
            method = _METHOD.match(part) if begins else None
            if method is None:
                raise
            self._strange_method = method[1].decode()
            self._renew_parser()
            self._parser.feed_data(b"SOURCE" + part[method.end(1) :])

    def forget(self) -> None:
        """Clear the cached heads: a connection that streams for hours does not need them."""
        self._taken = self._found = None
        self._heads.clear()
        if self.phase != HEAD:
            self._headers = {}
            self._target = b""

    def close(self) -> None:
        """Read nothing more; also releases the parser, which refers back to this reader."""
        self.phase = ENDED
        self._parser = self._full = self._quiet = None
        self._body = b""
        self.forget()

    # Incomplete requests

    @property
    def arriving(self) -> HttpRequest | None:
        """The request whose head has arrived and whose body has not."""
        return self._arriving.request if self._arriving is not None else None

    @property
    def unread_bytes(self) -> int:
        """Bytes in memory of an incomplete request."""
        return self._span if self.phase == HEAD else self._head_span + self._span

    def give_up_body(self) -> None:
        """Pass on the arriving request without its body, and read nothing more."""
        if self._arriving is not None:
            self._give_up_body(self._arriving)

    # Limits

    def _check_growth(self) -> None:
        """Limit an unfinished head, and the framing and trailers of a body."""
        if self.phase == HEAD:
            headers = len(self._headers) + len(self._repeated or ())
            if self._span > self._max_head or headers > self._max_headers:
                self._refuse(HEADERS_TOO_LARGE)
        elif self.phase == BODY and (
            self._left == 0  # the parser found another end than Content-Length says
            or self._span - self._body_bytes > self._max_head
        ):
            self._refuse(BAD_REQUEST)

    # Ends

    def _refuse(self, status: int) -> None:
        self.refusal = status
        self.close()

    def _fail(self, error: httptools.HttpParserError, data: bytes) -> None:
        if self.phase == ENDED:
            # we stopped the parser ourselves, or it found bytes after the last request
            self.close()
        elif self._is_other_protocol(error, data):
            self._refuse(CLOSE_SILENTLY)
        else:
            self._refuse(BAD_REQUEST)

    def _is_other_protocol(self, error: httptools.HttpParserError, data: bytes) -> bool:
        """Whether the client speaks TLS, HTTP/2 or no HTTP at all: it gets no response."""
        if isinstance(error, httptools.HttpParserInvalidMethodError):
            return self._span == len(data) and not data[:1].isalpha()  # its very first byte
        return self._parser is not None and self._parser.get_method() == b"PRI"

    # Callbacks of httptools

    def on_message_begin(self) -> None:
        self.phase = HEAD
        self._last = b""
        self._target = b""
        self._headers = {}
        self._repeated = None

    def on_url(self, part: bytes) -> None:
        self._target = self._target + part if self._target else part

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.phase != HEAD:
            return  # a trailer; it must never look like a header
        key = HEADER_NAMES.get(name) or name.decode("latin-1").lower()
        text = value.decode("latin-1")
        if key != "content-length":  # that is checked as it was sent
            text = text.rstrip(" \t")
        headers = self._headers
        if key not in headers:
            headers[key] = text
        elif self._repeated is None:
            self._repeated = [(key, text)]
        else:
            self._repeated.append((key, text))

    def on_headers_complete(self) -> None:
        status = self._take_head()
        if status:
            self._refuse(status)
            raise _Stop

    def _take_cached_head(self) -> None:
        """Continue with cached headers: called by the quiet parser at the end of a head."""
        head, self._found = self._found, None
        if head is None:  # the parser sees one more request than we do
            self._refuse(BAD_REQUEST)
            raise _Stop
        cached = head.cached
        self._headers, self._repeated = cached.headers, cached.repeated
        if head.length != cached.length:
            self._headers = {**cached.headers, "content-length": head.length}
        status = self._begin_request(cached.memo, modern=True)
        if status:
            self._refuse(status)
            raise _Stop

    def on_body(self, data: bytes) -> None:
        self._body_bytes += len(data)
        if self._body_bytes > self._max_body and self._arriving is not None:
            self._give_up_body(self._arriving)
            raise _Stop
        if not self._body:
            self._body = data
        elif isinstance(self._body, bytearray):
            self._body += data
        else:
            self._body = bytearray(self._body + data)

    def on_message_complete(self) -> None:
        arrived = self._arriving
        if arrived is None:
            return
        if self._body_bytes != self._length >= 0:  # the parser found another end than we did
            self._refuse(BAD_REQUEST)
            raise _Stop
        if self._body_bytes:
            arrived.request.body = bytes(self._body)
            self._body, self._body_bytes = b"", 0
        self._arriving = None
        # they belong to the request now
        self._headers, self._repeated, self._target = {}, None, b""
        self.wants_continue = False
        self.phase = BETWEEN if arrived.keep_alive else ENDED
        self.ready.append(arrived)

    # The head

    def _take_head(self) -> int:
        """Check a complete head and prepare its request; return the status of a refusal, or 0."""
        if self._parser is None:
            return BAD_REQUEST
        version = self._parser.get_http_version()
        status = check_headers(version, self._headers, self._repeated or (), self._max_headers)
        return status or self._begin_request(HeadMemo(), modern=version == "1.1")

    def _begin_request(self, memo: HeadMemo, *, modern: bool) -> int:
        """Prepare the request of a head with valid headers; `memo` is the cache beside them."""
        parser, headers = self._parser, self._headers
        if parser is None:
            return BAD_REQUEST
        if self._span > self._max_head:
            return HEADERS_TOO_LARGE
        target = self._target.decode("latin-1")
        path = target if target[:1] == "/" else origin_form(target)
        raw_method = parser.get_method()
        method = METHODS.get(raw_method) or self._strange_method or raw_method.decode("latin-1")
        self._strange_method = ""  # it is only for this request
        if not path or "#" in path or (path == "*" and method != "OPTIONS"):
            return BAD_REQUEST
        path, _, query = path.partition("?")
        request = HttpRequest(
            method,
            target,
            path,
            query,
            headers,
            self.peer,
            repeated=self._repeated or [],
            timeout=self._timeout,
            memo=memo,
        )
        keep_alive = parser.should_keep_alive() if "connection" in headers else modern
        arrived = Arrived(request, keep_alive=keep_alive, chunked=modern)
        self._arriving = arrived
        self.phase = BODY
        self._head_span, self._span, self._left, self._length = self._span, 0, 0, 0
        if ("upgrade" in headers or method == "CONNECT") and parser.should_upgrade():
            if status := check_upgrade(method, headers):
                return status
            if not modern:
                headers.pop("upgrade", None)  # of HTTP/1.0 it must be ignored (RFC 9110, 7.8)
        self._taken = request if modern and keep_alive and "upgrade" not in headers else None
        if "content-length" in headers or "transfer-encoding" in headers:
            return self._take_body_headers(arrived)
        return 0

    def _take_body_headers(self, arrived: Arrived) -> int:
        """Take the length of the body, or that it is chunked (RFC 9112, 6)."""
        headers = self._headers
        has_more = "transfer-encoding" in headers or "expect" in headers
        if has_more and (status := check_body_headers(headers, modern=arrived.chunked)):
            return status
        length = int(headers.get("content-length", "0"))
        if length > self._max_body:
            self._give_up_body(arrived)
            raise _Stop
        self._left = self._length = -1 if "transfer-encoding" in headers else length
        self.wants_continue = arrived.chunked and "expect" in headers
        return 0

    # The end of a request

    def _give_up_body(self, arrived: Arrived) -> None:
        """Pass on a request whose body exceeded the limit, without the body; read nothing more."""
        self._body, self._body_bytes, self._length = b"", 0, -1
        arrived.request.too_large = True
        arrived.keep_alive = False
        arrived.lingers = True
        self.on_message_complete()
