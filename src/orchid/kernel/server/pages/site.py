"""Everything that is not a resource: discovery, health, version, metrics, OpenID, OpenAPI.

`Pages` finds the page for a path, after authorization.
"""

import hashlib
import platform
import sys
from collections.abc import Awaitable, Callable

import msgspec

from orchid.kernel.base.version import __version__
from orchid.kernel.credentials.tokens import KeySet
from orchid.kernel.http.messages import Response
from orchid.kernel.server.discovery.documents import Discovery
from orchid.kernel.server.discovery.protobuf_documents import packed
from orchid.kernel.server.negotiate import (
    JSON,
    PROTOBUF,
    SERVED,
    clauses,
    form_of,
    not_acceptable,
    require_route_accepts,
)
from orchid.kernel.server.pages import openid
from orchid.kernel.server.pages.conditional import is_current
from orchid.kernel.server.pages.health import Health
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.server.respond import compressed, document, head, is_large
from orchid.kernel.wire.codec.documents import pretty
from orchid.kernel.wire.errors import MethodNotAllowed, NoSuchRoute
from orchid.kernel.wire.naming import DISCOVERY_GROUPS

Page = Callable[[RequestState], Response | Awaitable[Response]]


class Pages:
    """Paths to pages. `extra` are further exact paths, each with its page."""

    def __init__(
        self,
        discovery: Discovery,
        health: Health,
        extra: dict[str, Page],
        prefixes: dict[str, Page],
    ) -> None:
        self._discovery = discovery
        self._extra = {
            "/": self._index,
            "/index.html": self._index,
            **health.pages(),
            **extra,
        }
        self._prefixes = tuple(prefixes.items())
        self._version = version_document()
        self._tags: dict[str, str] = {}

    def answer(self, state: RequestState) -> Response | Awaitable[Response]:
        path = state.target.path
        page = self._extra.get(path)
        if page is None and path.removesuffix("/") in openid.PATHS:
            page = self._extra.get(path.removesuffix("/"))
        if page is not None:
            return page(state)
        for prefix, prefixed in self._prefixes:
            if path.startswith(prefix):
                return prefixed(state)
        trimmed = path.rstrip("/")
        if trimmed == "/version":
            return self._show_version(state)
        if trimmed in self._discovery.documents:
            return self._discover(state, path, trimmed)
        raise NoSuchRoute

    def is_served(self, path: str) -> bool:
        """Whether a path is below a served prefix, so that its 404 is a Status."""
        parts = path.removeprefix("/").rstrip("/").split("/")
        if parts[0] == "api" or path.startswith(tuple(f"{page}/" for page in openid.PATHS)):
            return True
        return parts[0] == "apis" and len(parts) > 1 and parts[1] in self._discovery.groups

    # -- pages -----------------------------------------------------------------------------

    def _discover(self, state: RequestState, path: str, trimmed: str) -> Response:
        root, _, below = trimmed.partition("/apis")
        any_method = not root and below != trimmed and "/" not in below[1:]
        accept = state.accept
        if path in ("/api", "/api/", "/apis") and (any_method or state.http.method == "GET"):
            aggregated = _aggregated_form(accept)
            if aggregated:
                return self._aggregate(state, trimmed, *aggregated)
        if not any_method:
            if state.http.method != "GET":
                raise MethodNotAllowed
            require_route_accepts(accept, SERVED)
        form = form_of(accept, table=False, transforms=False)
        if form is None:
            raise not_acceptable(SERVED)
        data = self._discovery.documents[trimmed]
        response = document(
            state, 200, data, form, packed(data) if form.media == PROTOBUF else None
        )
        return (
            compressed(response)
            if state.head.client.accepts_gzip and is_large(response)
            else response
        )

    def _aggregate(self, state: RequestState, path: str, group: str, media: str) -> Response:
        items = self._discovery.aggregated(path)
        tag = self._tags.get(path)
        if tag is None:
            tag = self._tags[path] = f'"{hashlib.sha512(items).hexdigest().upper()}"'
        kind = b'{"kind":"APIGroupDiscoveryList","apiVersion":"%b/v2",' % group.encode()
        fields = b"Etag: %b\r\nVary: Accept\r\n" % tag.encode()
        if state.http.headers.get("if-none-match") == tag:
            return Response(304, head(state, fields, cache=b"public"))
        headers = head(
            state,
            f"Content-Type: {media};g={group};v=v2;as=APIGroupDiscoveryList\r\n".encode() + fields,
            cache=b"public",
        )
        body = kind + items[1:]
        if media == PROTOBUF:
            return Response(200, headers, packed(body))
        return Response(200, headers, pretty(body) if state.pretty else body + b"\n")

    def _show_version(self, state: RequestState) -> Response:
        if state.http.method != "GET":
            raise MethodNotAllowed
        require_route_accepts(state.accept, (JSON,))
        return raw_json(state, self._version)

    def _index(self, state: RequestState) -> Response:
        pages = self._extra.keys() - {"/", "/index.html"}
        paths = sorted({*self._discovery.documents, *pages, "/apis/", "/version"})
        return raw_json(state, msgspec.json.encode({"paths": paths}))


def openid_page(
    keys: Callable[[], KeySet], make: Callable[[KeySet], openid.Document], max_age: float
) -> Page:
    """A document about the token keys, encoded again when they change."""
    latest: dict[int, tuple[KeySet, openid.Document, str]] = {}
    cache = b"public, max-age=%d" % max_age

    def page(state: RequestState) -> Response:
        if state.http.method != "GET":
            raise MethodNotAllowed
        current = keys()
        kept = latest.get(0)
        if kept is None or kept[0] is not current:
            document = make(current)
            kept = latest[0] = (current, document, document.tag)
        _, served, tag = kept
        media = require_route_accepts(state.accept, served.media_types)
        marked = f'Etag: "{tag}"\r\n'.encode()
        if is_current(state.http, tag):
            return Response(304, head(state, marked, cache=cache))
        content_type = f"Content-Type: {media}\r\n".encode()
        headers = head(state, content_type + marked, cache=cache)
        return Response(200, headers, served.body, is_cached=True)

    return page


def raw_json(state: RequestState, data: bytes) -> Response:
    return Response(200, head(state, b"Content-Type: application/json\r\n"), pretty(data))


def _aggregated_form(accept: str) -> tuple[str, str] | None:
    """The group and media type of a request for aggregated discovery, or None."""
    if "APIGroupDiscoveryList" not in accept:
        return None
    for clause in clauses(accept):
        group, media = clause.get("g"), f"{clause.type}/{clause.subtype}"
        if (
            group in DISCOVERY_GROUPS
            and clause.get("v") == "v2"
            and clause.get("as") == "APIGroupDiscoveryList"
            and media in (JSON, PROTOBUF)
        ):
            return group, media
    return None


def version_document() -> bytes:
    """The version document. Clients read the API level from major and minor."""
    return msgspec.json.encode(
        {
            "major": "1",
            "minor": "36",
            "gitVersion": f"v1.36.0+orchid.{__version__}",
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": f"{platform.python_implementation()} {platform.python_version()}",
            "platform": f"{sys.platform}/{platform.machine()}",
        }
    )
