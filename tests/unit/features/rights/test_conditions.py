"""Conditions of a webhook: what they see, when they keep a request from it, and when they fail."""

from time import monotonic
from typing import Any

import pytest

from orchid.features.rights.authorizers.conditions import Conditions, ConditionsFailed
from orchid.features.rights.authorizers.metrics import AuthorizationMetrics
from orchid.features.rights.authorizers.webhook import Webhook, WebhookSettings
from orchid.kernel.base.metrics import Histogram
from orchid.kernel.engine.interfaces import Decision, Verdict
from orchid.kernel.engine.request import Target
from orchid.kernel.expressions.cel import Compiler, ExpressionUnusable
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import UserInfo
from tests.unit.features.rights.policy_world import ask, ask_path

ANN = UserInfo(username="ann", uid="u1", groups=("dev",), extra={"acme.io/scope": ("a", "b")})
PODS = ask("list", "pods/status", "ci", "web", "apps", field_selector="spec.nodeName=n1")
PATH = ask_path("get", "/metrics")
NAME = "apiserver_authorization_match_condition_"


@pytest.fixture
def metrics() -> AuthorizationMetrics:
    return AuthorizationMetrics()


def conditions(metrics: AuthorizationMetrics, *sources: str) -> Conditions:
    compiler = Compiler()
    expressions = [compiler.request_condition(one) for one in sources]
    return Conditions(expressions, "corp", metrics, monotonic)


def shown(metrics: AuthorizationMetrics) -> dict[str, float]:
    """The counts about conditions, by the end of their names."""
    found: dict[str, float] = {}
    for family in (metric.family() for metric in metrics.all):
        for sample in family.samples:
            if family.name.startswith(NAME):
                assert sample.labels == (("type", "Webhook"), ("name", "corp"))
                value = sample.value
                total = sum(value.counts) if isinstance(value, Histogram) else value
                found[family.name.removeprefix(NAME)] = total
    return found


@pytest.mark.parametrize(
    "source",
    [
        "request.user == 'ann' && request.uid == 'u1' && 'dev' in request.groups",
        "request.extra['acme.io/scope'] == ['a', 'b']",
        "request.extra.acme__dot__io__slash__scope[0] == 'a'",
        "has(request.resourceAttributes) && !has(request.nonResourceAttributes)",
        "request.resourceAttributes.namespace == 'ci' && request.resourceAttributes.verb == 'list'",
        "request.resourceAttributes.group == 'apps' && request.resourceAttributes.name == 'web'",
        "request.resourceAttributes.version == 'v1'",
        "request.resourceAttributes.resource + '/' + request.resourceAttributes.subresource "
        "== 'pods/status'",
        "request.resourceAttributes.fieldSelector.requirements"
        ".exists(r, r.key == 'spec.nodeName' && r.operator == 'In' && r.values == ['n1'])",
        "!has(request.resourceAttributes.labelSelector)",
        "request.?resourceAttributes.?labelSelector.orValue({}) == {}",
    ],
)
def test_what_a_condition_sees_of_a_resource(metrics: AuthorizationMetrics, source: str) -> None:
    """All fields that the webhook would get, with empty strings for missing values."""
    assert conditions(metrics, source).hold(ANN, PODS)


def test_a_path_has_attributes_of_its_own(metrics: AuthorizationMetrics) -> None:
    """A non-resource request has a path and a verb; missing attributes of a user are empty."""
    source = (
        "!has(request.resourceAttributes) && request.nonResourceAttributes.path == '/metrics' && "
        "request.nonResourceAttributes.verb == 'get' && request.uid == '' && "
        "request.groups == [] && request.extra == {}"
    )

    assert conditions(metrics, source).hold(UserInfo("bob"), PATH)


HOLDS = "request.user == 'ann'"
FAILS_TO_HOLD = "request.user == 'bob'"
NO_RESULT = "request.resourceAttributes.namespace == 'ci'"  # of a path


@pytest.mark.parametrize(
    ("sources", "expected", "counted"),
    [
        ([HOLDS], True, {}),
        ([HOLDS, FAILS_TO_HOLD], False, {"exclusions_total": 1}),
        (
            [NO_RESULT, FAILS_TO_HOLD],
            False,
            {"exclusions_total": 1, "evaluation_errors_total": 1},
        ),
        ([NO_RESULT, HOLDS], None, {"evaluation_errors_total": 1}),
    ],
)
def test_one_that_is_false_settles_it(
    metrics: AuthorizationMetrics,
    sources: list[str],
    expected: bool | None,
    counted: dict[str, float],
) -> None:
    """A false one excludes even beside one without a result, which else makes all fail."""
    judged = conditions(metrics, *sources)

    if expected is None:
        with pytest.raises(ConditionsFailed) as caught:
            judged.hold(ANN, PATH)
        assert str(caught.value) == (
            f"cel evaluation error: expression '{NO_RESULT}' resulted in error: "
            "no such key: resourceAttributes"
        )
    else:
        assert judged.hold(ANN, PATH) is expected
    assert shown(metrics) == {"evaluation_seconds": 1, **counted}


@pytest.mark.parametrize(("denies", "verdict"), [(True, Verdict.DENY), (False, Verdict.NO_OPINION)])
@pytest.mark.parametrize("target", [PODS, PATH])
async def test_a_webhook_is_asked_only_where_its_conditions_hold(
    metrics: AuthorizationMetrics, target: Target, denies: bool, verdict: Verdict
) -> None:
    """Else it has no opinion; if they fail, its failure policy decides."""
    asked: list[bytes] = []

    class Remote:
        async def post(self, body: bytes) -> bytes:
            asked.append(body)
            return b'{"status": {"allowed": true}}'

    settings = WebhookSettings(denies_on_failure=denies)

    def webhook(*sources: str) -> Any:
        found = conditions(metrics, *sources)
        return Webhook(ORCH, Remote(), monotonic, settings, conditions=found, metrics=metrics)

    assert await webhook(FAILS_TO_HOLD).authorize(ANN, target) == Decision(Verdict.NO_OPINION)
    assert asked == []
    decision = await webhook(NO_RESULT).authorize(ANN, target)
    if target is PODS:
        assert decision.allowed
        assert len(asked) == 1
    else:
        assert decision.verdict is verdict
        assert decision.error.startswith("cel evaluation error: ")
        assert asked == []


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("request.usr == 'a'", "undefined field 'usr'"),
        ("request.resourceAttributes.nam == 'a'", "undefined field 'nam'"),
        ("request.nonResourceAttributes.name == 'a'", "undefined field 'name'"),
        ("has(request.resourceAttributes.selector)", "undefined field 'selector'"),
        (
            "request.resourceAttributes.fieldSelector.?raw.orValue('') == ''",
            "undefined field 'raw'",
        ),
        ("request.user", "must evaluate to bool"),
        ("object.user == 'a'", "undeclared reference to 'object"),
        ("request.user ==", "compilation failed"),
    ],
)
def test_an_expression_that_cannot_be_meant_is_refused(source: str, problem: str) -> None:
    """A misspelt field is reported at compile time, not at the first request."""
    with pytest.raises(ExpressionUnusable, match=problem):
        Compiler().request_condition(source)
