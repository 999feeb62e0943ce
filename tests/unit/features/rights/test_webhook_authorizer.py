"""The webhook authorizer: its requests, its answers and its cache."""

import asyncio
import json
from functools import partial
from time import monotonic
from typing import Any

import pytest

from orchid.features.rights.authorizers import webhook as webhook_module
from orchid.features.rights.authorizers.metrics import AuthorizationMetrics
from orchid.features.rights.authorizers.webhook import Webhook, WebhookSettings
from orchid.kernel.access.json_endpoint import patiently
from orchid.kernel.engine.interfaces import Verdict
from orchid.kernel.outbound.failures import AnswerRefused, TimedOut
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import UserInfo
from tests.unit.features.rights.policy_world import BOB, ask, ask_path

ANN = UserInfo(username="ann", uid="u1", groups=("dev",), extra={"scopes": ("a",)})


class Remote:
    """The webhook: returns configured answers, and records the requests."""

    def __init__(self, **status: Any) -> None:
        self.answer: bytes | Exception = json.dumps({"status": status}).encode()
        self.asked: list[dict[str, Any]] = []

    async def post(self, body: bytes) -> bytes:
        self.asked.append(json.loads(body))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Time:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("status", "verdict", "error"),
    [
        ({"allowed": True}, Verdict.ALLOW, ""),
        ({"allowed": False}, Verdict.NO_OPINION, ""),
        ({"allowed": False, "denied": True}, Verdict.DENY, ""),
        (
            {"allowed": True, "denied": True},
            Verdict.DENY,
            "webhook subject access review returned both allow and deny response",
        ),
    ],
)
async def test_the_answer_is_read(status: dict[str, bool], verdict: Verdict, error: str) -> None:
    """Denied wins over allowed, and neither is no opinion."""
    remote = Remote(reason="because", **status)

    decision = await Webhook(ORCH, remote, monotonic).authorize(ANN, ask("get", "pods"))

    assert (decision.verdict, decision.reason, decision.error) == (verdict, "because", error)


async def test_the_question_about_a_resource_holds_all_attributes() -> None:
    """User, resource and selectors travel; empty members stay away."""
    remote = Remote(allowed=True)
    target = ask(
        "list",
        "pods/status",
        "ci",
        "web",
        "apps",
        field_selector="spec.nodeName=n1",
        label_selector="a in (b,c),!d",
    )

    await Webhook(ORCH, remote, monotonic, WebhookSettings(version="v1")).authorize(ANN, target)

    assert remote.asked == [
        {
            "apiVersion": "authorization.orch.io/v1",
            "kind": "SubjectAccessReview",
            "metadata": {},
            "spec": {
                "user": "ann",
                "uid": "u1",
                "groups": ["dev"],
                "extra": {"scopes": ["a"]},
                "resourceAttributes": {
                    "namespace": "ci",
                    "verb": "list",
                    "group": "apps",
                    "version": "v1",
                    "resource": "pods",
                    "subresource": "status",
                    "name": "web",
                    "fieldSelector": {
                        "requirements": [
                            {"key": "spec.nodeName", "operator": "In", "values": ["n1"]}
                        ]
                    },
                    "labelSelector": {
                        "requirements": [
                            {"key": "a", "operator": "In", "values": ["b", "c"]},
                            {"key": "d", "operator": "DoesNotExist"},
                        ]
                    },
                },
            },
            "status": {"allowed": False},
        }
    ]


async def test_the_older_version_calls_groups_by_its_name() -> None:
    """By default the question is v1beta1, where the member is `group`."""
    remote = Remote(allowed=True)

    await Webhook(ORCH, remote, monotonic).authorize(ANN, ask_path("get", "/x"))

    assert remote.asked[0]["apiVersion"] == "authorization.orch.io/v1beta1"
    assert remote.asked[0]["spec"]["group"] == ["dev"]
    assert remote.asked[0]["spec"]["nonResourceAttributes"] == {"path": "/x", "verb": "get"}


@pytest.mark.parametrize(("allowed", "seconds"), [(True, 300), (False, 30)])
async def test_answers_are_remembered_for_their_time(allowed: bool, seconds: int) -> None:
    """An allowed answer lasts longer than another; neither lasts for ever."""
    remote, time = Remote(allowed=allowed), Time()
    webhook = Webhook(ORCH, remote, time)

    for moment in (0, seconds - 1, seconds):
        time.now = 1000.0 + moment
        assert (await webhook.authorize(ANN, ask("get", "pods"))).allowed is allowed
    await webhook.authorize(BOB, ask("get", "pods"))

    assert len(remote.asked) == 3


