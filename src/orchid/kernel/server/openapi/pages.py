"""The OpenAPI pages: document, format and caching.

Start with `OpenApiPages.show_v2`. The documents are created with the pages: schemas in schemas.py,
paths in paths.py and discovery_paths.py, the older format in swagger.py and swagger_protobuf.py.
They are the same for all users.
"""

import functools
import gzip
import hashlib
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from orchid.kernel.base.version import __version__
from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.http.messages import Response
from orchid.kernel.server.failures import BareRefusal
from orchid.kernel.server.negotiate import JSON, clauses
from orchid.kernel.server.openapi import swagger as openapi_v2
from orchid.kernel.server.openapi import swagger_protobuf
from orchid.kernel.server.openapi.discovery_paths import page_documents
from orchid.kernel.server.openapi.locations import V3
from orchid.kernel.server.openapi.paths import FAILURE, Paths, group_path
from orchid.kernel.server.openapi.schemas import PREFIX, Definitions
from orchid.kernel.server.pages.conditional import StaticDocument, answer, http_date
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.server.respond import head
from orchid.kernel.wire.naming import Naming

KEPT_FOR: Final = timedelta(days=365)

PROTOBUF_V2: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
OLD_PROTOBUF_V2: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_FORMS: Final = {JSON: JSON, PROTOBUF_V2: PROTOBUF_V2, OLD_PROTOBUF_V2: PROTOBUF_V2}

_VARY_ACCEPT: Final = b"Vary: Accept\r\n"
_VARY_BOTH: Final = b"Vary: Accept-Encoding\r\nVary: Accept\r\n"
_BEARER: Final = {
    "BearerToken": {
        "description": "A bearer token. A client certificate does as well.",
        "type": "apiKey",
        "name": "authorization",
        "in": "header",
    }
}

_sorted = functools.partial(msgspec.json.encode, order="sorted")


class Swagger(msgspec.Struct, frozen=True):
    """The old document in its two formats, which share one entity tag."""

    forms: dict[str, StaticDocument]
    compressed: dict[str, StaticDocument]

    @classmethod
    def of(cls, plain: StaticDocument, protobuf: bytes) -> "Swagger":
        tag, modified = plain.tag, plain.modified
        forms = {JSON: plain, PROTOBUF_V2: StaticDocument(protobuf, tag, modified)}
        smaller = {media: gzip.compress(form.body, 6, mtime=0) for media, form in forms.items()}
        return cls(forms, {m: StaticDocument(body, tag, modified) for m, body in smaller.items()})


class OpenApiPages:
    """The documents and their pages. Creating them takes long."""

    def __init__(
        self, catalog: Catalog, naming: Naming, openid_paths: Iterable[str], now: datetime
    ) -> None:
        self._catalog = catalog
        self._naming = naming
        self._openid_paths = tuple(openid_paths)
        self._info = {"title": "Orchid", "version": __version__}
        self._documents = self._make(now)

    # -- pages -------------------------------------------------------------------------------

    def show_v2(self, state: RequestState) -> Response:
        media = _form(state.accept, _FORMS)
        if media is None:
            raise BareRefusal(406, _VARY_BOTH)
        forms = self._documents.swagger.forms
        content = b"Content-Type: %b\r\n" % media.encode()
        if state.head.client.accepts_gzip and "range" not in state.http.headers:
            forms = self._documents.swagger.compressed
            content += b"Content-Encoding: gzip\r\n"
        return answer(state, forms[media], content, vary=_VARY_BOTH)

    def show_index(self, state: RequestState) -> Response:
        index = self._documents.index
        return answer(state, index, b"Content-Type: text/plain; charset=utf-8\r\n")

    def show_v3(self, state: RequestState) -> Response:
        key = state.target.path.removeprefix(f"{V3}/")
        document = self._documents.groups.get(key)
        if document is None:
            raise BareRefusal(404)
        if _form(state.accept, {JSON: JSON}) is None:
            raise BareRefusal(406, _VARY_ACCEPT)
        content = b"Content-Type: application/json\r\n"
        asked = (state.query.get("hash") or [""])[0]
        if not asked:
            return answer(state, document, content, vary=_VARY_ACCEPT)
        if asked != document.tag:
            location = b"Location: %b\r\n" % _url(key, document).encode()
            return Response(301, head(state, location + _VARY_ACCEPT))
        until = http_date(state.now + KEPT_FOR).replace("GMT", "UTC")
        content += b"Expires: %b\r\n" % until.encode()
        kept = b"public, immutable"
        return answer(state, document, content, vary=_VARY_ACCEPT, cache=kept)

    # -- documents ---------------------------------------------------------------------------

    def _make(self, now: datetime) -> "Made":
        definitions = Definitions(self._naming)
        paths = Paths(self._naming, definitions)
        documents = page_documents(self._catalog, self._naming, definitions, self._openid_paths)
        for kind in self._catalog.kinds:
            key = group_path(kind.group, kind.version).strip("/")
            documents[key].update(paths.of(kind))
        responses = {FAILURE: paths.failure()}
        schemas = definitions.schemas
        groups = {
            key: _fixed(_sorted(self._document(document, schemas, responses)), now)
            for key, document in sorted(documents.items())
        }
        everything = {
            path: item for document in documents.values() for path, item in document.items()
        }
        swagger = openapi_v2.swagger(self._info, everything, schemas, responses, _BEARER)
        plain = _fixed(_sorted(swagger), now)
        urls = {key: {"serverRelativeURL": _url(key, document)} for key, document in groups.items()}
        index = StaticDocument(_sorted({"paths": urls}), "", plain.modified)
        return Made(Swagger.of(plain, swagger_protobuf.encode(swagger)), groups, index)

    def _document(
        self, paths: dict[str, Any], schemas: dict[str, Any], responses: dict[str, Any]
    ) -> dict[str, Any]:
        needed = _reachable([paths, responses], schemas)
        return {
            "openapi": "3.0.0",
            "info": self._info,
            "paths": paths,
            "components": {
                "schemas": {name: schemas[name] for name in needed},
                "responses": responses,
                "securitySchemes": _BEARER,
            },
            "security": [{name: []} for name in _BEARER],
        }


class Made(msgspec.Struct, frozen=True):
    """All documents, created together so that they agree."""

    swagger: Swagger
    groups: dict[str, StaticDocument]
    index: StaticDocument


def _form(accept: str, forms: dict[str, str]) -> str | None:
    """The format for the best clause of Accept, or None if there is none."""
    if not accept:
        return JSON
    for clause in clauses(accept):
        media = f"{clause.type}/{clause.subtype}"
        if media in ("*/*", "application/*"):
            return JSON
        if media in forms:
            return forms[media]
    return None


def _fixed(body: bytes, now: datetime) -> StaticDocument:
    return StaticDocument(body, hashlib.sha512(body).hexdigest().upper(), now)


def _url(key: str, document: StaticDocument) -> str:
    return f"{V3}/{key}?hash={document.tag}"


def _reachable(roots: Iterable[Any], schemas: dict[str, Any]) -> list[str]:
    """The names of all definitions that are referenced from here, in order."""
    reached: set[str] = set()
    open_ends: list[Any] = list(roots)
    while open_ends:
        value = open_ends.pop()
        if isinstance(value, list | tuple):
            open_ends.extend(value)
        elif isinstance(value, dict):
            name = value.get("$ref")
            if isinstance(name, str) and name.startswith(PREFIX):
                name = name.removeprefix(PREFIX)
                if name not in reached:
                    reached.add(name)
                    open_ends.append(schemas[name])
            open_ends.extend(value.values())
    return sorted(reached)
