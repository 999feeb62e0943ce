"""Errors in `allows` of a policy are reported when it is written."""

import sys
from typing import Any

import pytest

from orchid.features.approval.term_errors import term_errors, term_warnings
from orchid.kernel.expressions.cel import Compiler
from orchid.kernel.wire.fields import Path
from tests.unit.features.approval.cases import ALLOWS, spec

SPEC = Path() / "spec"


def refusals(**given: Any) -> list[str]:
    return [str(error) for error in term_errors(spec(**given), SPEC, Compiler())]


def warnings(**given: Any) -> list[str]:
    return list(term_warnings(spec(**given), SPEC))


def test_the_usual_terms_are_fine() -> None:
    """The example of the documentation has no fault."""
    assert refusals() == []
    assert warnings() == []


def test_a_policy_selects_something() -> None:
    """One without a selector would concern everybody."""
    assert refusals(signerNames=[]) == [
        "spec: Required value: at least one selector: signerNames, requesters.users, .groups or "
        ".serviceAccounts"
    ]


@pytest.mark.parametrize(
    ("given", "place", "text"),
    [
        ({"signerNames": [""]}, "spec.signerNames[0]", "Required value"),
        ({"signerNames": ["a/b", "web"]}, "spec.signerNames[1]", "example.com/signer-name"),
        ({"signerNames": ["example.com/"]}, "spec.signerNames[0]", "example.com/signer-name"),
        ({"signerNames": ["example.com/a/b"]}, "spec.signerNames[0]", "example.com/signer-name"),
        ({"signerNames": ["e.com/x"] * 257}, "spec.signerNames", "at most 256 items"),
        ({"signerNames": ["e.com/" + "x" * 1024]}, "spec.signerNames[0]", "more than 1024"),
        ({"requesters": {"users": ["a\n"]}}, "spec.requesters.users[0]", "must be printable"),
        ({"requesters": {"groups": [""]}}, "spec.requesters.groups[0]", "Required value"),
        (
            {"requesters": {"serviceAccounts": ["builder"]}},
            "spec.requesters.serviceAccounts[0]",
            "must be of the form namespace/name",
        ),
        ({"allows": {"usages": ["serve"]}}, "spec.allows.usages[0]", "Unsupported value"),
        ({"allows": {"ipAddresses": ["10.0.0.1/8"]}}, "spec.allows.ipAddresses[0]", "host bits"),
        ({"allows": {"ipAddresses": ["web"]}}, "spec.allows.ipAddresses[0]", "an address"),
        ({"allows": {"maxDuration": "30d"}}, "spec.allows.maxDuration", "like 720h or 90m"),
        ({"allows": {"maxDuration": "-1h"}}, "spec.allows.maxDuration", "above zero"),
        (
            {"allows": {"maxDuration": "1h", "minDuration": "2h"}},
            "spec.allows.minDuration",
            "must not be above maxDuration",
        ),
        ({"allows": {"commonName": "a\0"}}, "spec.allows.commonName", "must be printable"),
        ({"otherwise": "refuse"}, "spec.otherwise", 'supported values: "leave", "deny"'),
        ({"rules": [{"message": "x"}]}, "spec.rules[0].expression", "Required value"),
        ({"rules": [{"expression": "true"}] * 33}, "spec.rules", "at most 32 items"),
    ],
)
def test_every_fault_has_its_place_and_reason(given: dict[str, Any], place: str, text: str) -> None:
    """The error is enough to fix the policy."""
    (found,) = refusals(**given)

    assert found.startswith(f"{place}: ")
    assert text in found


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("request.dnsNames.all(n,", "compilation failed: 1:"),
        ("request.dnsnames.size() > 0", "undefined field 'dnsnames'"),
        ("user.name == 'x'", "undefined field 'name'"),
        ("claims.sub == 'x'", "compilation failed: 1:7: undeclared reference"),
        ("request.dnsNames", "must evaluate to bool"),
        ("1 + 1", "must evaluate to bool"),
        ("request.commonName.matches('(')", "regular expression"),
        ("optional.of(1)" + ".optMap(x, x)" * 12 + ".hasValue()", "optFlatMap double them"),
        ("'" + "x" * 1024 + "' == ''", "at most 1024 characters"),
    ],
)
def test_an_expression_that_cannot_decide_is_refused(expression: str, text: str) -> None:
    """With the place in the expression, and before anything is stored."""

    (found,) = refusals(rules=[{"expression": "true"}, {"expression": expression}])

    assert found.startswith("spec.rules[1].expression: Invalid value: ")
    assert text in found


def test_without_the_library_rules_are_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A policy without rules needs nothing."""
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)

    (found,) = refusals(rules=[{"expression": "true"}])

    assert "no cel-expr-python for this platform" in found
    assert refusals() == []


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"signerNames": ["*"]}, "spec.signerNames[0]"),
        ({"requesters": {"users": ["a", "**"]}}, "spec.requesters.users[1]"),
        ({"allows": {**ALLOWS, "dnsNames": ["*"]}}, "spec.allows.dnsNames[0]"),
        ({"allows": {**ALLOWS, "commonName": "*"}}, "spec.allows.commonName[0]"),
        ({"allows": {**ALLOWS, "keys": ["*"]}}, "spec.allows.keys[0]"),
    ],
)
def test_a_pattern_that_matches_everything_is_warned_of(given: dict[str, Any], place: str) -> None:
    """It may be meant, so it is not refused."""
    assert refusals(**given) == []

    (found,) = warnings(**given)

    assert found.startswith(f"{place}: '*")
    assert found.endswith("matches everything")


def test_a_policy_that_allows_nothing_is_warned_of() -> None:
    """Unless that is its purpose: to deny what no other policy allows."""
    assert warnings(allows={"keys": ["RSA-*"], "usages": ["any"]}) == [
        "spec.allows.maxDuration: missing, so that the policy allows no request"
    ]
    assert len(warnings(allows={})) == 3
    assert warnings(allows={}, otherwise="deny") == []
