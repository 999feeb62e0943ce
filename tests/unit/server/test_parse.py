"""From method, path and query to what is asked for (api-machinery, section 1.1)."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchid.engine.request import Target
from orchid.server import parse
from orchid.server.parse import Located, PathFacts, Targets, UnreadableTarget, read_options
from orchid.server.sockets.messages import HttpRequest, Peer
from orchid.wire.errors import ApiError

TARGETS = Targets()  # shared by all tests, so that it remembers much


def located(method: str, target: str, targets: Targets = TARGETS) -> Located:
    path, _, query = target.partition("?")
    return targets.read(HttpRequest(method, target, path, query, {}, Peer("")))[0]


def target_of(method: str, target: str) -> Target:
    return located(method, target).target


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
    """Who may delete one object by name may not thereby delete collections."""
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
    """What is no resource has its method for a verb, and its path."""
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


@pytest.mark.parametrize("query", ["", "?a=b"])
def test_long_paths_are_not_kept(query: str) -> None:
    """The memory of paths holds short ones only."""
    long, short = f"/api/v1/{'x' * 1000}", "/api/v1/pods"

    first, second = (located("GET", long + query) for _ in range(2))

    assert first == second
    assert first.target is not second.target
    assert located("GET", short).target is located("GET", short).target


def test_so_many_paths_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for ever new paths does not fill the memory."""
    monkeypatch.setattr(parse, "MOST_FIXED", 10)
    targets = Targets()

    for number in range(95):
        located("GET", f"/page-{number}", targets)

    assert len(targets._fixed) <= 10


def test_facts_are_those_of_one_place_and_method() -> None:
    """All objects of a place share them; a query, which may change the verb, has none to share."""
    pods = "/api/v1/namespaces/n/pods"
    facts = located("GET", f"{pods}/a").facts
    facts.labels = ("get",)

    assert located("GET", f"{pods}/b").facts is facts
    others = [
        located("DELETE", f"{pods}/a"),
        located("GET", f"{pods}/a/status"),
        located("GET", pods),
        located("GET", f"{pods}?watch=1"),
        located("GET", f"{pods}/a?x=1"),
        located("GET", "/api/v1/namespaces/m/pods/a"),
        located("GET", f"{pods}/a", Targets()),
    ]
    assert [other.facts for other in others] == [PathFacts()] * len(others)


def test_an_endpoint_shares_its_facts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the method; one path is read for all names, and none of them is kept."""
    monkeypatch.setattr(parse, "MOST_PLACES", 10)
    targets = Targets()

    for method in ("GET", "PUT", "POST"):
        first, second = (located(method, f"/api/v1/pods/{n}/status", targets) for n in "ab")
        assert first.facts is second.facts
        assert (second.target.name, second.target.subresource) == ("b", "status")
        assert second.rest == ("pods", "b", "status")
    for number in range(95):
        located("GET", f"/api/v1/sort-{number}/a", targets)
    assert targets._fixed == {}
    assert len(targets._places) <= 10


@given(
    st.lists(
        st.sampled_from(
            ["api", "apis", "v1", "namespaces", "n", "pods", "status", "watch", "-", "", "%2F"]
        ),
        max_size=9,
    ),
    st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
)
@example(["api", "v1", "pods", "n", ""], "PUT")
def test_what_is_remembered_changes_no_meaning(segments: list[str], method: str) -> None:
    """A path means the same whatever was asked for before."""
    path = "/" + "/".join(segments)
    try:
        alone = parse._without_query(method, path)
    except UnreadableTarget:
        return

    found = located(method, path)

    assert (found.target, found.rest, found.watch_path) == (
        alone.target, alone.rest, alone.watch_path
    )  # fmt: skip


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
def test_a_path_means_the_same_by_its_place_as_by_itself(method: str, parts: list[str]) -> None:
    """The place of an object is remembered for all names there; that changes nothing."""
    path = "/" + "/".join(parts)
    with_query = HttpRequest(method, path, path, "unknown=1", {}, Peer(""))
    without = HttpRequest(method, path, path, "", {}, Peer(""))
    try:
        expected, _ = TARGETS.read(with_query)
    except parse.UnreadableTarget:
        with pytest.raises(parse.UnreadableTarget):
            TARGETS.read(without)
        return

    assert TARGETS.read(without) == (expected, {})
