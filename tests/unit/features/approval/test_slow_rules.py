"""Slow rules: evaluated last, for a limited number of policies, and not again after an overrun."""

import asyncio
from collections.abc import Sequence

from orchid.features.approval.case import REQUEST_SAMPLE
from orchid.features.approval.compiled import NOT_EVALUATED
from orchid.features.approval.deciding import MOST_SLOW, judge_all
from orchid.kernel.expressions.cel import Expression, ExpressionInput
from orchid.kernel.expressions.isolated import Evaluator, NotEvaluated, Overrun, Result
from tests.unit.features.approval.cases import case, policy

HOST = "a.web.example.com"
CHEAP, FALSE = {"expression": "1 < 2"}, {"expression": "1 > 2"}
SLOW = {"expression": "['aaaaaaaa']" + ".map(x, x + x)" * 26 + "[0].size() > 3"}


class Elsewhere(Evaluator):
    """Counts what would go to a process, and answers or fails as a test wants."""

    def __init__(self, problem: Exception | None = None) -> None:
        super().__init__(REQUEST_SAMPLE)
        self.asked: list[int] = []
        self._problem = problem

    async def elsewhere(
        self, expressions: Sequence[Expression], given: ExpressionInput
    ) -> list[Result]:
        self.asked.append(len(expressions))
        await asyncio.sleep(0)
        if self._problem:
            raise self._problem
        return [True] * len(expressions)


async def test_all_slow_rules_of_a_policy_are_evaluated_together() -> None:
    """The checks are in the order of the rules."""
    evaluator = Elsewhere()

    verdict = await policy(rules=[SLOW, CHEAP, SLOW]).judge(case(HOST), evaluator)

    assert verdict.allowed
    assert evaluator.asked == [2]
    assert [one.field for one in verdict.checks][-3:] == ["rules[0]", "rules[1]", "rules[2]"]


async def test_slow_rules_are_skipped_where_a_cheap_check_refuses() -> None:
    """Neither a pattern nor a cheap rule needs a process."""
    evaluator = Elsewhere()

    by_rule = await policy(rules=[SLOW, FALSE]).judge(case(HOST), evaluator)
    by_name = await policy(rules=[SLOW]).judge(case("evil.com"), evaluator)

    assert not by_rule.allowed
    assert not by_name.allowed
    assert evaluator.asked == []


async def test_without_time_for_slow_rules_there_is_no_verdict() -> None:
    """It is neither allowed nor refused."""
    verdict = await policy(rules=[SLOW]).judge(case(HOST), Elsewhere(), slowly=False)

    assert (verdict.allowed, verdict.unfinished) == (False, True)
    assert verdict.problem == NOT_EVALUATED


async def test_a_policy_that_exceeded_its_limits_is_not_evaluated_again() -> None:
    """Nor are the cases that waited for it meanwhile."""
    evaluator = Elsewhere(Overrun("it took too long"))
    slow = policy(rules=[SLOW])

    verdicts = await asyncio.gather(*(slow.judge(case(HOST), evaluator) for _ in range(3)))
    later = await slow.judge(case(HOST), evaluator)

    assert {one.problem for one in (*verdicts, later)} == {"it took too long"}
    assert slow.exceeded == "it took too long"
    assert evaluator.asked == [1]


async def test_a_busy_machine_says_nothing_about_a_policy() -> None:
    """It is evaluated again the next time."""
    evaluator = Elsewhere(NotEvaluated("not in time"))
    slow = policy(rules=[SLOW])

    verdicts = [await slow.judge(case(HOST), evaluator) for _ in range(2)]

    assert [one.problem for one in verdicts] == ["not in time"] * 2
    assert slow.exceeded == slow.problem == ""
    assert evaluator.asked == [1, 1]


async def test_a_request_is_evaluated_by_a_limited_number_of_slow_policies() -> None:
    """The others have no verdict; policies without slow rules always have one."""
    evaluator = Elsewhere()
    policies = [policy(f"slow-{number}", rules=[SLOW]) for number in range(MOST_SLOW + 2)]

    verdicts = await judge_all(case(HOST), [*policies, policy("cheap")], evaluator)

    assert len(evaluator.asked) == MOST_SLOW
    assert [one.unfinished for one in verdicts] == [False] * MOST_SLOW + [True] * 2 + [False]
    assert verdicts[-1].allowed
