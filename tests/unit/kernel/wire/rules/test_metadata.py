"""Metadata that every kind carries: what is refused, where, and how often."""

import datetime

import pytest

from orchid.kernel.wire.fields import FieldError
from orchid.kernel.wire.meta import ManagedFieldsEntry, ObjectMeta, OwnerReference
from orchid.kernel.wire.rules.metadata import (
    creation_errors,
    dedup_owner_references,
    path_errors,
    update_errors,
)
from orchid.kernel.wire.rules.names import any_name, subdomain_errors
from orchid.kernel.wire.struct import replace

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
GOOD = ObjectMeta(
    name="app",
    namespace="default",
    uid="u",
    generation=1,
    creation_timestamp=NOW,
    labels={"a": "b", "example.com/c": ""},
    annotations={"Example.com/d": "any text"},
    owner_references=(OwnerReference("v1", "Pod", "p", "u1", controller=True),),
    finalizers=("example.com/hold", "orphan"),
    managed_fields=(ManagedFieldsEntry(manager="m", operation="Update", fields_type="FieldsV1"),),
)


def created(meta: ObjectMeta, *, namespaced: bool = True) -> list[str]:
    found = creation_errors(meta, namespaced=namespaced, name_errors=subdomain_errors)
    return [str(error) for error in found]


def updated(new: ObjectMeta, old: ObjectMeta = GOOD) -> list[FieldError]:
    return list(update_errors(new, old, namespaced=True, name_errors=subdomain_errors))


def test_good_metadata_has_no_findings() -> None:
    """A full but ordinary object passes both ways."""
    assert created(GOOD) == []
    assert updated(GOOD) == []
    assert list(path_errors(GOOD)) == []


def test_a_name_is_required() -> None:
    """A missing name or namespace is reported."""
    assert created(ObjectMeta()) == [
        "metadata.name: Required value: name or generateName is required",
        "metadata.namespace: Required value",
    ]


def test_a_cluster_wide_object_has_no_namespace() -> None:
    """A namespace where there is none is forbidden."""
    meta = ObjectMeta(name="a", namespace="n")

    assert created(meta, namespaced=False) == [
        "metadata.namespace: Forbidden: not allowed on this type"
    ]


@pytest.mark.parametrize(
    ("prefix", "name", "fields"),
    [
        ("a_", "a_bcdfg", ["metadata.generateName", "metadata.name"]),
        ("x.", "x.bcdfg", ["metadata.generateName"]),
        ("A-", "A-bcdfg", ["metadata.name"]),
    ],
)
def test_a_generated_name_and_its_prefix_are_judged_apart(
    prefix: str, name: str, fields: list[str]
) -> None:
    """Each has findings of its own."""
    meta = replace(GOOD, generate_name=prefix, name=name)

    found = creation_errors(meta, namespaced=True, name_errors=subdomain_errors)

    assert [error.path.text for error in found] == fields


def test_findings_come_in_a_fixed_order() -> None:
    """Names first, then generation, labels, annotations, owners, finalizers and managers."""
    meta = ObjectMeta(
        generate_name="A_",
        name="X5",
        namespace="A.b",
        generation=-1,
        labels={"a b": "b c"},
        annotations={"?": "c"},
        owner_references=(OwnerReference(),),
        finalizers=("nope", "a b"),
        managed_fields=(ManagedFieldsEntry(),),
    )

    found = creation_errors(meta, namespaced=True, name_errors=subdomain_errors)

    assert [error.path.text for error in found] == [
        "metadata.generateName",
        "metadata.name",
        "metadata.namespace",
        "metadata.generation",
        "metadata.labels",
        "metadata.labels",
        "metadata.annotations",
        "metadata.ownerReferences.apiVersion",
        "metadata.ownerReferences.kind",
        "metadata.ownerReferences.name",
        "metadata.ownerReferences.uid",
        "metadata.finalizers",
        "metadata.managedFields[0].operation",
        "metadata.finalizers[0]",
        "metadata.finalizers[1]",
    ]


def test_a_negative_generation_is_refused() -> None:
    """The text names the number."""
    assert created(replace(GOOD, generation=-1)) == [
        "metadata.generation: Invalid value: -1: must be greater than or equal to 0"
    ]


def test_annotations_together_have_a_limit_in_bytes() -> None:
    """256 KiB of keys and values is the most."""
    exact = {"a": "x" * (256 * 1024 - 1)}

    assert created(replace(GOOD, annotations=exact)) == []
    assert created(replace(GOOD, annotations={**exact, "b": ""})) == [
        "metadata.annotations: Too long: may not be more than 262144 bytes"
    ]
    assert created(replace(GOOD, annotations={"a": "é" * (128 * 1024)})) != []


@pytest.mark.parametrize("api_version", ["", "/", "a/", "a/b/c"])
def test_an_owner_needs_a_version(api_version: str) -> None:
    """A version that cannot be read is missing."""
    owner = OwnerReference(api_version, "Pod", "p", "u")

    assert created(replace(GOOD, owner_references=(owner,))) == [
        f'metadata.ownerReferences.apiVersion: Invalid value: "{api_version}": '
        "version must not be empty"
    ]


def test_an_event_owns_nothing() -> None:
    """Events of the core group may not be owners."""
    owner = OwnerReference("v1", "Event", "e", "u")

    assert created(replace(GOOD, owner_references=(owner,))) == [
        "metadata.ownerReferences: Invalid value: "
        '{"apiVersion":"v1","kind":"Event","name":"e","uid":"u"}: '
        "/v1, Kind=Event is disallowed from being an owner"
    ]


