"""JSON patch: the operations of RFC 6902, the liberties, the limits."""

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.engine.patch import json_patch
from orchid.kernel.wire.errors import BadRequest, TooLarge, Unprocessable
from tests.unit.kernel.engine.patch.shapes import documents, json_values

DOCUMENT = {"a": {"b": 1}, "list": [1, 2, 3], "none": None}


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ({"op": "add", "path": "/a/c", "value": 2}, {"a": {"b": 1, "c": 2}}),
        ({"op": "add", "path": "/list/1", "value": 9}, {"list": [1, 9, 2, 3]}),
        ({"op": "add", "path": "/list/-", "value": 9}, {"list": [1, 2, 3, 9]}),
        ({"op": "add", "path": "/list/-1", "value": 9}, {"list": [1, 2, 3, 9]}),
        ({"op": "remove", "path": "/list/-1"}, {"list": [1, 2]}),
        ({"op": "replace", "path": "/a/missing", "value": 2}, {"a": {"b": 1, "missing": 2}}),
        ({"op": "replace", "path": "/list/-3", "value": 9}, {"list": [9, 2, 3]}),
        ({"op": "move", "from": "/a/b", "path": "/list/0"}, {"a": {}, "list": [1, 1, 2, 3]}),
        ({"op": "copy", "from": "/a", "path": "/a/a"}, {"a": {"b": 1, "a": {"b": 1}}}),
        ({"op": "copy", "from": "/a/zz", "path": "/a/y"}, {"a": {"b": 1, "y": None}}),
        ({"op": "add", "path": "/x~1y~0", "value": 1}, {"x/y~": 1}),
        ({"op": "test", "path": "/missing", "value": None}, {}),
        ({"op": "test", "path": "/missing"}, {}),
        ({"op": "test", "path": "/a", "value": {"b": 1}}, {}),
    ],
)
def test_an_operation_changes_what_it_names_and_nothing_else(
    operation: dict[str, Any], expected: dict[str, Any]
) -> None:
    """Each operation once, the liberties of the reference among them."""
    before = copy.deepcopy(DOCUMENT)

    assert json_patch.apply(DOCUMENT, [operation]) == DOCUMENT | expected
    assert before == DOCUMENT


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a/b", "value": 2},
        {"op": "test", "path": "/a/b", "value": True},
        {"op": "test", "path": "/a/b"},
        {"op": "test", "path": "/x/y", "value": None},
        {"op": "remove", "path": "/zz"},
        {"op": "remove", "path": "/list/3"},
        {"op": "remove", "path": ""},
        {"op": "add", "path": "/none/x", "value": 1},
        {"op": "add", "path": "/zz/x", "value": 1},
        {"op": "add", "path": "/list/5", "value": 1},
        {"op": "add", "path": "/list/x", "value": 1},
        {"op": "add", "path": "/a/b/c", "value": 1},
        {"op": "add", "path": "a", "value": 1},
        {"op": "add", "value": 1},
        {"op": "replace", "path": "/list/3", "value": 1},
        {"op": "move", "from": "/a", "path": "/a/b"},
        {"op": "move", "from": "/zz", "path": "/y"},
        {"op": "copy", "path": "/y"},
        {"op": "jump", "path": "/x"},
        {},
        None,
        {"op": "add", "path": "/a" * 200, "value": 1},
    ],
)
def test_whatever_fails_is_answered_without_its_cause(operation: Any) -> None:
    """The one fixed answer of the reference, for every failure."""
    with pytest.raises(Unprocessable) as refused:
        json_patch.apply(DOCUMENT, [operation])

    assert refused.value.code == 422
    assert refused.value.message == "the server rejected our request due to an error in our request"


def test_replacing_the_root_replaces_the_document() -> None:
    """An empty path names the whole document."""
    assert json_patch.apply(DOCUMENT, [{"op": "replace", "path": "", "value": [1]}]) == [1]


def test_a_failing_operation_leaves_nothing_behind() -> None:
    """The document is as before even if earlier operations succeeded."""
    before = copy.deepcopy(DOCUMENT)
    patch = [{"op": "add", "path": "/a/c", "value": 1}, {"op": "test", "path": "/a", "value": 1}]

    with pytest.raises(Unprocessable):
        json_patch.apply(DOCUMENT, patch)

    assert before == DOCUMENT


def test_what_is_not_named_is_shared() -> None:
    """Only the containers on the way are copied."""
    result = json_patch.apply(DOCUMENT, [{"op": "add", "path": "/a/c", "value": 1}])

    assert result["list"] is DOCUMENT["list"]


