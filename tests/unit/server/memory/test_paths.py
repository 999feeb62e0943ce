"""Parsed paths are shared by requests with the same target, and by no others."""

import pytest

from orchid.server.memory.paths import PathCache
from orchid.server.sockets.messages import HttpRequest, Peer

LIST = "/api/v1/namespaces/ns/pods"


def parsed(cache: PathCache, query: str, path: str = LIST, method: str = "GET") -> object:
    target = f"{path}?{query}" if query else path
    return cache.parse(HttpRequest(method, target, path, query, {}, Peer("127.0.0.1:1")))[0]


@pytest.mark.parametrize("query", ["", "timeout=3s", "pretty=true&timeout=1s", "fieldManager=me"])
def test_parameters_of_every_request_do_not_matter(query: str) -> None:
    """A client with a timeout gains from the cache, too."""
    cache = PathCache()

    assert parsed(cache, query) is parsed(cache, "")


@pytest.mark.parametrize(
    "query",
    ["watch=true", "dryRun=All", "timeout=3s&watch=1", "labelSelector=a%3Db", "unknown=1"],
)
def test_a_parameter_that_matters_has_its_own_target(query: str) -> None:
    """A watch is no list, and a dry run is counted by itself."""
    cache = PathCache()

    assert parsed(cache, query) is not parsed(cache, "")
