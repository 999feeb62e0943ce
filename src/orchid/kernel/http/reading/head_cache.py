"""Cache of the headers that one connection has sent, so that equal bytes become objects once.

Clients repeat their headers: only the request line and the body differ. `HeadCache.find` compares
bytes and nothing else. It reads no HTTP: the parser (kernel/http/reading/reader.py) reads every
byte of every request, and it alone decides where a request ends and what its request line says. A
head goes into the cache as the parser reported it, and only if the cache cuts its bytes in the same
way.
"""

import re
from typing import Final

import msgspec

from orchid.kernel.http.messages import HeadMemo, HttpRequest

# The only spelling of a Content-Length that is accepted, with nothing before or after it.
CONTENT_LENGTH: Final = re.compile(rb"0|[1-9][0-9]*")
_LENGTH_LINE: Final = re.compile(rb"(?i)(\r\ncontent-length:[ \t]*)([^\r\n]*)")
_VERSION_AND_CR: Final = b" HTTP/1.1\r"  # the end of a request line, compared with the headers


class CachedHead(msgspec.Struct, eq=False):
    """The headers of a request of HTTP/1.1, as bytes and as the parser reported them."""

    line: bytes  # the request line that they came with, without the version
    before: bytes  # from the version to the value of Content-Length, or to the end
    after: bytes  # behind that value; empty if there is no Content-Length
    length: str  # that value
    headers: dict[str, str]
    repeated: list[tuple[str, str]]
    memo: HeadMemo

    @property
    def size(self) -> int:
        return len(self.line) + len(self.before) + len(self.after)


class FoundHead(msgspec.Struct, eq=False):
    """A head with any request line and cached headers."""

    cached: CachedHead
    end: int  # of the head, in the data
    length: str  # the value of Content-Length; empty if there is none


class HeadCache:
    """The last few heads of one connection, each of which arrived at least twice."""

    __slots__ = ("_new", "_seen", "_size", "heads")

    MOST = 4
    LARGEST = 4096  # bytes of all of them together: idle connections keep little
    GIVE_UP = 32  # heads in a row that came once: proxies and tracing make each one differ

    def __init__(self) -> None:
        self.heads: list[CachedHead] = []
        self._size = 0
        self._seen: list[int] = []  # hashes of heads that came once
        self._new = 0  # heads in a row that came once

    def find(self, data: bytes, start: int) -> FoundHead | None:
        """The cached headers that follow the first line of the data, or None."""
        # The first line ends here, however it ends; a cached head has CRLF at this point.
        end = data.find(b"\n", start) - len(_VERSION_AND_CR)
        if end <= start:
            return None
        for cached in self.heads:
            if not data.startswith(cached.before, end):
                continue
            stop, length = end + len(cached.before), b""
            if cached.after:
                begin, stop = stop, data.find(b"\r\n", stop)
                length = data[begin:stop]
                if not CONTENT_LENGTH.fullmatch(length) or not data.startswith(cached.after, stop):
                    continue
                stop += len(cached.after)
            self._new = 0
            return FoundHead(cached, stop, length.decode("ascii"))
        return None

    def add(self, head: bytes, request: HttpRequest) -> None:
        """Cache a head the second time its headers arrive; most others never repeat."""
        if self._new >= self.GIVE_UP:
            return  # looking for repetitions costs 6 % of a get
        if head.find(b"\r\n\r\n") != len(head) - 4:
            return  # there is more than a head
        end = head.find(b"\n") - len(_VERSION_AND_CR)
        before, *length_and_after = _LENGTH_LINE.split(head[end:])
        length, after = b"", b""
        if length_and_after:
            name, length, after, *more = length_and_after
            before += name
            if more:
                return
        reported = request.headers.get("content-length", "")
        if length.decode("latin-1") != reported or not before.startswith(_VERSION_AND_CR):
            return  # the parser has read something else than was cut here
        mark = hash((before, after))
        if mark not in self._seen:
            self._seen = [*self._seen[1 - self.MOST :], mark]
            self._new += 1
            return
        self._new = 0
        cached = CachedHead(
            head[:end],
            before,
            after,
            reported,
            dict(request.headers),
            request.repeated,
            request.memo,
        )
        self.heads.append(cached)
        self._size += cached.size
        while len(self.heads) > self.MOST or self._size > self.LARGEST:
            self._size -= self.heads.pop(0).size

    def clear(self) -> None:
        self.heads, self._size, self._seen, self._new = [], 0, [], 0
