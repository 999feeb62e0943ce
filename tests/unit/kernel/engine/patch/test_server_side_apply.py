"""Server-side apply: merging, ownership, conflicts, what is dropped, what is refused."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.engine.patch import server_side_apply
from orchid.kernel.wire.errors import ApplyConflict, BadRequest, Unprocessable
from tests.unit.kernel.engine.patch.shapes import (
    ANNOTATION,
    LATER,
    NOW,
    account,
    accounts,
    applied,
    owned,
    request,
    requests,
    updated,
)
from tests.unit.kernel.engine.patch.test_managed_fields import exists


def secrets(*names: str) -> list[dict[str, str]]:
    return [{"name": name} for name in names]


def labels(**values: str) -> dict[str, Any]:
    return account(labels=values)


def test_apply_creates_with_the_leaves_of_the_configuration() -> None:
    """Parents of leaves are not owned under apply."""
    result = applied(None, account(labels={"a": "1"}, secrets=secrets("s1")))

    assert result["metadata"]["labels"] == {"a": "1"}
    assert result["metadata"]["managedFields"] == [
        {
            "manager": "m1",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": NOW,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {"f:a": {}}},
                "f:secrets": {'k:{"name":"s1"}': {}},
            },
        }
    ]


def test_applying_only_a_name_owns_nothing() -> None:
    """So there is no record at all."""
    assert "managedFields" not in applied(None, account())["metadata"]


def test_a_second_manager_shares_the_object() -> None:
    """Each owns what it applied."""
    live = applied(None, labels(a="1"))

    result = applied(live, labels(b="2"), manager="m2", now=LATER)

    assert result["metadata"]["labels"] == {"a": "1", "b": "2"}
    assert owned(result) == {
        ("m1", "Apply"): {"f:metadata": {"f:labels": {"f:a": {}}}},
        ("m2", "Apply"): {"f:metadata": {"f:labels": {"f:b": {}}}},
    }


def test_an_equal_value_is_shared_without_a_time() -> None:
    """Nothing changed but who claims it."""
    live = applied(None, labels(a="1"))

    result = applied(live, labels(a="1"), manager="m2", now=LATER)

    entries = {entry["manager"]: entry for entry in result["metadata"]["managedFields"]}
    assert "time" not in entries["m2"]
    assert entries["m1"]["time"] == NOW


def test_a_different_value_conflicts() -> None:
    """The whole answer of the contract."""
    live = applied(None, labels(a="1"))

    with pytest.raises(ApplyConflict) as refused:
        applied(live, labels(a="9"), manager="m2")

    status = msgspec.json.decode(msgspec.json.encode(refused.value.status()))
    assert (
        status["message"] == 'Apply failed with 1 conflict: conflict with "m1": .metadata.labels.a'
    )
    assert status["details"] == {
        "causes": [
            {
                "reason": "FieldManagerConflict",
                "message": 'conflict with "m1"',
                "field": ".metadata.labels.a",
            }
        ]
    }


def test_several_conflicts_are_listed_by_manager() -> None:
    """Update managers are named with their version and subresource."""
    live = applied(None, account(labels={"a": "1"}, secrets=[{"name": "s", "fieldPath": "x"}]))
    live = updated(live, account(**_rest(live), annotations={"n": "1"}), manager="ed")

    with pytest.raises(ApplyConflict) as refused:
        applied(
            live,
            account(
                labels={"a": "2"},
                annotations={"n": "2"},
                secrets=[{"name": "s", "fieldPath": "y"}],
            ),
            manager="m2",
        )

    assert refused.value.message == (
        "Apply failed with 3 conflicts: "
        'conflicts with "ed" using v1:\n- .metadata.annotations.n\n'
        'conflicts with "m1":\n- .metadata.labels.a\n- .secrets[name="s"]'
    )


def test_what_nobody_comes_to_own_is_applied_all_the_same() -> None:
    """An endpoint may write fields that it does not track."""
    live = request(status={"conditions": [{"type": "Approved", "status": "True"}]})
    config = {"apiVersion": "certs/v1", "kind": "Request", "metadata": {"name": "r"}}
    failed = {"conditions": [{"type": "Failed", "status": "True"}]}

    result = applied(
        live, config | {"status": failed}, subresource="status", reset=("spec", "status.conditions")
    )

    assert [there["type"] for there in result["status"]["conditions"]] == ["Approved", "Failed"]
    assert "managedFields" not in result["metadata"]


def test_an_element_without_its_key_is_known_by_the_empty_one() -> None:
    """Where the key is always written; a rule of the kind then refuses it by its field."""
    config = request(status={"conditions": [{"status": "True"}]})

    result = applied(None, config)

    assert owned(result)["m1", "Apply"]["f:status"] == {
        "f:conditions": {'k:{"type":""}': {".": {}, "f:status": {}}}
    }
    with pytest.raises(Unprocessable, match=r'duplicate entries for key \[type=""\]'):
        applied(None, request(status={"conditions": [{"status": "True"}, {"reason": "x"}]}))


def test_a_subresource_is_named_in_the_conflict() -> None:
    """With its manager and version."""
    live = updated(None, request(labels={"a": "1"}))
    approved = {"conditions": [{"type": "Approved", "status": "True", "reason": "x"}]}
    live = updated(live, live | {"status": approved}, manager="boss", subresource="approval")
    config = {"apiVersion": "certs/v1", "kind": "Request", "metadata": {"name": "r"}}
    mine = {"conditions": [{"type": "Approved", "status": "True", "reason": "y"}]}

    with pytest.raises(ApplyConflict) as refused:
        applied(live, config | {"status": mine}, subresource="approval")

    assert refused.value.message == (
        "Apply failed with 1 conflict: "
        'conflict with "boss" with subresource "approval" using certs/v1: '
        '.status.conditions[type="Approved"].reason'
    )


def test_force_takes_over() -> None:
    """The loser keeps what is left to it, and vanishes when nothing is."""
    live = applied(None, account(labels={"a": "1"}, secrets=secrets("s1")))

    result = applied(live, labels(a="9"), manager="m2", force=True)

    assert owned(result) == {
        ("m1", "Apply"): {"f:secrets": {'k:{"name":"s1"}': {}}},
        ("m2", "Apply"): {"f:metadata": {"f:labels": {"f:a": {}}}},
    }


def test_what_is_no_longer_applied_is_dropped() -> None:
    """An emptied list goes too; an empty map in the configuration is claimed."""
    live = applied(None, account(labels={"a": "1", "b": "1"}, secrets=secrets("s1")))
    live = applied(live, labels(a="1"), manager="m2")

    result = applied(live, labels())

    assert result["metadata"]["labels"] == {"a": "1"}
    assert "secrets" not in result
    assert owned(result) == {
        ("m1", "Apply"): {"f:metadata": {"f:labels": {}}},
        ("m2", "Apply"): {"f:metadata": {"f:labels": {"f:a": {}}}},
    }


def test_what_an_updater_owns_is_not_dropped() -> None:
    """A field that one manager gives up stays if another manager owns it."""
    live = applied(None, labels(a="1"))
    live = updated(live, labels(a="2") | {"secrets": secrets("s")}, manager="ed")

    result = applied(live, account())

    assert result["metadata"]["labels"] == {"a": "2"}
    assert ("m1", "Apply") not in owned(result)


def test_dropping_the_last_field_without_a_name_keeps_the_metadata() -> None:
    """The name may be left out of a configuration; the object must not lose it."""
    live = applied(None, labels(a="1"))

    result = applied(live, {"apiVersion": "v1", "kind": "Account"})

    assert result["metadata"] == {"name": "app", "namespace": "ns"}


def test_a_container_that_is_still_claimed_stays_when_it_is_empty() -> None:
    """The last member goes, the claim on the container does not."""
    live = applied(None, labels(a="1"))

    result = applied(live, labels())

    assert result["metadata"]["labels"] == {}
    assert owned(result) == {("m1", "Apply"): {"f:metadata": {"f:labels": {}}}}


def test_a_dropped_element_of_a_granular_list_goes_whole() -> None:
    """Conditions are owned field by field, and go by type."""
    config = {"apiVersion": "certs/v1", "kind": "Request", "metadata": {"name": "r"}}
    one = {"type": "A", "status": "True"}
    two = {"type": "B", "status": "True"}
    live = applied(updated(None, request()), config | {"status": {"conditions": [one, two]}})

    result = applied(live, config | {"status": {"conditions": [two]}})

    assert result["status"]["conditions"] == [two]
    assert owned(result)[("m1", "Apply")] == {
        "f:status": {"f:conditions": {'k:{"type":"B"}': {".": {}, "f:status": {}, "f:type": {}}}}
    }


def test_the_first_apply_finds_an_owner_for_what_is_there() -> None:
    """Created without a record: everything belongs to before-first-apply."""
    live = account(labels={"a": "1"}, secrets=secrets("s"))

    result = applied(live, labels(b="1"))

    assert owned(result) == {
        ("m1", "Apply"): {"f:metadata": {"f:labels": {"f:b": {}}}},
        ("before-first-apply", "Update"): {
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            "f:secrets": {".": {}, 'k:{"name":"s"}': {}},
        },
    }


def test_reset_fields_neither_conflict_nor_change() -> None:
    """An endpoint that resets spec ignores it in a configuration."""
    live = updated(None, request(labels={"a": "1"}))
    config = request(labels={"b": "1"}, spec={"signerName": "other"}, status={})
    del config["metadata"]["uid"]

    result = applied(live, config, reset=("spec", "status"))

    assert owned(result)[("m1", "Apply")] == {"f:metadata": {"f:labels": {"f:b": {}}}}


@pytest.mark.parametrize(
    ("live", "config", "expected"),
    [
        ("ab", "ca", "cab"),
        ("ab", "c", "abc"),
        ("ab", "ba", "ba"),
        ("abx", "ba", "bxa"),
        ("xaby", "ba", "xbya"),
        ("", "ab", "ab"),
        ("ab", "", "ab"),
    ],
)
def test_elements_follow_the_configuration_and_others_keep_their_place(
    live: str, config: str, expected: str
) -> None:
    """Keyed lists and sets merge in the same order."""
    before = updated(None, account(secrets=secrets(*live), finalizers=list(live)), manager="m9")

    new = account(secrets=secrets(*config, "new"), finalizers=[*config, "new"])
    result = applied(before, new)

    assert [item["name"] for item in result["secrets"] if item["name"] != "new"] == list(expected)
    assert [name for name in result["metadata"]["finalizers"] if name != "new"] == list(expected)


def test_a_version_in_the_configuration_reaches_the_result() -> None:
    """It is a precondition that the caller checks."""
    live = applied(None, labels(a="1"))
    config = labels(a="1")
    config["metadata"]["resourceVersion"] = "7"

    assert applied(live, config)["metadata"]["resourceVersion"] == "7"


def test_a_null_is_claimed_and_empties_the_field() -> None:
    """As in the reference: the claim is a conflict like any other."""
    live = applied(None, account(automountServiceAccountToken=True))

    result = applied(live, account(automountServiceAccountToken=None))

    assert "automountServiceAccountToken" not in result
    with pytest.raises(ApplyConflict):
        applied(live, account(automountServiceAccountToken=None), manager="m2")


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"metadata": {"name": "app"}}, "invalid object type: /, Kind="),
        ({"apiVersion": "v1", "kind": "Zap"}, "invalid object type: /v1, Kind=Zap"),
        ({"apiVersion": "a/v1", "kind": "Account"}, "invalid object type: a/v1, Kind=Account"),
        ({"apiVersion": 1, "kind": ["x"]}, "invalid object type: /, Kind="),
        (account(managedFields=[]), "metadata.managedFields must be nil"),
    ],
)
def test_a_configuration_of_another_kind_is_refused(config: dict[str, Any], text: str) -> None:
    """Before the schema is looked at."""
    with pytest.raises(BadRequest) as refused:
        applied(None, config)

    assert refused.value.message == text


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"colour": "blue"}, ".colour: field not declared in schema"),
        (
            {"automountServiceAccountToken": "x"},
            ".automountServiceAccountToken: expected boolean, got string",
        ),
        ({"labels": {"a": 1}}, ".metadata.labels.a: expected string, got number"),
        ({"labels": "x"}, ".metadata.labels: expected map, got string"),
        ({"secrets": "x"}, ".secrets: expected list, got string"),
        ({"secrets": secrets("a", "a")}, '.secrets: duplicate entries for key [name="a"]'),
        (
            {"finalizers": ["a/b", "a/b"]},
            '.metadata.finalizers: duplicate entries for key [="a/b"]',
        ),
        (
            {"secrets": [{"fieldPath": "x"}]},
            ".secrets: element 0: associative list with keys has an element that omits all key "
            'fields ["name"] (and doesn\'t have default values for any key fields)',
        ),
        (
            {"secrets": ["x"]},
            ".secrets: element 0: associative list with keys may not have non-map elements",
        ),
        ({"finalizers": [{}]}, ".metadata.finalizers: element 0: a set may hold scalars only"),
        (
            {"x": 1, "secrets": "x"},
            "errors:\n  .x: field not declared in schema\n  .secrets: expected list, got string",
        ),
    ],
)
def test_a_configuration_must_fit_the_schema(fields: dict[str, Any], problem: str) -> None:
    """Unknown fields are fatal, whatever field validation says."""
    with pytest.raises(Unprocessable) as refused:
        applied(None, account(**fields))

    assert refused.value.message == (
        f"failed to create typed patch object (ns/app; /v1, Kind=Account): {problem}"
    )


def test_conflicts_with_ones_own_past_are_forgiven() -> None:
    """The command line moves from the annotation to apply without force."""
    config = labels(a="1")
    annotated = labels(a="1")
    annotated["metadata"]["annotations"] = {ANNOTATION: msgspec.json.encode(config).decode()}
    live = updated(None, annotated, manager="orchctl-client")

    result = applied(live, labels(a="2"), manager="orchctl")

    assert result["metadata"]["labels"] == {"a": "2"}
    assert result["metadata"]["annotations"][ANNOTATION] == (
        '{"apiVersion":"v1","kind":"Account","metadata":{"labels":{"a":"2"},"name":"app",'
        '"namespace":"ns"}}\n'
    )
    with pytest.raises(ApplyConflict):
        applied(live, labels(a="2"), manager="somebody")


@pytest.mark.parametrize("text", ["{", "[]", '{"apiVersion":"v2"}', '{"apiVersion":"v1","x":1}'])
def test_an_annotation_that_says_nothing_forgives_nothing(text: str) -> None:
    """Anyone may write it; it is no more than a hint."""
    new = account(labels={"a": "1"}, annotations={ANNOTATION: text})
    live = updated(None, new, manager="other")

    with pytest.raises(ApplyConflict):
        applied(live, labels(a="2"), manager="orchctl")


def test_an_annotation_that_would_grow_too_large_is_dropped() -> None:
    """The limit of all annotations together is 256 KiB."""
    live = updated(None, account(annotations={ANNOTATION: "{}"}))
    config = account(annotations={"big": "x" * 200_000})

    result = applied(live, config, manager="orchctl")

    assert ANNOTATION not in result["metadata"]["annotations"]


@pytest.mark.parametrize("body", [b"a: [", b"[1]", b"x", b"\xff"])
def test_a_body_that_is_no_configuration_is_refused(body: bytes) -> None:
    """With the text of the contract before ours."""
    with pytest.raises(BadRequest, match=r"^error decoding YAML: "):
        server_side_apply.decode_apply_body(body)


def test_an_empty_body_is_an_empty_map() -> None:
    """It fails at the next step, for its missing kind."""
    assert server_side_apply.decode_apply_body(b"") == ({}, [])


def test_a_deep_configuration_is_refused_and_does_not_crash() -> None:
    """Recursion ends in an answer."""
    value: dict[str, Any] = {}
    for _ in range(5000):
        value = {"a": value}

    with pytest.raises((BadRequest, Unprocessable)):
        applied(None, account(labels=value))


@given(st.none() | accounts(), accounts())
def test_applying_again_is_a_no_op(live: dict[str, Any] | None, config: dict[str, Any]) -> None:
    """Neither the object nor its record changes, whatever the time."""
    live = None if live is None else updated(None, live, manager="ed")
    before = copy.deepcopy((live, config))
    once = applied(live, config, force=True)

    assert applied(once, config, now=LATER) == once
    assert (live, config) == before


@given(
    st.sampled_from([accounts(), requests()]).flatmap(
        lambda kind: st.lists(st.tuples(kind, st.sampled_from(["m1", "m2", "ed"])), max_size=6)
    )
)
def test_every_owned_path_exists(writes: list[tuple[dict[str, Any], str]]) -> None:
    """After any series of applies and updates, nobody owns what is not there."""
    live = None
    for new, manager in writes:
        if manager == "ed":
            live = updated(live, new, manager=manager)
        else:
            live = applied(live, new, manager=manager, force=True)
            assert applied(live, new, manager=manager, now=LATER) == live
        for fields in owned(live).values():
            assert exists(live, fields)


@given(accounts(), accounts())
def test_what_was_applied_is_there(live: dict[str, Any], config: dict[str, Any]) -> None:
    """Forced, a configuration always gets its way."""
    result = applied(updated(None, live, manager="ed"), config, force=True)

    for name in ("labels", "annotations"):
        wanted = config["metadata"].get(name, {})
        assert wanted.items() <= result["metadata"].get(name, {}).items()
    for secret in config.get("secrets", []):
        assert secret in result["secrets"]


def _rest(live: dict[str, Any]) -> dict[str, Any]:
    return {"labels": live["metadata"]["labels"], "secrets": live["secrets"]}


def test_an_empty_record_stays_when_its_last_field_is_dropped() -> None:
    """A record in the configuration, even an empty one, exists after the first apply."""
    full = request(status={"conditions": [{"type": "Approved", "status": "True"}]})
    empty = request(status={})
    live = applied(None, full, manager="m")

    once = applied(live, empty, manager="m")

    assert applied(once, empty, manager="m", now=LATER) == once
