"""Role and ClusterRole: what they look like on the wire and what is wrong with a bad one."""

import json
from typing import Any

import pytest

from orchid.features.rights.kinds.role import ClusterRole, Role, declare
from orchid.kernel.wire.codec.documents import encode
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.schema import Fields, Sequence

ROLE, CLUSTER_ROLE = declare(ORCH)
CORE_GET = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}


def read(kind: Any, body: dict[str, Any]) -> Any:
    """An object from a client, as it is prepared."""
    found = kind.decoder.stored(json.dumps(body).encode())
    return kind.rules.prepare_for_create(found, None)


def errors(kind: Any, body: dict[str, Any]) -> list[str]:
    return [str(error) for error in kind.rules.validate(read(kind, body))]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (CORE_GET, []),
        (
            {"verbs": [], "apiGroups": [""], "resources": ["x"]},
            ["rules[0].verbs: Required value: verbs must contain at least one value"],
        ),
        (
            {},
            [
                "rules[0].verbs: Required value: verbs must contain at least one value",
                "rules[0].apiGroups: Required value: resource rules must supply at least one api "
                "group",
                "rules[0].resources: Required value: resource rules must supply at least one "
                "resource",
            ],
        ),
        ({"verbs": ["get"], "nonResourceURLs": ["/x"]}, []),
        (
            CORE_GET | {"nonResourceURLs": ["/x"]},
            [
                'rules[0].nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both '
                "regular resources and non-resource URLs"
            ],
        ),
    ],
)
def test_rules_of_a_cluster_role(rule: dict[str, Any], expected: list[str]) -> None:
    """Verbs always, then either groups and resources or paths."""
    assert errors(CLUSTER_ROLE, {"rules": [rule]}) == expected


def test_a_role_has_no_paths() -> None:
    """A namespace has no paths to give away."""
    assert errors(ROLE, {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]}) == [
        'rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to '
        "non-resource URLs"
    ]


def test_aggregation_needs_selectors_that_can_be_read() -> None:
    """An aggregationRule without selectors, or with bad ones, says what is wrong."""
    place = "aggregationRule.clusterRoleSelectors"
    selector = {
        "matchLabels": {"-": "x"},
        "matchExpressions": [
            {"key": "a", "operator": "In"},
            {"key": "a", "operator": "Exists", "values": ["x"]},
            {"key": "a", "operator": "Like"},
        ],
    }

    assert errors(CLUSTER_ROLE, {"aggregationRule": {}}) == [
        f"{place}: Required value: at least one clusterRoleSelector required if aggregationRule "
        "is non-nil"
    ]
    found = errors(CLUSTER_ROLE, {"aggregationRule": {"clusterRoleSelectors": [selector]}})
    assert found[0].startswith(f'{place}[0].matchLabels: Invalid value: "-": name part must')
    assert found[1:] == [
        f"{place}[0].matchExpressions[0].values: Required value: must be specified when `operator` "
        "is 'In' or 'NotIn'",
        f"{place}[0].matchExpressions[1].values: Forbidden: may not be specified when `operator` "
        "is 'Exists' or 'DoesNotExist'",
        f'{place}[0].matchExpressions[2].operator: Invalid value: "Like": not a valid selector '
        "operator",
        f"{place}[0]: Invalid value: null: invalid label selector.",
    ]


@pytest.mark.parametrize("body", [{}, {"rules": []}, {"rules": None}])
def test_no_rules_are_written_as_null(body: dict[str, Any]) -> None:
    """Unset and empty look the same to a client."""
    for kind in (ROLE, CLUSTER_ROLE):
        assert json.loads(encode(read(kind, body)))["rules"] is None


def test_a_rule_is_written_in_the_order_clients_know() -> None:
    """Verbs first, empty lists left out."""
    role = read(ROLE, {"rules": [CORE_GET, {"verbs": ["get"], "nonResourceURLs": ["/x"]}]})

    assert encode(role).endswith(
        b'"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]},'
        b'{"verbs":["get"],"nonResourceURLs":["/x"]}]}'
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("system:Node", []),
        ("a/b", ["may not contain '/'"]),
        ("..", ["may not be '..'"]),
        ("a%b", ["may not contain '%'"]),
    ],
)
def test_names_are_any_path_segment(name: str, expected: list[str]) -> None:
    """Colons and capitals are fine in the name of a role."""
    assert list(ROLE.rules.name_errors(name, False)) == expected
    assert list(CLUSTER_ROLE.rules.name_errors(name, False)) == expected


def test_rules_are_owned_and_replaced_as_a_whole() -> None:
    """Under apply and patches the list of rules is atomic."""
    for type_ in (Role, ClusterRole):
        node = (ROLE if type_ is Role else CLUSTER_ROLE).schema.get("rules")
        assert isinstance(node, Sequence)
        assert node.atomic
        assert isinstance(node.items, Fields)
