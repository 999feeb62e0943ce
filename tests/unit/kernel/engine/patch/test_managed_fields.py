"""managedFields after creates and updates: who owns what, since when, in which order."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.engine.patch import managed_fields
from orchid.kernel.engine.patch.field_set import Tree
from tests.unit.kernel.engine.patch.shapes import (
    LATER,
    NOW,
    account,
    accounts,
    owned,
    request,
    updated,
)


def with_labels(live: dict[str, Any], **labels: str) -> dict[str, Any]:
    return live | {"metadata": live["metadata"] | {"labels": labels}}


def test_a_create_records_what_was_set() -> None:
    """The example of the contract, to the byte."""
    new = account(
        labels={"b": "1"},
        annotations={"a": "1"},
        finalizers=["x/y"],
        secrets=[{"name": "s1"}],
        automountServiceAccountToken=False,
    )

    entry = updated(None, new)["metadata"]["managedFields"][0]

    assert msgspec.json.encode(entry).decode() == (
        '{"manager":"curl","operation":"Update","apiVersion":"v1","time":"2026-01-02T03:04:05Z",'
        '"fieldsType":"FieldsV1","fieldsV1":{"f:automountServiceAccountToken":{},"f:metadata":'
        '{"f:annotations":{".":{},"f:a":{}},"f:finalizers":{".":{},"v:\\"x/y\\"":{}},'
        '"f:labels":{".":{},"f:b":{}}},"f:secrets":{".":{},"k:{\\"name\\":\\"s1\\"}":{}}}}'
    )


def test_a_create_with_only_a_name_has_no_entry() -> None:
    """Identity belongs to nobody."""
    assert "managedFields" not in updated(None, account())["metadata"]


def test_fields_that_are_always_written_count_only_when_set() -> None:
    """A create is compared with an object of which nothing is set, not with nothing."""
    assert owned(updated(None, request())) == {("curl", "Update"): {"f:spec": {"f:signerName": {}}}}


def test_reset_fields_are_not_tracked() -> None:
    """An endpoint that resets spec and status gives nobody ownership of them."""
    new = request(status={"certificate": "x"})

    assert not owned(updated(None, new, reset=("spec", "status")))


def test_an_approval_is_an_owner_of_its_own() -> None:
    """Probe 9 of the contract: a second entry, with the subresource."""
    live = updated(None, request(labels={"a": "1"}), reset=("spec", "status"))
    new = live | {"status": {"conditions": [{"type": "Approved", "status": "True"}]}}

    entries = updated(
        live, new, manager="approver", subresource="approval", reset=("spec", "status.certificate")
    )["metadata"]["managedFields"]

    assert [entry["manager"] for entry in entries] == ["approver", "curl"]
    assert entries[0]["subresource"] == "approval"
    assert entries[0]["fieldsV1"] == {
        "f:status": {
            "f:conditions": {
                ".": {},
                'k:{"type":"Approved"}': {".": {}, "f:status": {}, "f:type": {}},
            }
        }
    }


def test_an_untracked_object_stays_untracked() -> None:
    """Updates do not begin to track what was created without an entry."""
    live = updated(None, account())

    assert not owned(updated(live, with_labels(live, a="1")))


def test_what_changes_moves_to_the_writer() -> None:
    """The former owner keeps the container; its time stays."""
    live = updated(None, account(labels={"a": "1"}))

    result = updated(live, with_labels(live, a="2"), manager="editor", now=LATER)

    assert owned(result) == {
        ("curl", "Update"): {"f:metadata": {"f:labels": {}}},
        ("editor", "Update"): {"f:metadata": {"f:labels": {"f:a": {}}}},
    }
    assert [entry["time"] for entry in result["metadata"]["managedFields"]] == [NOW, LATER]


def test_what_is_removed_has_no_owner() -> None:
    """An entry that owns nothing any more disappears; the writer's time stays."""
    live = updated(None, account(labels={"a": "1"}, annotations={"x": "1"}))
    bare = account(annotations={"x": "1"})

    result = updated(live, bare | {"metadata": {**bare["metadata"], "uid": "u"}}, now=LATER)

    assert owned(result) == {
        ("curl", "Update"): {"f:metadata": {"f:annotations": {".": {}, "f:x": {}}}}
    }
    assert result["metadata"]["managedFields"][0]["time"] == NOW


def test_a_write_that_changes_nothing_keeps_the_very_entries() -> None:
    """Not even a copy is made."""
    live = updated(None, account(labels={"a": "1"}))

    result = updated(live, copy.deepcopy(live), manager="editor", now=LATER)

    assert result["metadata"]["managedFields"] == live["metadata"]["managedFields"]


@pytest.mark.parametrize("sent", [[], [{}]])
def test_an_empty_list_resets(sent: list[Any]) -> None:
    """The one way to be rid of the record; that write is not tracked either."""
    live = updated(None, account(labels={"a": "1"}))
    new = with_labels(live, a="2")
    new["metadata"]["managedFields"] = sent

    assert not owned(updated(live, new))


