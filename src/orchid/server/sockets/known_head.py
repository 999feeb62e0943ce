"""Requests whose headers came before on the same connection: they are not parsed again.

`Arrived` is a complete request, however it was read. `KnownHead` recognizes one by comparing bytes;
whatever differs in more than a plain request line is left to the parser (reader.py).
"""

import re
from typing import Final

import msgspec

from orchid.server.sockets.messages import HttpRequest

METHODS: Final = {
    name.encode(): name for name in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
}


class Arrived(msgspec.Struct, eq=False):
    """A complete request, and what its sender expects of the connection afterwards."""

    request: HttpRequest
    keep_alive: bool
    chunked: bool  # the client understands chunked answers: HTTP/1.1
    answered: bool = False  # the answer was given, or nobody is there to get it
    lingers: bool = False  # the client may still be sending a body that nobody will read


class KnownHead:
    """A head that was read before on this connection, to save reading its headers again.

    Clients repeat themselves: the same headers with another path, with another body of the same
    length or none. Only a piece that held exactly one whole request is remembered, so that equal
    bytes at the same place, between two requests, can only mean the same. A request line that is
    not the remembered one is read here when nothing about it is odd; the parser gets all others.
    """

    __slots__ = ("_headers", "_line", "_request", "_rest")

    LONGEST = 4096
    PLAIN_LINE = re.compile(
        rb"(GET|POST|PUT|PATCH|DELETE) "
        rb"((/[A-Za-z0-9._~%!$&'()*+,;=:@/-]*)(?:\?([A-Za-z0-9._~%!$&'()*+,;=:@/?-]*))?)"
        rb" HTTP/1\.1"
    )

    def __init__(self, line: bytes, headers: bytes, rest: int, request: HttpRequest) -> None:
        self._line = line
        self._headers = headers  # from the end of the line to the empty one, with both
        self._rest = rest  # length of the piece behind the line, with the body
        self._request = request

    @classmethod
    def of(cls, request: HttpRequest, piece: bytes) -> "KnownHead | None":
        line, end = piece.find(b"\r\n"), piece.find(b"\r\n\r\n") + 4
        if end > cls.LONGEST or end + len(request.body) != len(piece):
            return None
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
        return cls(piece[:line], piece[line:end], len(piece) - line, bare)

    def again(self, piece: bytes) -> Arrived | None:
        """The request in a piece that holds just one, with these headers; else None."""
        end = piece.find(b"\r\n")
        if len(piece) - end != self._rest or not piece.startswith(self._headers, end):
            return None
        known = self._request
        method, target, path, query = known.method, known.target, known.path, known.query
        if piece[:end] != self._line:
            line = self.PLAIN_LINE.fullmatch(piece, 0, end)
            if line is None:
                return None
            method = METHODS[line[1]]
            target, path = line[2].decode("ascii"), line[3].decode("ascii")
            query = line[4].decode("ascii") if line[4] else ""
        request = HttpRequest(
            method,
            target,
            path,
            query,
            known.headers,
            known.peer,
            body=piece[end + len(self._headers) :],
            repeated=known.repeated,
            timeout=known.timeout,
            head_memo=known.head_memo,
        )
        return Arrived(request, keep_alive=True, chunked=True)
