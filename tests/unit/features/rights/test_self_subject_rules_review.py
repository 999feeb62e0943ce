"""SelfSubjectRulesReview: the caller's rules, and nothing of what was sent."""

import datetime
import json

import pytest

from orchid.features.rights.kinds.self_subject_rules_review import (
    NonResourceRule,
    ResourceRule,
    SelfSubjectRulesReview,
    SelfSubjectRulesReviewSpec,
    SubjectRulesReviewStatus,
    declare,
)
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.wire.codec.documents import encode
from orchid.kernel.wire.errors import BadRequest
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import UserInfo

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


class Rules:
    """Lists the same for everybody, and says for whom it was asked."""

    def __init__(self, status: SubjectRulesReviewStatus) -> None:
        self._status = status
        self.asked: list[tuple[str, str]] = []

    def rules_for(self, user: UserInfo, namespace: str) -> SubjectRulesReviewStatus:
        self.asked.append((user.username, namespace))
        return self._status


async def review(namespace: str, rules: Rules) -> SelfSubjectRulesReview:
    kind = declare(ORCH, rules)
    new = SelfSubjectRulesReview(
        metadata=ObjectMeta(name="sent"), spec=SelfSubjectRulesReviewSpec(namespace=namespace)
    )
    assert kind.acts is not None
    return await kind.acts.create(new, Request(Target("create"), UserInfo("jane"), NOW))


async def test_the_answer_holds_the_rules_and_nothing_that_was_sent() -> None:
    """Metadata and spec come back empty; the lists are always there."""
    status = SubjectRulesReviewStatus(
        resource_rules=(ResourceRule(("get",), ("",), ("pods",)),),
        non_resource_rules=(NonResourceRule(("get",), ("/x",)),),
        evaluation_error="broken",
    )
    rules = Rules(status)

    answer = json.loads(encode(await review("ci", rules)))

    assert rules.asked == [("jane", "ci")]
    assert answer["metadata"] == {}
    assert answer["spec"] == {}
    assert answer["status"] == {
        "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}],
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}],
        "incomplete": False,
        "evaluationError": "broken",
    }


async def test_an_empty_list_is_written() -> None:
    """Nobody has to guess whether a missing list means none."""
    answer = json.loads(encode(await review("ci", Rules(SubjectRulesReviewStatus()))))

    assert answer["status"] == {"resourceRules": [], "nonResourceRules": [], "incomplete": False}


async def test_a_namespace_is_needed() -> None:
    """Without one the question has no meaning."""
    with pytest.raises(BadRequest, match="no namespace on request"):
        await review("", Rules(SubjectRulesReviewStatus()))
