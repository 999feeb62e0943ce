"""Parsed paths are shared by requests with the same target, and by no others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.http.messages import HttpRequest, Peer
from orchid.kernel.server.memory.paths import PLAIN_PARAMETERS, PathCache
from orchid.kernel.server.parse import parse_path, with_query
from orchid.kernel.wire.options import parse_query

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


NAMES = st.sampled_from([*PLAIN_PARAMETERS, "watch", "dryRun", "fieldSelector", "labelSelector"])
VALUES = st.sampled_from(
    ["", "1", "true", "0", "All", "a=b", "metadata.name%3Dx", "3s", ";", "%zz"]
)


@given(
    path=st.sampled_from([LIST, f"{LIST}/p", "/api/v1/nodes", "/livez", "/webhook/clusters/x"]),
    method=st.sampled_from(["GET", "POST", "DELETE", "PATCH"]),
    pairs=st.lists(st.tuples(NAMES, VALUES), max_size=4),
)
def test_the_cache_finds_the_target_that_parsing_finds(
    path: str, method: str, pairs: list[tuple[str, str]]
) -> None:
    cache, query = PathCache(), "&".join(f"{name}={value}" for name, value in pairs)
    cache.parse(HttpRequest(method, path, path, "", {}, Peer("127.0.0.1:1")))  # it is cached now

    found, values = cache.parse(
        HttpRequest(method, f"{path}?{query}", path, query, {}, Peer("127.0.0.1:1"))
    )

    plain = parse_path(method, path)
    assert values == parse_query(query)
    assert found.target == with_query(plain.target, plain.shape, parse_query(query))
