"""The webhook authorizer: what it asks, how it reads the answer, and what it remembers."""

import json
from typing import Any

import pytest

from orchid.access.authorizers import webhook as webhook_module
from orchid.access.authorizers.webhook import Webhook, WebhookSettings
from orchid.access.https_client import TimedOut
from orchid.engine.interfaces import Verdict
from orchid.wire.naming import ORCH
from orchid.wire.user import UserInfo
from tests.unit.access.policy_world import BOB, ask, ask_path

ANN = UserInfo(username="ann", uid="u1", groups=("dev",), extra={"scopes": ("a",)})


class Remote:
    """The other server: answers as told, and keeps what it was asked."""

    def __init__(self, **status: Any) -> None:
        self.answer: bytes | Exception = json.dumps({"status": status}).encode()
        self.asked: list[dict[str, Any]] = []

    async def post_patiently(self, body: bytes) -> bytes:
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

    decision = await Webhook(ORCH, remote).authorize(ANN, ask("get", "pods"))

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

    await Webhook(ORCH, remote, WebhookSettings(version="v1")).authorize(ANN, target)

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

    await Webhook(ORCH, remote).authorize(ANN, ask_path("get", "/x"))

    assert remote.asked[0]["apiVersion"] == "authorization.orch.io/v1beta1"
    assert remote.asked[0]["spec"]["group"] == ["dev"]
    assert remote.asked[0]["spec"]["nonResourceAttributes"] == {"path": "/x", "verb": "get"}


@pytest.mark.parametrize(("allowed", "seconds"), [(True, 300), (False, 30)])
async def test_answers_are_remembered_for_their_time(allowed: bool, seconds: int) -> None:
    """An allowed answer lasts longer than another; neither lasts for ever."""
    remote, time = Remote(allowed=allowed), Time()
    webhook = Webhook(ORCH, remote, clock=time)

    for moment in (0, seconds - 1, seconds):
        time.now = 1000.0 + moment
        assert (await webhook.authorize(ANN, ask("get", "pods"))).allowed is allowed
    await webhook.authorize(BOB, ask("get", "pods"))

    assert len(remote.asked) == 3


async def test_the_number_of_answers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest answer goes when there is no room, and a huge question is never kept."""
    monkeypatch.setattr(webhook_module, "MOST_REMEMBERED", 2)
    remote = Remote(allowed=True)
    webhook = Webhook(ORCH, remote)

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
    webhook = Webhook(ORCH, remote, WebhookSettings(denies_on_failure=denies))

    decision = await webhook.authorize(ANN, ask("get", "pods"))
    await webhook.authorize(ANN, ask("get", "pods"))

    assert decision.verdict is verdict
    assert decision.error.startswith("authorization webhook failed: ")
    assert "not json" not in decision.error
    assert len(remote.asked) == 2


def test_an_unknown_version_is_refused_at_start() -> None:
    """A misspelt version is an error before the first request."""
    with pytest.raises(ValueError, match='unsupported authorization webhook version "v2"'):
        WebhookSettings(version="v2")


def test_it_cannot_list_rules() -> None:
    """A rules review says that it is incomplete."""
    listed = Webhook(ORCH, Remote()).rules_for(ANN, "ci")

    assert listed.incomplete
    assert listed.evaluation_error == "webhook authorizer does not support user rule resolution"