def test_only_one_owner_controls() -> None:
    """A second controller is refused with all the owners shown."""
    owners = tuple(OwnerReference("v1", "Pod", name, name, controller=True) for name in "ab")

    (text,) = created(replace(GOOD, owner_references=owners))

    assert text.endswith(
        "Only one reference can have Controller set to true. "
        'Found "true" in references for Pod/a and Pod/b'
    )


def test_two_collector_finalizers_exclude_each_other() -> None:
    """Orphaning and foreground deletion cannot both happen."""
    assert created(replace(GOOD, finalizers=("orphan", "foregroundDeletion"))) == [
        'metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: '
        "finalizer orphan and foregroundDeletion cannot be both set"
    ]


def test_a_plain_finalizer_must_be_a_known_one() -> None:
    """A finalizer without a domain that the server does not know is refused by index."""
    assert created(replace(GOOD, finalizers=("a/b", "nope"))) == [
        'metadata.finalizers[1]: Invalid value: "nope": '
        "name is neither a standard finalizer name nor is it fully qualified"
    ]


def test_managed_fields_entries_are_judged() -> None:
    """Operation, type, manager and subresource each have a rule."""
    entry = ManagedFieldsEntry("a\n", "Do", fields_type="V2", subresource="s" * 257)

    assert created(replace(GOOD, managed_fields=(entry,))) == [
        'metadata.managedFields[0].operation: Invalid value: "Do": must be `Apply` or `Update`',
        'metadata.managedFields[0].fieldsType: Invalid value: "V2": must be `FieldsV1`',
        'metadata.managedFields[0].manager: Invalid value: "a\\n": '
        "invalid character U+000A (at position 1)",
        "metadata.managedFields[0].subresource: Too long: may not be more than 256 bytes",
    ]


def test_a_second_look_judges_names_as_path_segments() -> None:
    """A kind without a name rule of its own still cannot break out of the URL."""
    meta = ObjectMeta(name="a/b", generate_name="c%")

    assert list(creation_errors(meta, namespaced=False, name_errors=any_name)) == []
    assert [str(error) for error in path_errors(meta)] == [
        "metadata.generateName: Invalid value: \"c%\": may not contain '%'",
        "metadata.name: Invalid value: \"a/b\": may not contain '/'",
    ]


@pytest.mark.parametrize(
    ("change", "times"),
    [
        ({"labels": {"a b": ""}}, 4),
        ({"annotations": {"a b": ""}}, 4),
        ({"owner_references": (OwnerReference("v1", "", "n", "u"),)}, 4),
        ({"managed_fields": (ManagedFieldsEntry(),)}, 4),
        ({"finalizers": ("a/b c",)}, 2),
        ({"finalizers": ("nope",)}, 2),
        ({"uid": "nope"}, 2),
        ({"namespace": "other"}, 2),
        ({"generation": 0}, 2),
        ({"deletion_timestamp": NOW}, 2),
        ({"deletion_grace_period_seconds": 5}, 2),
        ({"generate_name": "A_"}, 1),
    ],
)
def test_on_update_findings_repeat(change: dict[str, object], times: int) -> None:
    """Each rule is asked as often as the reference asks it."""
    found = updated(replace(GOOD, **change))

    assert len(found) == times
    assert len(set(found)) == 1


def test_what_the_server_owns_cannot_change() -> None:
    """The refusal prints the new value."""
    later = NOW + datetime.timedelta(seconds=1)

    assert str(updated(replace(GOOD, uid="nope"))[0]) == (
        'metadata.uid: Invalid value: "nope": field is immutable'
    )
    assert str(updated(replace(GOOD, deletion_timestamp=later))[0]) == (
        'metadata.deletionTimestamp: Invalid value: "2026-01-02T03:04:06Z": field is immutable'
    )


def test_nothing_is_added_to_what_is_being_deleted() -> None:
    """New finalizers on a dying object are refused; removing one is not."""
    dying = replace(GOOD, deletion_timestamp=NOW)

    assert updated(replace(dying, finalizers=("orphan",)), dying) == []
    assert str(updated(replace(dying, finalizers=("a/c", "a/b")), dying)[0]) == (
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being "
        'deleted, found new finalizers []string{"a/b", "a/c"}'
    )


def test_a_flood_of_bad_labels_is_cut_off() -> None:
    """The answer to a hostile body stays within bounds."""
    labels = {f"{number} x": "" for number in range(5000)}

    assert len(created(replace(GOOD, labels=labels))) == 1000


def test_equal_owners_are_merged_with_a_warning() -> None:
    """Exact repetitions go, references that only share a uid stay."""
    one = OwnerReference("v1", "Pod", "p", "u1")
    other = replace(one, name="q")

    assert dedup_owner_references((one, other)) == ((one, other), None)
    kept, warning = dedup_owner_references((one, other, one, one))
    assert kept == (one, other)
    assert warning == (
        ".metadata.ownerReferences contains duplicate entries; API server dedups owner references "
        "in 1.20+, and may reject such requests as early as 1.24; please fix your requests; "
        "duplicate UID(s) observed: u1, u1"
    )
    _, warning = dedup_owner_references((one, one), after_admission=True)
    assert warning is not None
    assert "duplicate entries after mutating admission happens; API" in warning
