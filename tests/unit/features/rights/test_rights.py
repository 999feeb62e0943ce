"""RBAC with all its caches against its definition, for any history of roles and bindings."""

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from orchid.kernel.engine.request import Target
from orchid.kernel.wire.policy_rules import PolicyRule
from tests.unit.features.rights import rights
from tests.unit.features.rights.policy_world import a_cluster_role, bound, rule, user


@settings(max_examples=40, phases=[Phase.generate])  # bytes do not get simpler by being fewer
@given(st.binary(min_size=80, max_size=240))
def test_warm_cold_and_plain_evaluators_agree(data: bytes) -> None:
    """Caches and indexes change no decision, and no escalation check lets more through."""
    rights.compare(data)


@pytest.mark.parametrize(
    ("held", "expected"),
    [(rule("get", "pods"), True), (rule("list", "pods"), False), (rule("get", "*/*"), False)],
)
def test_the_definition_distinguishes_rights(held: PolicyRule, expected: bool) -> None:
    """So that the agreement above is about something."""
    objects = [a_cluster_role("r", held), bound("b", "r", user("bob"))]
    target = Target(verb="get", is_resource=True, resource="pods", namespace="ci", name="a")

    assert rights.plainly_allowed(objects, rights.BOB, target) is expected
