"""Cache of parsed paths: most requests repeat a path.

`parse_target` parses method, path and query of a request. The caller is not known yet, so the
length is limited, and the cache has a fixed size. It contains no query, and nothing about callers.
"""

import functools
from typing import Final

from orchid.engine.request import Target
from orchid.server.parse import NO_QUERY, PathShape, Query, parse_path, with_query
from orchid.server.sockets.messages import HttpRequest
from orchid.wire.errors import BadRequest
from orchid.wire.options import parse_query

LONGEST_TARGET: Final = 32_768  # characters of path and query together
LONGEST_CACHED: Final = 256
MOST_PATHS: Final = 4096

_cached_path = functools.lru_cache(maxsize=MOST_PATHS)(parse_path)


def parse_target(http: HttpRequest) -> tuple[Target, PathShape, Query]:
    """What a request asks for, the shape of its path for routing, and its query."""
    path, raw_query = http.path, http.query
    if len(path) <= LONGEST_CACHED:
        target, shape = _cached_path(http.method, path)
    elif len(path) <= LONGEST_TARGET:
        target, shape = parse_path(http.method, path)
    else:
        raise _too_long()
    if not raw_query:
        return target, shape, NO_QUERY
    if len(path) + len(raw_query) > LONGEST_TARGET:
        raise _too_long()
    query = parse_query(raw_query)
    return with_query(target, shape, query), shape, query


def _too_long() -> BadRequest:
    return BadRequest(f"the request target is longer than {LONGEST_TARGET} characters")