def test_the_same_value_added_twice_does_not_become_one() -> None:
    """Writing into one place must not show in the other, nor in the patch."""
    value: dict[str, Any] = {"k": 1}
    operations = [
        {"op": "add", "path": "/x", "value": value},
        {"op": "copy", "from": "/x", "path": "/y"},
        {"op": "add", "path": "/z", "value": value},
        {"op": "add", "path": "/x/more", "value": 2},
    ]

    result = json_patch.apply({}, operations)

    assert result == {"x": {"k": 1, "more": 2}, "y": {"k": 1}, "z": {"k": 1}}
    assert value == {"k": 1}


def test_too_many_operations_are_refused_by_number() -> None:
    """The limit comes before the first operation."""
    with pytest.raises(TooLarge) as refused:
        json_patch.apply({}, [{}] * 10_001)

    assert refused.value.message == (
        "Request entity too large: "
        "The allowed maximum operations in a JSON patch is 10000, got 10001"
    )


def test_copies_cannot_grow_a_document_without_end() -> None:
    """Each copy doubles what is there; the limit stops that early."""
    operations = [{"op": "copy", "from": "/a", "path": f"/a/{n}"} for n in range(64)]

    with pytest.raises(Unprocessable):
        json_patch.apply({"a": {"x": "y" * 100}}, operations)


def test_deep_values_are_refused() -> None:
    """A stored value must be encodable again."""
    value: Any = []
    for _ in range(500):
        value = [value]

    with pytest.raises(Unprocessable):
        json_patch.apply({}, [{"op": "add", "path": "/x", "value": value}])


@pytest.mark.parametrize("operations", [["x"], {"op": "add"}, "x"])
def test_what_is_no_list_of_operations_cannot_be_decoded(operations: Any) -> None:
    """That is a malformed patch, not one that does not apply."""
    with pytest.raises(BadRequest, match="error decoding patch: "):
        json_patch.apply({}, operations)


def test_null_is_no_operation() -> None:
    """As in the reference."""
    assert json_patch.apply(DOCUMENT, None) is DOCUMENT


def test_unknown_members_of_operations_are_reported_by_place() -> None:
    """Field validation names them with the operation's index."""
    operations = [{"op": "test", "path": "/x", "foo": 1}, {"op": "test", "path": "/x"}, 3]

    assert json_patch.unknown_members(operations) == ['json patch unknown field "[0].foo"']


@given(documents, st.data())
def test_well_formed_patches_do_what_the_library_does(
    document: dict[str, Any], data: st.DataObject
) -> None:
    """Against an implementation that is not ours, where neither takes liberties."""
    operations = []
    expected: Any = copy.deepcopy(document)
    for _ in range(data.draw(st.integers(1, 4))):
        operation = data.draw(_operations(expected))
        try:
            expected = jsonpatch.apply_patch(expected, [operation])
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
            continue
        operations.append(operation)

    assert json_patch.apply(document, operations) == expected


def _operations(document: Any) -> st.SearchStrategy[dict[str, Any]]:
    places = [path for path in _paths(document) if path] or ["/a"]
    path = st.sampled_from(places) | st.sampled_from([f"{place}/a" for place in ["", *places]])
    return st.one_of(
        st.builds(lambda p, v: {"op": "add", "path": p, "value": v}, path, json_values),
        st.builds(lambda p: {"op": "remove", "path": p}, st.sampled_from(places)),
        st.builds(
            lambda p, v: {"op": "replace", "path": p, "value": v},
            st.sampled_from(places),
            json_values,
        ),
        st.builds(lambda f, p: {"op": "copy", "from": f, "path": p}, st.sampled_from(places), path),
        st.builds(lambda f, p: {"op": "move", "from": f, "path": p}, st.sampled_from(places), path),
    )


def _paths(value: Any, above: str = "") -> list[str]:
    found = [above]
    if isinstance(value, dict):
        for name, member in value.items():
            found += _paths(member, f"{above}/{name.replace('~', '~0').replace('/', '~1')}")
    if isinstance(value, list):
        for place, member in enumerate(value):
            found += _paths(member, f"{above}/{place}")
    return found


@pytest.mark.parametrize(
    "operation", [{"op": 3, "path": "/a"}, {"op": "add", "path": 3}, {"op": "move", "from": 3}]
)
def test_what_an_operation_names_is_text(operation: Any) -> None:
    """Anything else is no operation at all, and that is said."""
    with pytest.raises(BadRequest, match="must be a string"):
        json_patch.apply({"a": 1}, [operation])
