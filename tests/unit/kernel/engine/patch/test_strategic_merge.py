"""Strategic merge patch: lists by key, sets, directives, order, refusals."""

import copy
from typing import Any

import pytest
from hypothesis import given

from orchid.kernel.engine.patch import strategic_merge
from orchid.kernel.wire.errors import ApiError, BadRequest, Unprocessable
from tests.unit.kernel.engine.patch.shapes import (
    ACCOUNT,
    MACHINE,
    REQUEST,
    account,
    accounts,
    request,
)


def patched(document: dict[str, Any], patch: Any) -> dict[str, Any]:
    schema = REQUEST if document["kind"] == "Request" else ACCOUNT
    return strategic_merge.apply(document, patch, schema)


def secrets(*names: str) -> list[dict[str, str]]:
    return [{"name": name} for name in names]


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        (secrets("s3"), secrets("s3", "s1", "s2")),
        (secrets("s2"), secrets("s1", "s2")),
        (secrets("s2", "s1"), secrets("s2", "s1")),
        ([{"name": "s1", "fieldPath": "x"}], [{"name": "s1", "fieldPath": "x"}, {"name": "s2"}]),
        ([{"name": "s2", "$patch": "delete"}], secrets("s1")),
        ([{"$patch": "replace"}, {"name": "only"}], secrets("only")),
        ([{"name": "s2", "$patch": "delete"}, {"name": "s9"}], secrets("s9", "s1")),
        ([], secrets("s1", "s2")),
        (None, None),
    ],
)
def test_a_list_with_a_key_merges_element_by_element(patch: Any, expected: Any) -> None:
    """New elements come first, known ones keep their place."""
    result = patched(account(secrets=secrets("s1", "s2")), {"secrets": patch})

    assert result.get("secrets") == expected


def test_an_atomic_list_is_replaced() -> None:
    """No key, no merge."""
    result = patched(account(imagePullSecrets=secrets("p1")), {"imagePullSecrets": secrets("p2")})

    assert result["imagePullSecrets"] == secrets("p2")


def test_conditions_merge_by_type() -> None:
    """As under apply: a controller that adds one keeps the others."""
    live = request(status={"conditions": [{"type": "Approved", "status": "True"}]})

    result = patched(live, {"status": {"conditions": [{"type": "Failed", "status": "True"}]}})

    assert {item["type"] for item in result["status"]["conditions"]} == {"Approved", "Failed"}


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"finalizers": ["f2"]}, ["f2", "f1"]),
        ({"finalizers": ["f1"]}, ["f1"]),
        ({"$deleteFromPrimitiveList/finalizers": ["f1"]}, []),
        ({"$setElementOrder/finalizers": ["f1", "f2"], "finalizers": ["f2"]}, ["f1", "f2"]),
    ],
)
def test_a_set_unites(patch: dict[str, Any], expected: list[str]) -> None:
    """Scalars are added once and can be taken out."""
    result = patched(account(finalizers=["f1"]), {"metadata": patch})

    assert result["metadata"]["finalizers"] == expected


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"b": "2"}, {"a": "1", "b": "2"}),
        ({"a": None}, {}),
        ({"zz": None}, {"a": "1"}),
        ({"$patch": "replace", "n": "1"}, {"n": "1"}),
        ({"$patch": "delete"}, {}),
        ({"$retainKeys": ["b"], "b": "2"}, {"b": "2"}),
        ({"$retainKeys": ["a"], "b": None}, {"a": "1"}),
    ],
)
def test_an_object_merges_by_member_and_takes_directives(
    patch: dict[str, Any], expected: dict[str, Any]
) -> None:
    """Null deletes; the directives do what the contract says."""
    result = patched(account(labels={"a": "1"}), {"metadata": {"labels": patch}})

    assert result["metadata"]["labels"] == expected


def test_what_is_added_carries_neither_nulls_nor_directives() -> None:
    """They have done their work once they are in place."""
    patch = {
        "metadata": {"labels": {"$patch": "replace", "a": None, "b": "1"}},
        "secrets": [{"name": "s"}, {"name": "t", "$patch": "delete"}],
    }

    result = patched(account(), patch)

    assert result["metadata"]["labels"] == {"b": "1"}
    assert result["secrets"] == secrets("s")


