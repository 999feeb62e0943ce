"""Merge patch: the examples and the properties of RFC 7396."""

import copy
from typing import Any

import pytest
from hypothesis import given

from orchid.kernel.engine.patch import merge_patch
from orchid.kernel.wire.errors import BadRequest
from tests.unit.kernel.engine.patch.shapes import documents


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_the_examples_of_the_standard_hold(
    document: dict[str, Any], patch: dict[str, Any], expected: dict[str, Any]
) -> None:
    """RFC 7396, appendix A."""
    assert merge_patch.apply(document, patch) == expected


@pytest.mark.parametrize("patch", [None, [], "x", 1])
def test_a_patch_that_is_no_object_is_refused(patch: Any) -> None:
    """Null has the reference's text, the others are decoding errors."""
    with pytest.raises(BadRequest) as refused:
        merge_patch.apply({}, patch)

    expected = "Invalid JSON Patch" if patch is None else "error decoding patch: "
    assert refused.value.message.startswith(expected)


def test_a_deep_patch_is_refused_and_does_not_crash() -> None:
    """Recursion ends in an answer."""
    patch: dict[str, Any] = {}
    for _ in range(5000):
        patch = {"a": patch}

    with pytest.raises(BadRequest):
        merge_patch.apply({}, patch)


@given(documents, documents)
def test_patching_twice_is_patching_once(document: dict[str, Any], patch: dict[str, Any]) -> None:
    """A merge patch states an outcome; and neither argument changes."""
    before = copy.deepcopy((document, patch))

    once = merge_patch.apply(document, patch)

    assert merge_patch.apply(once, patch) == once
    assert (document, patch) == before


@given(documents)
def test_an_empty_patch_changes_nothing(document: dict[str, Any]) -> None:
    """The neutral element."""
    assert merge_patch.apply(document, {}) == document


@given(documents, documents)
def test_a_null_removes_and_a_value_stays(document: dict[str, Any], patch: dict[str, Any]) -> None:
    """The members of the patch have their new values afterwards."""
    result = merge_patch.apply(document, patch)

    for name, value in patch.items():
        assert (name not in result) if value is None else (name in result)
    for name in document.keys() - patch.keys():
        assert result[name] == document[name]
