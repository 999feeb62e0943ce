"""RoleBinding and ClusterRoleBinding: defaults, errors, and that a roleRef never changes."""

import datetime
import json
from typing import Any

import pytest

from orchid.features.rights.kinds.role_binding import declare
from orchid.kernel.wire.codec.documents import encode
from orchid.kernel.wire.naming import ORCH

BINDING, CLUSTER_BINDING = declare(ORCH)
GROUP = "rbac.authorization.orch.io"
VIEW = {"kind": "ClusterRole", "name": "view"}


def read(kind: Any, subjects: Any = (), role: dict[str, Any] | None = None) -> Any:
    """A binding as it comes from a client, defaults included."""
    body = {"subjects": list(subjects), "roleRef": VIEW if role is None else role}
    return kind.defaults(kind.decoder.stored(json.dumps(body).encode()))


def errors(kind: Any, subjects: Any = (), role: dict[str, Any] | None = None) -> list[str]:
    return [str(error) for error in kind.rules.validate(read(kind, subjects, role))]


def test_groups_are_filled_in() -> None:
    """Users, groups and roles belong to the API group of roles; accounts to none."""
    subjects = [
        {"kind": "User", "name": "u"},
        {"kind": "Group", "name": "g"},
        {"kind": "ServiceAccount", "name": "s", "namespace": "ci"},
        {"kind": "Robot", "name": "r"},
    ]

    binding = read(BINDING, subjects)

    assert [subject.api_group for subject in binding.subjects] == [GROUP, GROUP, "", ""]
    assert binding.role_ref.api_group == GROUP


def test_empty_subjects_are_valid_and_left_out() -> None:
    """A binding to nobody is a binding."""
    binding = read(BINDING)

    assert list(BINDING.rules.validate(binding)) == []
    assert encode(binding).endswith(
        b'"roleRef":{"apiGroup":"rbac.authorization.orch.io","kind":"ClusterRole","name":"view"}}'
    )
    assert b"subjects" not in encode(binding)


@pytest.mark.parametrize(
    ("kind", "role", "expected"),
    [
        (BINDING, {"kind": "Role", "name": "r"}, []),
        (
            CLUSTER_BINDING,
            {"kind": "Role", "name": "r"},
            ['roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"'],
        ),
        (
            BINDING,
            {"kind": "X", "name": "r", "apiGroup": "y"},
            [
                f'roleRef.apiGroup: Unsupported value: "y": supported values: "{GROUP}"',
                'roleRef.kind: Unsupported value: "X": supported values: "Role", "ClusterRole"',
            ],
        ),
        (BINDING, {"kind": "Role"}, ["roleRef.name: Required value"]),
        (
            BINDING,
            {"kind": "Role", "name": "a/b"},
            ["roleRef.name: Invalid value: \"a/b\": may not contain '/'"],
        ),
    ],
)
def test_role_refs(kind: Any, role: dict[str, Any], expected: list[str]) -> None:
    """A binding names one role, of a kind that it can bind."""
    assert errors(kind, role=role) == expected


@pytest.mark.parametrize(
    ("kind", "subject", "expected"),
    [
        (BINDING, {"kind": "User", "name": "u", "namespace": "kept"}, []),
        (BINDING, {"kind": "User"}, ["subjects[0].name: Required value"]),
        (
            BINDING,
            {"kind": "Robot", "name": "r"},
            [
                'subjects[0].kind: Unsupported value: "Robot": supported values: '
                '"ServiceAccount", "User", "Group"'
            ],
        ),
        (
            BINDING,
            {"kind": "Group", "name": "g", "apiGroup": "x"},
            [f'subjects[0].apiGroup: Unsupported value: "x": supported values: "{GROUP}"'],
        ),
        (BINDING, {"kind": "ServiceAccount", "name": "s"}, []),
        (
            CLUSTER_BINDING,
            {"kind": "ServiceAccount", "name": "s", "apiGroup": "x"},
            [
                'subjects[0].apiGroup: Unsupported value: "x": supported values: ""',
                "subjects[0].namespace: Required value",
            ],
        ),
    ],
)
def test_subjects(kind: Any, subject: dict[str, Any], expected: list[str]) -> None:
    """Each subject is checked by its kind."""
    assert errors(kind, [subject]) == expected


def test_an_accounts_name_must_be_one() -> None:
    """A service account subject names something that can exist."""
    (found,) = errors(BINDING, [{"kind": "ServiceAccount", "name": "Not_One"}])

    assert found.startswith('subjects[0].name: Invalid value: "Not_One": a lowercase RFC 1123')


def test_a_role_ref_never_changes() -> None:
    """Pointing elsewhere would hand rights to the old subjects unasked."""
    old, new = read(BINDING), read(BINDING, role={"kind": "Role", "name": "other"})

    assert [str(error) for error in BINDING.rules.validate_update(new, old)] == [
        'roleRef: Invalid value: {"APIGroup":"rbac.authorization.orch.io","Kind":"Role",'
        '"Name":"other"}: cannot change roleRef'
    ]
    assert list(BINDING.rules.validate_update(old, old)) == []


def test_the_table_shows_the_role_and_who_holds_it() -> None:
    """Wide output names users, groups and accounts."""
    subjects = [
        {"kind": "User", "name": "u"},
        {"kind": "Group", "name": "g"},
        {"kind": "Group", "name": "h"},
        {"kind": "ServiceAccount", "name": "s", "namespace": "ci"},
    ]
    binding = read(BINDING, subjects).with_meta(name="b")
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    cells = {column.name: column.cell(binding, now) for column in BINDING.columns}

    assert cells == {
        "Name": "b",
        "Role": "ClusterRole/view",
        "Age": "<unknown>",
        "Users": "u",
        "Groups": "g, h",
        "ServiceAccounts": "ci/s",
    }