def test_the_order_directive_orders_and_leaves_others_in_place() -> None:
    """Named elements follow the directive; an unnamed one keeps its neighbourhood."""
    patch = {"$setElementOrder/secrets": secrets("z", "b", "a"), "secrets": secrets("z")}

    result = patched(account(secrets=secrets("a", "live", "b")), patch)

    assert result["secrets"] == secrets("z", "live", "b", "a")


def test_the_order_directive_alone_reorders() -> None:
    """No element needs to be in the patch itself."""
    patch = {"$setElementOrder/secrets": secrets("b", "a")}

    result = patched(account(secrets=secrets("a", "b")), patch)

    assert result["secrets"] == secrets("b", "a")


@pytest.mark.parametrize(
    ("patch", "error", "text"),
    [
        (
            {"secrets": [{"fieldPath": "x"}]},
            Unprocessable,
            "does not contain declared merge key: name",
        ),
        ({"secrets": [{"$patch": "delete"}]}, Unprocessable, "declared merge key: name"),
        (
            {"secrets": [{"$patch": "merge"}]},
            Unprocessable,
            "merging lists cannot yet be specified",
        ),
        ({"secrets": [{"$patch": "zz"}]}, Unprocessable, "unknown patch type: zz in map"),
        ({"secrets": ["x"]}, Unprocessable, "list element types are not identical"),
        ({"secrets": [[]]}, Unprocessable, "the server rejected our request"),
        (
            {"metadata": {"labels": {"$patch": "explode"}}},
            Unprocessable,
            "unknown patch type: explode",
        ),
        (
            {"metadata": {"labels": {"$retainKeys": "x"}}},
            BadRequest,
            "invalid patch format of retainKeys",
        ),
        ({"metadata": {"labels": {"$retainKeys": ["a"], "b": "1"}}}, BadRequest, "of retainKeys"),
        ({"$deleteFromPrimitiveList": []}, BadRequest, "invalid patch format of primitive list"),
        ({"$setElementOrder": []}, BadRequest, "invalid patch format of setElementOrder list"),
        (
            {"$setElementOrder/secrets": secrets("a"), "secrets": secrets("b")},
            Unprocessable,
            "doesn't match $setElementOrder list",
        ),
        ({"$setElementOrder/secrets": "x"}, Unprocessable, "expected a list for secrets"),
        ([], BadRequest, "must be a JSON object"),
    ],
)
def test_a_mistake_in_the_patch_is_named(patch: Any, error: type[ApiError], text: str) -> None:
    """Never a 500: it is the client's mistake."""
    live = account(secrets=secrets("s1"), labels={"a": "1"})

    with pytest.raises(error) as refused:
        patched(live, patch)

    assert text in refused.value.message


def test_a_refusal_repeats_no_value() -> None:
    """A patch may carry a secret; messages end up in logs."""
    patch = {"metadata": {"labels": {"$patch": "explode", "password": "hunter2"}}}

    with pytest.raises(Unprocessable) as refused:
        patched(account(labels={"a": "1"}), patch)

    assert "hunter2" not in refused.value.message


def test_a_null_patch_changes_nothing() -> None:
    """The reference takes null for no patch at all."""
    assert patched(account(), None) == account()


def test_unknown_fields_merge_as_plain_json() -> None:
    """Kinds that keep any field: objects merge, lists are replaced."""
    live = {"kind": "Machine", "metadata": {}, "spec": {"x": {"a": 1}, "list": [{"name": "a"}]}}
    patch = {"spec": {"x": {"b": 2}, "list": [{"name": "b"}]}}

    result = strategic_merge.apply(live, patch, MACHINE)

    assert result["spec"] == {"x": {"a": 1, "b": 2}, "list": [{"name": "b"}]}


def test_a_deep_patch_is_refused_and_does_not_crash() -> None:
    """Recursion ends in an answer."""
    patch: dict[str, Any] = {}
    for _ in range(5000):
        patch = {"a": patch}

    with pytest.raises(BadRequest):
        patched(account(), {"metadata": patch})


@given(accounts(), accounts())
def test_patching_twice_is_patching_once(live: dict[str, Any], patch: dict[str, Any]) -> None:
    """Without directives a strategic merge states an outcome; and neither argument changes."""
    before = copy.deepcopy((live, patch))

    once = patched(live, patch)

    assert patched(once, patch) == once
    assert (live, patch) == before