async def test_the_number_of_answers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest answer goes when there is no room, and a huge question is never kept."""
    monkeypatch.setattr(webhook_module, "MOST_CACHED", 2)
    remote = Remote(allowed=True)
    webhook = Webhook(ORCH, remote, monotonic)

    for name in ("a", "b", "c", "b", "a"):
        await webhook.authorize(ANN, ask("get", "pods", name=name))
    for _ in range(2):
        await webhook.authorize(ANN, ask("get", "pods", name="x" * 10_001))

    assert len(remote.asked) == 6


@pytest.mark.parametrize("answer", [TimedOut("no answer"), b"not json", b'{"status": 3}', b"[]"])
@pytest.mark.parametrize(("denies", "verdict"), [(False, Verdict.NO_OPINION), (True, Verdict.DENY)])
async def test_a_failure_allows_nothing_and_is_not_remembered(
    answer: Any, denies: bool, verdict: Verdict
) -> None:
    """Silence or nonsense is no opinion, or a no where the settings say so, with an error."""
    remote = Remote()
    remote.answer = answer
    webhook = Webhook(ORCH, remote, monotonic, WebhookSettings(denies_on_failure=denies))

    decision = await webhook.authorize(ANN, ask("get", "pods"))
    await webhook.authorize(ANN, ask("get", "pods"))

    assert decision.verdict is verdict
    assert decision.error.startswith("authorization webhook failed: ")
    assert "not json" not in decision.error
    assert len(remote.asked) == 2


def counts(metrics: AuthorizationMetrics, name: str) -> dict[tuple[str, ...], float]:
    """The values of a counter, by its labels."""
    (family,) = [one.family() for one in metrics.all if one.family().name == name]
    return {
        tuple(value for _, value in sample.labels): sample.value
        for sample in family.samples
        if isinstance(sample.value, int | float)
    }


CALLS = "apiserver_authorization_webhook_evaluations_total"
FAILED_OPEN = "apiserver_authorization_webhook_evaluations_fail_open_total"


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (b'{"status": {"allowed": true}}', "success"),
        (TimedOut("no answer"), "timeout"),
        (AnswerRefused("answered with status 504", 403), "error"),
        (b"not json", "error"),
    ],
)
async def test_calls_are_counted_by_what_became_of_them(answer: Any, result: str) -> None:
    """A cached answer is no call; a skipped failure is counted as fail-open."""
    remote, metrics = Remote(), AuthorizationMetrics()
    remote.answer = answer
    webhook = Webhook(ORCH, remote, monotonic, name="corp", metrics=metrics)

    await webhook.authorize(ANN, ask("get", "pods"))
    if result == "success":
        await webhook.authorize(ANN, ask("get", "pods"))

    assert counts(metrics, CALLS) == {("corp", result): 1}
    assert counts(metrics, FAILED_OPEN) == ({} if result == "success" else {("corp", result): 1})


async def test_every_attempt_is_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that helps after a pause leaves two counts, and nothing failed open."""
    metrics = AuthorizationMetrics()
    answers = [AnswerRefused("answered with status 504", 504), b'{"status": {"allowed": true}}']

    class Recovering:
        async def post(self, body: bytes) -> bytes:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    async def at_once(seconds: float) -> None:
        return None

    monkeypatch.setattr(webhook_module, "patiently", partial(patiently, sleep=at_once))
    decision = await Webhook(ORCH, Recovering(), monotonic, metrics=metrics).authorize(
        ANN, ask("get", "pods")
    )

    assert decision.allowed
    assert counts(metrics, CALLS) == {("default", "timeout"): 1, ("default", "success"): 1}
    assert counts(metrics, FAILED_OPEN) == {}


async def test_a_failure_that_denies_does_not_count_as_passed_over() -> None:
    """Nothing was opened by it."""
    remote, metrics = Remote(), AuthorizationMetrics()
    remote.answer = TimedOut("no answer")
    settings = WebhookSettings(denies_on_failure=True)

    await Webhook(ORCH, remote, monotonic, settings, metrics=metrics).authorize(
        ANN, ask("get", "pods")
    )

    assert counts(metrics, FAILED_OPEN) == {}


async def test_a_call_that_is_given_up_is_counted_so() -> None:
    """The client went away while the webhook was thinking."""
    metrics, asked = AuthorizationMetrics(), asyncio.Event()

    class Silent:
        async def post(self, body: bytes) -> bytes:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

    asking = asyncio.ensure_future(
        Webhook(ORCH, Silent(), monotonic, metrics=metrics).authorize(ANN, ask("get", "pods"))
    )
    await asked.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    assert counts(metrics, CALLS) == {("default", "canceled"): 1}


def test_an_unknown_version_is_refused_at_start() -> None:
    """A misspelt version is an error before the first request."""
    with pytest.raises(ValueError, match='unsupported authorization webhook version "v2"'):
        WebhookSettings(version="v2")


def test_it_cannot_list_rules() -> None:
    """A rules review says that it is incomplete."""
    listed = Webhook(ORCH, Remote(), monotonic).rules_for(ANN, "ci")

    assert listed.incomplete
    assert listed.evaluation_error == "webhook authorizer does not support user rule resolution"
