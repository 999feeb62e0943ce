"""Requests and responses of the console, independent of the listener."""

from collections.abc import AsyncIterator, Mapping
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

HTML: Final = "text/html; charset=utf-8"
LARGEST_BODY: Final = 256 * 1024
MOST_FIELDS: Final = 64
MOST_COOKIES: Final = 256  # more than a browser keeps for a host
FORM: Final = "application/x-www-form-urlencoded"

Fields = dict[str, str]


class UnreadableRequest(ValueError):
    """A request that no page understands; the message says why."""


class WebRequest(msgspec.Struct, frozen=True):
    """A request of a browser."""

    method: str
    path: str  # as sent: segments are decoded by the router
    query: Fields = msgspec.field(default_factory=dict)
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)  # names in lower case
    body: bytes = b""
    address: str = ""  # of the browser, host:port; empty on this machine
    certificate: bytes | None = None  # of the browser, as DER; nothing is verified

    def cookie(self, name: str) -> str:
        """The value of a cookie; empty if there is none.

        Programs on other ports of the host can set cookies, too. They cannot hide ours: the first
        one counts, whose path is the longest, and malformed ones are skipped. Only spaces and tabs
        are removed: a name after another kind of space is another name, and browsers do not protect
        it as they protect `__Host-`.
        """
        for pair in self.headers.get("cookie", "").split(";", MOST_COOKIES)[:MOST_COOKIES]:
            key, _, value = pair.partition("=")
            if key.strip(" \t") == name:
                return value.strip(" \t")
        return ""

    @property
    def form(self) -> Fields:
        media = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media != FORM:
            raise UnreadableRequest("a form must be sent as " + FORM)
        return _fields(self.body.decode("utf-8", "replace"))


class WebResponse(msgspec.Struct, frozen=True):
    """A response; with `stream`, a body without end."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    media: str = HTML
    stream: AsyncIterator[bytes] | None = None


def redirect(target: str) -> WebResponse:
    """See Other: the browser fetches the target with GET."""
    return WebResponse(303, headers=(("Location", target),))


def parse_target(target: str) -> tuple[str, Fields]:
    """Path and query of a request target."""
    if not target.startswith("/") or target.startswith("//"):
        raise UnreadableRequest("the target is not a path")
    parts = urlsplit(target)
    return parts.path, _fields(parts.query)


def _fields(text: str) -> Fields:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise UnreadableRequest(f"more than {MOST_FIELDS} fields") from None
    fields: Fields = {}
    for name, value in pairs:
        if name in fields:
            raise UnreadableRequest(f"the field {name!r} occurs twice")
        fields[name] = value
    return fields
