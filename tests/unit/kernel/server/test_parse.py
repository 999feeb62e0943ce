"""From method, path and query to what is asked for (api-machinery, section 1.1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.engine.request import Target
from orchid.kernel.http.messages import HttpRequest, Peer
from orchid.kernel.server.memory.paths import MOST_PATHS, PathCache
from orchid.kernel.server.parse import ParsedPath, PathShape, Query, UnreadableTarget, read_options
from orchid.kernel.wire.errors import ApiError

CACHE = PathCache()


def parsed(method: str, target: str) -> tuple[ParsedPath, Query]:
    path, _, query = target.partition("?")
    return CACHE.parse(HttpRequest(method, target, path, query, {}, Peer("")))


def target_of(method: str, target: str) -> Target:
    return parsed(method, target)[0].target


def words(found: Target) -> tuple[str, ...]:
    place = f"{found.group}/{found.version}".lstrip("/")
    return (found.verb, place, found.namespace, found.full_resource, found.name)


@pytest.mark.parametrize(
    ("method", "target", "verb", "where", "namespace", "resource", "name"),
    [
        ("GET", "/api/v1/pods", "list", "v1", "", "pods", ""),
        ("GET", "/api/v1/pods/", "list", "v1", "", "pods", ""),
        ("GET", "/api/v1/pods?watch", "watch", "v1", "", "pods", ""),
        ("GET", "/api/v1/pods?watch=0", "list", "v1", "", "pods", ""),
        ("GET", "/api/v1/pods?watch=FALSE", "list", "v1", "", "pods", ""),
        ("GET", "/api/v1/pods?watch=yes", "watch", "v1", "", "pods", ""),
        ("GET", "/api/v1/namespaces/n/pods/p", "get", "v1", "n", "pods", "p"),
        ("HEAD", "/api/v1/namespaces/n/pods/p", "get", "v1", "n", "pods", "p"),
        ("POST", "/api/v1/namespaces/n/pods", "create", "v1", "n", "pods", ""),
        ("PUT", "/api/v1/namespaces/n/pods/p/status", "update", "v1", "n", "pods/status", "p"),
        ("PATCH", "/apis/g/v2/things/t", "patch", "g/v2", "", "things", "t"),
        ("DELETE", "/apis/g/v2/things", "deletecollection", "g/v2", "", "things", ""),
        ("DELETE", "/apis/g/v2/things/t", "delete", "g/v2", "", "things", "t"),
        ("BREW", "/apis/g/v2/things/t", "", "g/v2", "", "things", "t"),
        ("GET", "/api/v1/namespaces", "list", "v1", "", "namespaces", ""),
        ("GET", "/api/v1/namespaces/n", "get", "v1", "n", "namespaces", "n"),
        ("PUT", "/api/v1/namespaces/n/finalize", "update", "v1", "n", "namespaces/finalize", "n"),
        ("GET", "/api/v1/watch/namespaces/n/pods", "watch", "v1", "n", "pods", ""),
        ("GET", "/api/v1/watch/pods/p", "watch", "v1", "", "pods", "p"),
        ("GET", "/api/v1/namespaces//pods", "list", "v1", "", "pods", ""),
        ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dp", "list", "v1", "", "pods", "p"),
        ("GET", "/api/v1/pods?fieldSelector=metadata.name%3D..", "list", "v1", "", "pods", ""),
        ("GET", "/api/v1/pods?limit=x&fieldSelector=metadata.name=p", "list", "v1", "", "pods", ""),
        ("GET", "/api/v1/pods?fieldSelector=%3D%3D%3D", "list", "v1", "", "pods", ""),
        ("GET", "/api/v1/namespaces/n/pods/%C3%A4", "get", "v1", "n", "pods", "ä"),
        ("GET", "/api/v1/namespaces/n/pods/Ã¤", "get", "v1", "n", "pods", "ä"),
        ("GET", "/api/v1/namespaces/n/pods/%ff", "get", "v1", "n", "pods", "\ufffd"),
    ],
)  # fmt: skip
def test_resource_requests(  # noqa: PLR0917 -- the columns of the table
    method: str, target: str, verb: str, where: str, namespace: str, resource: str, name: str
) -> None:
    """Verb, group and version, namespace, resource and name, as authorization sees them."""
    found = target_of(method, target)

    assert found.is_resource
    assert words(found) == (verb, where, namespace, resource, name)


def test_a_selected_name_is_not_that_of_a_collection_to_delete() -> None:
    """The right to delete an object by name does not include deletecollection."""
    found = target_of("DELETE", "/api/v1/pods?fieldSelector=metadata.name%3Dp")

    assert words(found) == ("deletecollection", "v1", "", "pods", "")
    assert found.field_selector == "metadata.name=p"


@pytest.mark.parametrize(
    ("method", "path", "verb"),
    [
        ("GET", "/", "get"),
        ("GET", "/api", "get"),
        ("GET", "/api/v1", "get"),
        ("POST", "/apis/g/v1", "post"),
        ("BREW", "/livez", "brew"),
        ("GET", "/x/y/z/w", "get"),
    ],
)
def test_other_requests(method: str, path: str, verb: str) -> None:
    """A non-resource request has its method as its verb, and its path."""
    found = target_of(method, path)

    assert (found.is_resource, found.verb, found.path) == (False, verb, path)


@pytest.mark.parametrize("path", ["/api/v1/watch", "/apis/g/v1/proxy/"])
def test_a_prefix_with_nothing_behind_it(path: str) -> None:
    """It cannot mean anything."""
    with pytest.raises(UnreadableTarget):
        target_of("GET", path)


def test_selectors_are_shown_to_authorization_only_for_collections() -> None:
    """As sent; an old watch path hides them."""
    listed = target_of("GET", "/api/v1/pods?labelSelector=a%3Db&fieldSelector=x%3Dy")
    watched = target_of("GET", "/api/v1/watch/pods?labelSelector=a%3Db")
    one = target_of("GET", "/api/v1/pods/p?labelSelector=a%3Db")

    assert (listed.label_selector, listed.field_selector) == ("a=b", "x=y")
    assert (watched.label_selector, one.label_selector) == ("", "")


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/livez", PathShape()),
        ("/api/v1", PathShape()),
        ("/apis/g/v1", PathShape()),
        ("/api/v1/pods/b/status", PathShape(3)),
        ("/apis/g/v1/namespaces/n/things/", PathShape(1, is_scoped=True)),
        ("/api/v1/watch/namespaces/n/pods", PathShape(1, is_scoped=True, is_watch=True)),
        ("/api/v1/namespaces//pods", PathShape(1, is_scoped=True)),
        ("/api/v1/namespaces/n/status", PathShape(3)),
        ("/api/v1/proxy/pods/a/b/c", PathShape(4)),
    ],
)
def test_shapes_for_routing(path: str, shape: PathShape) -> None:
    """Segments from the resource on, and whether namespace and prefix come before it."""
    assert parsed("GET", path)[0].shape == shape


@pytest.mark.parametrize("query", ["", "?a=b"])
def test_long_paths_are_not_cached(query: str) -> None:
    """The cache contains short paths only, and a limited number of them."""
    long, before = f"/api/v1/{'x' * 1000}", CACHE.cached.cache_info().currsize

    assert target_of("GET", long + query).resource == "x" * 1000

    assert CACHE.cached.cache_info().currsize == before
    assert CACHE.cached.cache_info().maxsize == MOST_PATHS


def test_a_path_with_a_query_shares_nothing_with_the_cached_one() -> None:
    """A watch has another verb, route and labels than a list of the same path."""
    listing, _ = parsed("GET", "/api/v1/pods")
    listing.labels = ("LIST",)

    watching, query = parsed("GET", "/api/v1/pods?watch=1")

    assert (watching.target.verb, watching.labels, query) == ("watch", None, {"watch": ["1"]})
    assert parsed("GET", "/api/v1/pods")[0] is listing
    assert parsed("HEAD", "/api/v1/pods")[0] is not listing


@given(st.text(st.characters(max_codepoint=255)), st.sampled_from(["GET", "POST", "X"]))
def test_any_target_is_read_or_refused(text: str, method: str) -> None:
    """Bytes of any sort become text that can be written, or a refusal."""
    try:
        found = target_of(method, "/" + text)
    except (ApiError, UnreadableTarget):
        return
    "".join(words(found)).encode()


@pytest.mark.parametrize(
    ("query", "field", "value"),
    [
        ({"limit": ["5", "6"]}, "limit", 5),
        ({"watch": ["false"]}, "watch", False),
        ({"watch": [""]}, "watch", True),
        ({"sendInitialEvents": ["0"]}, "send_initial_events", False),
        ({}, "send_initial_events", None),
        ({"timeoutSeconds": ["-1"]}, "timeout_seconds", -1),
        ({"continue": ["t"]}, "continue_", "t"),
    ],
)
def test_options(query: dict[str, list[str]], field: str, value: object) -> None:
    """The first value wins; only `0` and `false` are false."""
    assert getattr(read_options(query), field) == value


SEGMENT = st.sampled_from(
    (
        "", "-", "a", "b.c", "a%2Fb", "é", ".", "api", "apis", "v1", "watch", "proxy",
        "namespaces", "pods", "status", "finalize", "token", "rbac.authorization.orch.io",
    )
)  # fmt: skip


@given(st.sampled_from(["GET", "DELETE", "POST"]), st.lists(SEGMENT, max_size=9))
def test_an_unknown_parameter_changes_no_meaning(method: str, parts: list[str]) -> None:
    """A path without a query takes a shorter way to the same target."""
    path = "/" + "/".join(parts)
    try:
        other, _ = parsed(method, f"{path}?unknown=1")
    except UnreadableTarget:
        with pytest.raises(UnreadableTarget):
            parsed(method, path)
        return

    found, query = parsed(method, path)
    assert (found.target, found.shape, query) == (other.target, other.shape, {})
