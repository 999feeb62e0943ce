"""Several authorizers as one, the group that may all, and the one that asks nobody."""

import pytest

from orchid.features.rights.authorizers.metrics import Tally
from orchid.features.rights.authorizers.union import Member, Union
from orchid.features.rights.kinds.self_subject_rules_review import (
    ResourceRule,
    SubjectRulesReviewStatus,
)
from orchid.kernel.engine.interfaces import Decision, Verdict
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.user import UserInfo
from tests.unit.features.rights.policy_world import BOB, ask

YES = Decision(Verdict.ALLOW, "yes")
NO = Decision(Verdict.DENY, "no")


class Fixed:
    """An authorizer that always says the same, and counts how often it is asked."""

    def __init__(self, decision: Decision, listed: SubjectRulesReviewStatus | None = None) -> None:
        self._decision = decision
        self._listed = listed or SubjectRulesReviewStatus()
        self.asked = 0

    async def authorize(self, user: UserInfo, target: Target) -> Decision:
        self.asked += 1
        return self._decision

    def rules_for(self, user: UserInfo, namespace: str) -> SubjectRulesReviewStatus:
        return self._listed


def union_of(*authorizers: Fixed) -> Union:
    return Union(Member(authorizer, Tally()) for authorizer in authorizers)


def unsure(reason: str = "", error: str = "") -> Fixed:
    return Fixed(Decision(Verdict.NO_OPINION, reason, error))


@pytest.mark.parametrize(("first", "second", "expected"), [(YES, NO, YES), (NO, YES, NO)])
async def test_the_first_that_decides_is_the_last_that_is_asked(
    first: Decision, second: Decision, expected: Decision
) -> None:
    """Order counts: an earlier word is never overruled by a later one."""
    later = Fixed(second)

    decision = await union_of(unsure(), Fixed(first), later).authorize(BOB, ask("get", "pods"))

    assert decision == expected
    assert later.asked == 0


async def test_nobody_deciding_carries_every_reason_and_error() -> None:
    """The reasons of all authorizers are joined, one per line."""
    union = union_of(unsure("a"), unsure(), unsure("b", "broken"), unsure(error="late"))

    decision = await union.authorize(BOB, ask("get", "pods"))

    assert decision == Decision(Verdict.NO_OPINION, "a\nb", "broken, late")


async def test_masters_are_let_through_before_anyone_is_asked() -> None:
    """A broken or hostile policy cannot lock the operators out."""
    deny = Fixed(NO)
    admin = UserInfo(username="admin", groups=("system:masters",))

    decision = await union_of(deny).authorize(admin, ask("delete", "clusterroles"))

    assert decision == Decision(Verdict.ALLOW)
    assert deny.asked == 0


async def test_user_of_the_name_of_the_group_is_no_member() -> None:
    """The name of a user says nothing about its groups."""
    namesake = UserInfo(username="system:masters")

    decision = await union_of(Fixed(NO)).authorize(namesake, ask("delete", "clusterroles"))

    assert decision == NO


async def test_who_had_the_last_word_is_counted() -> None:
    """Only a yes or a no counts, for the authorizer that said it; replaced ones count no more."""
    unsure_tally, yes_tally, no_tally = Tally(), Tally(), Tally()
    union = Union([Member(unsure(), unsure_tally), Member(Fixed(YES), yes_tally)])

    await union.authorize(BOB, ask("get", "pods"))
    union.replace([Member(unsure(), unsure_tally), Member(Fixed(NO), no_tally)])
    await union.authorize(BOB, ask("get", "pods"))

    counts = [(tally.allowed, tally.denied) for tally in (unsure_tally, yes_tally, no_tally)]
    assert counts == [(0, 0), (1, 0), (0, 1)]


def test_lists_are_put_together() -> None:
    """Rules add up, one incomplete list makes all incomplete, errors are joined."""
    pods = ResourceRule(verbs=("get",), api_groups=("",), resources=("pods",))
    union = union_of(
        Fixed(NO, SubjectRulesReviewStatus(resource_rules=(pods,), evaluation_error="one")),
        Fixed(NO, SubjectRulesReviewStatus(incomplete=True, evaluation_error="two")),
    )

    listed = union.rules_for(BOB, "ci")

    assert listed.resource_rules == (pods,)
    assert listed.incomplete
    assert listed.evaluation_error == "[one, two]"
