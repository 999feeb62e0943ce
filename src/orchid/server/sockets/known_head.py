"""Requests whose headers came before on the same connection: they are not parsed again.

`Arrived` is a request whose head was read, one way or the other. `KnownHead` recognizes one by
comparing bytes; whatever differs in more than a plain request line and the length of its body is
left to the parser (reader.py).
"""

import re
from typing import Final

import msgspec

from orchid.server.sockets.messages import HttpRequest
from orchid.wire.struct import replace

METHODS: Final = {
    name.encode(): name for name in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
}
_LENGTH: Final = re.compile(rb"(?i)(\r\ncontent-length:[ \t]*)([0-9]{1,9})(?=\r\n)")


class Arrived(msgspec.Struct, eq=False):
    """A request, and what its sender expects of the connection afterwards."""

    request: HttpRequest
    keep_alive: bool
    chunked: bool  # the client understands chunked answers: HTTP/1.1
    answered: bool = False  # the answer was given, or nobody is there to get it
    lingers: bool = False  # the client may still be sending a body that nobody will read
    missing: int = 0  # bytes of the body that have not come with a known head
    repeats: bool = False  # its head is the one remembered on this connection, and it has no body


class HeadParts(msgspec.Struct):
    """A head, cut where requests of one client differ: `headers` ends before the digits."""

    line: bytes
    headers: bytes  # from the end of the line
    length: bytes  # of the body, in digits; empty if the head does not say
    rest: bytes  # of the headers, with the empty line

    @classmethod
    def of(cls, head: bytes) -> "HeadParts | None":
        """Cut a head that was found to be good; None if it begins with a blank line."""
        end = head.find(b"\r\n")
        match _LENGTH.split(head[end:]):
            case [headers] if end:
                return cls(head[:end], headers, b"", b"")
            case [before, name, length, rest] if end:
                return cls(head[:end], before + name, length, rest)
        return None


class KnownHead:
    """A head that was read before on this connection, to save reading its headers again.

    Clients repeat themselves: the same headers with another path, with another body or none. Only
    a piece that began with this head, between two requests, and held nothing beyond its request is
    remembered, so that equal bytes at the same place can only mean the same. A request line that
    is not the remembered one is read here when nothing about it is odd; the parser gets all others.
    """

    __slots__ = ("_head", "_parts", "_request", "_size")

    LONGEST = 4096
    PLAIN_LINE = re.compile(
        rb"(GET|POST|PUT|PATCH|DELETE) "
        rb"((/[A-Za-z0-9._~%!$&'()*+,;=:@/-]*)(?:\?([A-Za-z0-9._~%!$&'()*+,;=:@/?-]*))?)"
        rb" HTTP/1\.1"
    )

    def __init__(self, parts: HeadParts, request: HttpRequest) -> None:
        self._parts = parts
        self._request = request
        self._head = parts.line + parts.headers + parts.length + parts.rest
        self._size = len(self._head) + int(parts.length or 0)

    @classmethod
    def of(cls, request: HttpRequest, parts: HeadParts) -> "KnownHead":
        bare = HttpRequest(
            request.method,
            request.target,
            request.path,
            request.query,
            request.headers,
            request.peer,
            repeated=list(request.repeated),
            timeout=request.timeout,
        )
        return cls(parts, bare)

    def again(self, piece: bytes, longest_body: int) -> Arrived | None:
        """The request that a piece begins with, if it has these headers and nothing follows it."""
        parts, known = self._parts, self._request
        if len(piece) == self._size and piece.startswith(
            self._head
        ):  # nothing but the body differs
            request = replace(known, body=piece[len(self._head) :])
            return Arrived(request, keep_alive=True, chunked=True, repeats=not request.body)
        end = piece.find(b"\r\n")
        if not piece.startswith(parts.headers, end):
            return None
        start = end + len(parts.headers)
        headers, length = known.headers, 0
        if parts.length:
            stop = piece.find(b"\r\n", start)
            digits = piece[start:stop]
            if not piece.startswith(parts.rest, stop):
                return None
            start = stop + len(parts.rest)
            if digits != parts.length:
                if not digits.isdigit() or len(digits) > len("999999999"):
                    return None
                headers = {**headers, "content-length": digits.decode("ascii")}
            length = int(digits)
        missing = length + start - len(piece)
        if missing < 0 or length > longest_body:
            return None
        method, target, path, query = known.method, known.target, known.path, known.query
        if piece[:end] != parts.line:
            line = self.PLAIN_LINE.fullmatch(piece, 0, end)
            if line is None:
                return None
            sent, text, before, after = line.groups()
            method = METHODS[sent]
            target = path = text.decode("ascii")
            query = ""
            if after is not None:
                path, query = before.decode("ascii"), after.decode("ascii")
        request = HttpRequest(
            method,
            target,
            path,
            query,
            headers,
            known.peer,
            body=piece[start:],
            repeated=known.repeated,
            timeout=known.timeout,
            head_memo=known.head_memo,
        )
        return Arrived(request, keep_alive=True, chunked=True, missing=missing)
