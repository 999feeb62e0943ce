"""Static documents: conditional and range requests for them.

`answer` returns the document, a part of it (206, 416), or that the client's copy is current (304,
412), by RFC 9110, sections 13 and 14. A request for several ranges gets the whole document.
"""

import email.utils
import re
from datetime import datetime, timedelta
from typing import Final

import msgspec

from orchid.kernel.http.messages import HttpRequest, Response
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.server.respond import head

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})").fullmatch
LONGEST_DATE: Final = 64
LONGEST_CONDITION: Final = 4096  # characters of a header that are looked at
_TAGS = re.compile(r'(?:W/)?("[^"]*")').findall


class StaticDocument(msgspec.Struct, frozen=True):
    """A body, its entity tag, and the time of its last change."""

    body: bytes
    tag: str  # without quotes; empty for none
    modified: datetime

    @property
    def last_modified(self) -> bytes:
        return b"Last-Modified: %b\r\n" % http_date(self.modified).encode()


def answer(
    state: RequestState,
    document: StaticDocument,
    headers: bytes,
    *,
    vary: bytes = b"",
    cache: bytes = b"no-cache, private",
) -> Response:
    """The response for this request; `headers` describe the body, `vary` the choice."""
    http = state.http
    tag = b'Etag: "%b"\r\n' % document.tag.encode() if document.tag else b""
    fields = head(state, tag + vary, cache=cache)
    refused = _precondition(http, document)
    if refused:
        return Response(refused, fields)
    described = fields + headers + document.last_modified + b"Accept-Ranges: bytes\r\n"
    span = _wanted_range(http, document)
    if span is None:
        return Response(200, described, document.body, is_cached=True)
    size = len(document.body)
    if not span:
        return Response(416, fields + b"Content-Range: bytes */%d\r\n" % size)
    content_range = b"Content-Range: bytes %d-%d/%d\r\n" % (span.start, span.stop - 1, size)
    return Response(206, described + content_range, document.body[span.start : span.stop])


def is_current(http: HttpRequest, tag: str) -> bool:
    """Whether the client already has the document with this entity tag: 304."""
    return _tag_matches(http.headers.get("if-none-match", ""), tag)


def http_date(moment: datetime) -> str:
    return email.utils.format_datetime(moment, usegmt=True)


def _precondition(http: HttpRequest, document: StaticDocument) -> int:
    """304 or 412 by the client's conditions; 0 to continue."""
    headers = http.headers
    reading = http.method in ("GET", "HEAD")
    if "if-match" in headers:
        if not _has(headers["if-match"], document):
            return 412
    elif "if-unmodified-since" in headers and _is_later(headers["if-unmodified-since"], document):
        return 412
    if "if-none-match" in headers:
        if _has(headers["if-none-match"], document):
            return 304 if reading else 412
    elif reading and "if-modified-since" in headers:
        since = headers["if-modified-since"]
        return 304 if _moment(since) and not _is_later(since, document) else 0
    return 0


def _has(given: str, document: StaticDocument) -> bool:
    return _tag_matches(given, document.tag)


def _tag_matches(condition: str, tag: str) -> bool:
    """Whether an entity tag is among those of a header (RFC 9110, section 13.1).

    Tags beyond the limit do not count: the client gets the document.
    """
    return condition.strip() == "*" or f'"{tag}"' in _TAGS(condition[:LONGEST_CONDITION])


def _is_later(since: str, document: StaticDocument) -> bool:
    """Whether the document is newer than a time; malformed times are ignored."""
    moment = _moment(since)
    return moment is not None and document.modified - timedelta(seconds=1) >= moment


def _moment(text: str) -> datetime | None:
    if len(text) > LONGEST_DATE:
        return None
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else None


def _wanted_range(http: HttpRequest, document: StaticDocument) -> range | None:
    """The requested bytes: None for the whole, an empty range if unsatisfiable."""
    match = _RANGE(http.headers.get("range", ""))
    condition = http.headers.get("if-range")
    if match is None or match[1] == match[2] == "" or http.method not in ("GET", "HEAD"):
        return None
    if condition is not None and condition not in (
        f'"{document.tag}"',
        http_date(document.modified),
    ):
        return None
    size = len(document.body)
    if not match[1]:
        return range(max(0, size - int(match[2])), size)
    first = int(match[1])
    last = min(int(match[2]), size - 1) if match[2] else size - 1
    if match[2] and int(match[2]) < first:
        return None  # malformed, so it is ignored
    return range(first, last + 1)
