"""Rules for the head of a request that the parser does not check; each violation is refused.

The parser (httptools) reads the grammar. These functions check its result: one Host, one
unambiguous length of the body, supported versions and codings (RFC 9112, sections 3.2 and 6). A
function returns the HTTP status of a refusal, or 0.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from orchid.kernel.http.reading.head_cache import CONTENT_LENGTH

BAD_REQUEST: Final = 400
EXPECTATION_FAILED: Final = 417
HEADERS_TOO_LARGE: Final = 431
NOT_IMPLEMENTED: Final = 501
VERSION_NOT_SUPPORTED: Final = 505

SMALLEST_REQUEST: Final = len(b"GET / HTTP/1.1\r\nHost:\r\n\r\n")
METHODS: Final = {
    name.encode(): name for name in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
}
# Lower-case header names by their usual spellings: a lookup is faster than decoding. Others are not
# added, because a client could fill the memory with them.
HEADER_NAMES: Final = {
    spelling.encode(): name.lower()
    for name in (
        "Accept",
        "Accept-Encoding",
        "Authorization",
        "Connection",
        "Content-Length",
        "Content-Type",
        "Expect",
        "Host",
        "Transfer-Encoding",
        "User-Agent",
    )
    for spelling in (name, name.lower())
}
_ONCE: Final = frozenset({"host", "content-length", "transfer-encoding"})

Headers = Mapping[str, str]


def check_headers(
    version: str, headers: Headers, repeated: Sequence[tuple[str, str]], max_headers: int
) -> int:
    """Check version, number of headers, Host, and the spelling of Content-Length."""
    if version not in ("1.1", "1.0"):
        return VERSION_NOT_SUPPORTED
    if len(headers) + len(repeated) > max_headers:
        return HEADERS_TOO_LARGE
    if version == "1.1" and "host" not in headers:
        return BAD_REQUEST
    if repeated and any(name in _ONCE for name, _ in repeated):
        return BAD_REQUEST
    if not CONTENT_LENGTH.fullmatch(headers.get("content-length", "0").encode("latin-1")):
        return BAD_REQUEST  # other programs may find another length in it, or none
    return 0


def check_body_headers(headers: Headers, *, modern: bool) -> int:
    """Check Transfer-Encoding and Expect; `modern` is HTTP/1.1."""
    coding = headers.get("transfer-encoding")
    if coding is not None and coding.lower() != "chunked":
        return NOT_IMPLEMENTED
    if coding is not None and not modern:
        return BAD_REQUEST  # HTTP/1.0 has no chunked bodies; a proxy may interpret this differently
    if headers.get("expect", "100-continue").lower() != "100-continue":
        return EXPECTATION_FAILED
    return 0


def check_upgrade(method: str, headers: Headers) -> int:
    """Refuse CONNECT, and an upgrade with a body: the parser would not read that body."""
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    return BAD_REQUEST if method == "CONNECT" or has_body else 0


def origin_form(target: str) -> str:
    """Return path and query of a target in any form; "" if it has none (RFC 9112, 3.2)."""
    if target == "*":
        return target
    scheme, separator, rest = target.partition("://")
    if not separator or scheme.lower() not in {"http", "https"}:
        return ""
    authority, slash, path = rest.partition("/")
    if not slash:
        authority, mark, query = rest.partition("?")
        path = mark + query
    return "/" + path if authority and "?" not in authority else ""
