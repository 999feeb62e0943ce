"""ApprovalPolicy: Ready when it compiles, and what stays writable."""

import sys
from typing import Any

import msgspec
import pytest

from orchid.features.approving.kinds.approval_policy import (
    NOT_READY,
    ApprovalPolicy,
    compiled,
    declare,
    too_slow,
)
from orchid.kernel.expressions.cel import Compiler
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import KUBERNETES, ORCH
from orchid.kernel.wire.struct import replace
from tests.unit.features.approval.cases import spec
from tests.unit.features.asking import a_request
from tests.unit.features.rights.policy_world import ask

KIND = declare(ORCH)
REQUEST = a_request(ask("create", "approvalpolicies"))


def policy(**given: Any) -> ApprovalPolicy:
    return ApprovalPolicy(metadata=ObjectMeta(name="web", resource_version="5"), spec=spec(**given))


def stored(**given: Any) -> ApprovalPolicy:
    return KIND.rules.prepare_for_create(policy(**given).with_meta(generation=1), REQUEST)


def test_both_namings_have_the_same_group() -> None:
    """It is ours in either."""
    assert KIND.api_version == declare(KUBERNETES).api_version == "identity.orch.io/v1alpha1"


def test_a_stored_policy_is_ready() -> None:
    """One that does not compile is refused, so there is nothing to wait for."""
    made = stored()

    (condition,) = made.status.conditions
    assert made.is_ready
    assert (condition.type, condition.status, condition.observed_generation) == ("Ready", "True", 1)
    assert condition.last_transition_time == REQUEST.now


def test_changed_terms_are_ready_again() -> None:
    """A policy that was too slow is Ready after a change of its spec, not of its labels."""
    old = too_slow(stored(), "slow", REQUEST.now)
    other = replace(old, spec=spec(otherwise="deny")).with_meta(generation=2)

    same = KIND.rules.prepare_for_update(old.with_meta(labels={"a": "b"}), old, REQUEST)
    changed = KIND.rules.prepare_for_update(other, old, REQUEST)

    assert not same.is_ready
    assert changed.is_ready
    assert changed.status.conditions[0].observed_generation == 2


def test_terms_are_judged_when_they_change() -> None:
    """A stored policy stays writable, even if it could not be created today."""
    old = stored(otherwise="whatever")

    kept = list(KIND.rules.validate_update(old.with_meta(labels={"a": "b"}), old))
    changed = list(KIND.rules.validate_update(replace(old, spec=spec(signerNames=["x"])), old))

    assert kept == []
    assert [str(error.path) for error in changed] == ["spec.signerNames[0]"]


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        ({"type": "", "status": "True"}, "type: Required value"),
        ({"type": "Ready", "status": "Yes"}, "status: Unsupported value"),
        ({"type": "Ready", "status": "False"}, "reason: Required value"),
    ],
)
def test_conditions_are_whole(sent: dict[str, Any], text: str) -> None:
    """The status endpoint takes what a reader can rely on."""
    usual = {"reason": "R", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    if "reason" in text:
        usual.pop("reason")
    old = stored()
    new = msgspec.convert({"status": {"conditions": [usual | sent]}}, ApprovalPolicy, strict=False)
    endpoint = KIND.endpoint("status")
    assert endpoint is not None

    errors = [str(error) for error in endpoint.rules.validate_update(new, old)]

    assert errors == [error for error in errors if error.startswith("status.conditions[0].")]
    assert any(text in error for error in errors)


def test_one_that_is_not_ready_cannot_judge() -> None:
    """Neither can one whose rules do not compile here."""
    waiting = compiled(policy(), Compiler())
    ready = compiled(stored(), Compiler())

    assert waiting.problem == NOT_READY
    assert ready.problem == ""
    assert (ready.name, ready.revision) == ("web", "5")


def test_a_stored_policy_whose_library_is_gone_cannot_judge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It says what to install."""
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)

    made = compiled(stored(rules=[{"expression": "true"}]), Compiler())

    assert "no cel-expr-python for this platform" in made.problem


def test_columns_show_signers_and_readiness() -> None:
    """Signers, the decision for other requests, and readiness."""
    cells = [column.cell(stored(), REQUEST.now) for column in KIND.columns]

    assert cells[:4] == ["web", "example.com/*", "leave", "True"]
