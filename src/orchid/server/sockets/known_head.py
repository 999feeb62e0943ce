"""Requests whose headers came before: they are not parsed again.

`Arrived` is a request whose head was read, one way or the other. `KnownHead` recognizes one by
comparing bytes; whatever differs in more than a plain request line and the length of its body is
left to the parser (reader.py). `HeadsOfConnection` is what one connection remembers of its own, and
`KnownHeads` has those that came on others.
"""

import re
from typing import Final

import msgspec

from orchid.server.sockets.messages import HttpRequest, Peer
from orchid.wire.struct import replace

METHODS: Final = {
    name.encode(): name for name in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
}
NO_PEER: Final = Peer("")
_LENGTH: Final = re.compile(rb"(?i)(\r\ncontent-length:[ \t]*)([0-9]{1,9})(?=\r\n)")


class Arrived(msgspec.Struct, eq=False):
    """A request, and what its sender expects of the connection afterwards."""

    request: HttpRequest
    keep_alive: bool
    chunked: bool  # the client understands chunked answers: HTTP/1.1
    answered: bool = False  # the answer was given, or nobody is there to get it
    lingers: bool = False  # the client may still be sending a body that nobody will read
    missing: int = 0  # bytes of the body that have not come with a known head
    repeats: bool = False  # its head came before on this connection, and it has no body


class HeadParts(msgspec.Struct):
    """A head, cut where requests of one client differ: `headers` ends before the digits."""

    line: bytes
    headers: bytes  # from the end of the line
    length: bytes  # of the body, in digits; empty if the head does not say
    rest: bytes  # of the headers, with the empty line

    @classmethod
    def of(cls, head: bytes) -> "HeadParts | None":
        """Cut a head at these places; None if it cannot be, or begins with a blank line."""
        end = head.find(b"\r\n")
        match _LENGTH.split(head[end:]):
            case [headers] if end:
                return cls(head[:end], headers, b"", b"")
            case [before, name, length, rest] if end:
                return cls(head[:end], before + name, length, rest)
        return None

    @classmethod
    def at_front(cls, piece: bytes) -> "HeadParts | None":
        """Cut the head that a piece begins with; None if it is long, or is not there as a whole."""
        end = piece.find(b"\r\n\r\n", 0, KnownHead.LONGEST)
        return cls.of(piece[: end + 4]) if end > 0 else None

    @property
    def size(self) -> int:
        return len(self.line) + len(self.headers) + len(self.length) + len(self.rest)

    @property
    def all_headers(self) -> bytes:
        """The headers without the length of the body: what requests of one client share."""
        return self.headers + self.rest


class KnownHead:
    """A head that was read before, to save reading its headers again.

    Clients repeat themselves: the same headers with another path, with another body or none. Only
    a piece that began with this head, between two requests, and held nothing beyond its request is
    remembered, so that equal bytes at the same place can only mean the same. A request line that
    is not the remembered one is read here when nothing about it is odd; the parser gets all others.
    The request it keeps has no peer: that is of the connection on which it comes again.
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
            NO_PEER,
            repeated=list(request.repeated),
            timeout=request.timeout,
        )
        return cls(parts, bare)

    def again(self, piece: bytes, longest_body: int, peer: Peer) -> Arrived | None:
        """The request that a piece begins with, if it has these headers and nothing follows it."""
        parts, known = self._parts, self._request
        if len(piece) == self._size and piece.startswith(
            self._head
        ):  # nothing but the body differs
            request = replace(known, peer=peer, body=piece[len(self._head) :])
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
            peer,
            body=piece[start:],
            repeated=known.repeated,
            timeout=known.timeout,
            head_memo=known.head_memo,
        )
        return Arrived(request, keep_alive=True, chunked=True, missing=missing)


class KnownHeads:
    """Heads that came on any connection of a listener, by their headers.

    So a client's next connection begins where its last one was, and a proxy's, which carries the
    requests of many clients, knows them all. They are for connections without a certificate: there
    the headers alone tell who sends a request, and a head's memo may be shared (messages.py).
    """

    MOST = 1024  # the one that was not asked for the longest goes first

    def __init__(self) -> None:
        self._kept: dict[bytes, KnownHead] = {}
        self._seen: dict[int, None] = {}  # hashes of headers that came once

    def find(self, parts: HeadParts) -> KnownHead | None:
        headers = parts.all_headers
        known = self._kept.pop(headers, None)
        if known is not None:
            self._kept[headers] = known  # behind all others
        return known

    def came_before(self, parts: HeadParts) -> bool:
        """Tell whether headers are worth keeping: most that come once never come again."""
        seen, mark = self._seen, hash(parts.all_headers)
        if mark in seen:
            return True
        if len(seen) >= self.MOST:
            del seen[next(iter(seen))]
        seen[mark] = None
        return False

    def keep(self, parts: HeadParts, known: KnownHead) -> None:
        kept = self._kept
        kept[parts.all_headers] = known
        if len(kept) > self.MOST:
            del kept[next(iter(kept))]


class HeadsOfConnection:
    """What a connection remembers of heads: its last one, and where those of others are."""

    __slots__ = ("_headers", "_others", "_peer", "last")

    def __init__(self, peer: Peer, others: KnownHeads | None) -> None:
        """`others`: those of other connections, which this one may use if it has no certificate."""
        self._peer = peer
        self._others = others if peer.certificate is None else None
        self._headers = b""  # of the head before, which may come again
        self.last: KnownHead | None = None

    def find_elsewhere(self, piece: bytes, parts: HeadParts, longest_body: int) -> Arrived | None:
        """The request that a piece begins with, if another connection had its headers."""
        known = self._others.find(parts) if self._others is not None else None
        arrived = known.again(piece, longest_body, self._peer) if known is not None else None
        if arrived is not None:
            self.last = known
            arrived.repeats = False
        return arrived

    def remember(self, request: HttpRequest, piece: bytes, parts: HeadParts | None) -> None:
        """Keep a head the second time its headers come; most of others never come again."""
        if parts is None or parts.size + len(request.body) != len(piece):
            self._headers = b""  # idle connections keep little
            return
        # What unknown callers send is kept by their own connection alone.
        others = self._others if self._peer.known else None
        came_before = others is not None and others.came_before(parts)
        if came_before or parts.all_headers == self._headers:
            self.last = known = KnownHead.of(request, parts)
            if others is not None:
                others.keep(parts, known)
        self._headers = parts.all_headers

    def forget(self) -> None:
        self.last = None
        self._headers = b""
