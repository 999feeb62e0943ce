"""Cache of parsed paths: most requests repeat a path.

`PathCache.parse` parses method, path and query of a request. The caller is not known yet, so the
length is limited, and the cache has a fixed size. It contains no query, and nothing about callers.
"""

import functools
from typing import Any, Final

from orchid.engine.kind import Endpoint, Kind
from orchid.engine.request import Target
from orchid.server.parse import NO_QUERY, NO_RESOURCE, PathShape, Query, parse_path, with_query
from orchid.server.sockets.messages import HttpRequest
from orchid.wire.errors import BadRequest
from orchid.wire.options import parse_query

LONGEST_TARGET: Final = 32_768  # characters of path and query together
LONGEST_CACHED: Final = 256
MOST_PATHS: Final = 4096

Route = tuple[Kind[Any], Endpoint | None]


class ParsedPath:
    """The target of a method and a path, and values that depend on nothing else."""

    __slots__ = ("labels", "route", "shape", "target")

    def __init__(self, target: Target, shape: PathShape) -> None:
        self.target = target
        self.shape = shape
        self.route: Route | None = None  # set by server/dispatch.py
        self.labels: tuple[str, ...] | None = None  # set by server/metrics/requests.py


# Of a request that was not parsed. It is no resource, so nobody caches a route or labels here.
NO_PATH: Final = ParsedPath(Target(verb=""), NO_RESOURCE)


class PathCache:
    """The parsed paths of one server."""

    def __init__(self) -> None:
        self.cached = functools.lru_cache(maxsize=MOST_PATHS)(_parsed)

    def parse(self, http: HttpRequest) -> tuple[ParsedPath, Query]:
        """The target of a request and its query; only a path without a query is cached."""
        path, raw_query = http.path, http.query
        if len(path) <= LONGEST_CACHED:
            parsed = self.cached(http.method, path)
        elif len(path) <= LONGEST_TARGET:
            parsed = _parsed(http.method, path)
        else:
            raise _too_long()
        if not raw_query:
            return parsed, NO_QUERY
        if len(path) + len(raw_query) > LONGEST_TARGET:
            raise _too_long()
        query, shape = parse_query(raw_query), parsed.shape
        return ParsedPath(with_query(parsed.target, shape, query), shape), query


def _parsed(method: str, path: str) -> ParsedPath:
    return ParsedPath(*parse_path(method, path))


def _too_long() -> BadRequest:
    return BadRequest(f"the request target is longer than {LONGEST_TARGET} characters")
