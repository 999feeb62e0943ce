"""Cache of parsed paths: most requests repeat a path.

`PathCache.parse` parses method, path and query of a request. The caller is not known yet, so the
length is limited, and the cache has a fixed size. It contains no query, and nothing about callers.
"""

import functools
from typing import Final

from orchid.kernel.http.messages import HttpRequest
from orchid.kernel.server.parse import NO_QUERY, ParsedPath, Query, parse_path, with_query
from orchid.kernel.wire.errors import BadRequest
from orchid.kernel.wire.options import parse_query

LONGEST_TARGET: Final = 32_768  # characters of path and query together
LONGEST_CACHED: Final = 256
MOST_PATHS: Final = 4096
# Parameters that change neither target nor labels of a request: clients add them to every one.
PLAIN_PARAMETERS: Final = frozenset({"timeout", "pretty", "fieldManager", "fieldValidation"})


class PathCache:
    """The parsed paths of one server."""

    def __init__(self) -> None:
        self.cached = functools.lru_cache(maxsize=MOST_PATHS)(parse_path)

    def parse(self, http: HttpRequest) -> tuple[ParsedPath, Query]:
        """The target of a request, cached by its path, and its query, which is not."""
        path, raw_query = http.path, http.query
        if len(path) <= LONGEST_CACHED:
            parsed = self.cached(http.method, path)
        elif len(path) <= LONGEST_TARGET:
            parsed = parse_path(http.method, path)
        else:
            raise _too_long()
        if not raw_query:
            return parsed, NO_QUERY
        if len(path) + len(raw_query) > LONGEST_TARGET:
            raise _too_long()
        query, shape = parse_query(raw_query), parsed.shape
        if query.keys() <= PLAIN_PARAMETERS:
            return parsed, query
        return ParsedPath(with_query(parsed.target, shape, query), shape), query


def _too_long() -> BadRequest:
    return BadRequest(f"the request target is longer than {LONGEST_TARGET} characters")