@pytest.mark.parametrize(
    "sent",
    [
        None,
        [{"manager": "x"}],
        [{"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "V2"}],
        [{"manager": "x", "operation": "Zap", "apiVersion": "v1", "fieldsType": "FieldsV1"}],
        [{"manager": 1, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1"}],
        [
            {
                "manager": "x",
                "operation": "Apply",
                "apiVersion": "v1",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"k:": {}},
            }
        ],
        [
            {
                "manager": "x",
                "operation": "Apply",
                "apiVersion": "v1",
                "fieldsType": "FieldsV1",
                "time": "2026-01-01",
            }
        ],
        "x",
    ],
)
def test_entries_that_make_no_sense_keep_the_stored_ones(sent: Any) -> None:
    """A client that does not understand them must not lose them."""
    live = updated(None, account(labels={"a": "1"}))
    new = with_labels(live, a="1")
    new["metadata"]["managedFields"] = sent

    assert owned(updated(live, new)) == owned(live)


def test_entries_of_a_client_replace_the_stored_ones() -> None:
    """On the main resource, stripped of what nobody owns, their time in UTC."""
    live = updated(None, account(labels={"a": "1"}))
    new = with_labels(live, a="1")
    new["metadata"]["managedFields"] = [
        {
            "manager": "mine",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": "2026-01-02T04:04:05+01:00",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:name": {}, "f:labels": {"f:a": {}}}},
        }
    ]

    (entry,) = updated(live, new)["metadata"]["managedFields"]

    assert entry["fieldsV1"] == {"f:metadata": {"f:labels": {"f:a": {}}}}
    assert entry["time"] == NOW


def test_a_very_old_time_of_a_client_can_be_read_again() -> None:
    """A year below 1000 keeps its four digits, or the next reader could not read the entry."""
    old = updated(None, account(labels={"a": "1"}))
    (entry,) = old["metadata"]["managedFields"]
    new = copy.deepcopy(old)
    new["metadata"]["managedFields"] = [entry | {"time": "0442-01-10T00:00:00Z"}]

    found = updated(old, new)["metadata"]["managedFields"]

    assert [kept["time"] for kept in found] == ["0442-01-10T00:00:00Z"]


def test_a_subresource_ignores_the_entries_of_the_request() -> None:
    """There the stored list always counts."""
    live = updated(None, request(labels={"a": "1"}))
    new = live | {"metadata": live["metadata"] | {"managedFields": []}}

    assert owned(updated(live, new, subresource="status")) == owned(live)


def test_the_eleventh_updater_makes_the_oldest_two_ancient() -> None:
    """Update entries are capped at ten; apply entries are not counted."""
    live = updated(None, account(labels={"x": "1"}), manager="m00")
    for number in range(1, 12):
        labels = live["metadata"]["labels"] | {f"l{number}": "1"}
        live = updated(
            live,
            with_labels(live, **labels),
            manager=f"m{number:02}",
            now=f"2026-01-02T03:05:{number:02}Z",
        )

    entries = live["metadata"]["managedFields"]

    assert len(entries) == 10
    assert entries[0]["manager"] == "ancient-changes"
    assert entries[0]["time"] == "2026-01-02T03:05:02Z"
    assert entries[0]["fieldsV1"] == {
        "f:metadata": {"f:labels": {".": {}, "f:l1": {}, "f:l2": {}, "f:x": {}}}
    }


def test_equal_but_for_times_is_seen() -> None:
    """Such a write is none; versions do not count."""
    live = updated(None, account(labels={"a": "1"}))
    new = copy.deepcopy(live)
    new["metadata"]["managedFields"][0]["time"] = LATER
    new["metadata"]["resourceVersion"] = "7"

    assert managed_fields.same_but_times(live, new)
    assert not managed_fields.same_but_times(live, with_labels(new, a="2"))


def exists(value: Any, tree: Tree) -> bool:
    """Whether every path of a tree leads to something."""
    for key, below in tree.items():
        if key.startswith("f:"):
            if not isinstance(value, dict) or key[2:] not in value:
                return False
            member = value[key[2:]]
        elif key.startswith("k:"):
            wanted = msgspec.json.decode(key[2:])
            found = [item for item in value if wanted.items() <= item.items()]
            if not found:
                return False
            member = found[0]
        elif key.startswith("v:"):
            if msgspec.json.decode(key[2:]) not in value:
                return False
            continue
        else:
            continue
        if not exists(member, below):
            return False
    return True


@given(st.lists(st.tuples(accounts(), st.sampled_from(["m1", "m2"])), min_size=1, max_size=6))
def test_every_owned_path_exists_and_has_one_updater(
    writes: list[tuple[dict[str, Any], str]],
) -> None:
    """After any series of updates, nobody owns what is not there."""
    live = None
    for new, manager in writes:
        live = updated(live, new, manager=manager)
        for fields in owned(live).values():
            assert exists(live, fields)


@given(accounts(), accounts())
def test_nothing_is_changed_in_place(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Stored objects are shared by everyone who reads them."""
    live = updated(None, one)
    before = copy.deepcopy((live, other))

    updated(live, other, manager="x")

    assert (live, other) == before


def test_entries_of_a_version_that_is_not_served_go() -> None:
    """Entries of a version that is not served are dropped."""
    live = updated(None, account(labels={"a": "1"}))
    live["metadata"]["managedFields"][0]["apiVersion"] = "v1beta1"
    live["metadata"]["managedFields"][0]["manager"] = "old"

    after = updated(live, with_labels(live, a="1", b="2"))

    versions = {entry["apiVersion"] for entry in after["metadata"]["managedFields"]}
    assert versions == {"v1"}
    assert ("old", "Update") not in owned(after)
