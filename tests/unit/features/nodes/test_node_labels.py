"""Labels that a node may set on itself, and those that select it for workloads."""

import pytest

from orchid.features.nodes.policies.node_labels import NodeLabels
from orchid.kernel.wire.naming import KUBERNETES, ORCH, Naming


@pytest.mark.parametrize("naming", [ORCH, KUBERNETES])
@pytest.mark.parametrize(
    "form",
    [
        "role",
        "example.com/role",
        "{domain}.example.com/role",
        "not{domain}/role",
        "{domain}/hostname",
        "topology.{domain}/zone",
        "failure-domain.beta.{domain}/region",
        "beta.{domain}/instance-type",
        "node.{domain}/anything",
        "under.node.{domain}/anything",
        "{agent}.{domain}/anything",
    ],
)
def test_a_node_sets_what_describes_it(naming: Naming, form: str) -> None:
    label = form.format(domain=naming.domain, agent=naming.agent)

    assert NodeLabels(naming).forbidden({label: "x"}, {}) == []


@pytest.mark.parametrize("naming", [ORCH, KUBERNETES])
@pytest.mark.parametrize(
    "form",
    [
        "node-restriction.{domain}/tenant",
        "under.node-restriction.{domain}/tenant",
        "{domain}/tenant",
        "{domain}/zone",
        "topology.{domain}/hostname",
        "other.{domain}/hostname",
        "notnode.{domain}/anything",
        "{group}/tenant",
        "under.{group}/tenant",
    ],
)
def test_a_node_sets_no_other_label_of_the_product(naming: Naming, form: str) -> None:
    label = form.format(domain=naming.domain, group=naming.group_domain)

    assert NodeLabels(naming).forbidden({label: "x"}, {}) == [label]
    assert NodeLabels(naming).forbidden({}, {label: "x"}) == [label]
    assert NodeLabels(naming).forbidden({label: "x"}, {label: "y"}) == [label]
    assert NodeLabels(naming).forbidden({label: "x"}, {label: "x"}) == []


def test_every_forbidden_label_is_named_in_order() -> None:
    first, second = f"a.{ORCH.domain}/x", f"b.{ORCH.domain}/x"

    assert NodeLabels(ORCH).forbidden({second: "1", "free": "1"}, {first: "1"}) == [first, second]
