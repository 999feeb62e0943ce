"""Expressions that may be slow run in a process of their own, within limits."""

import asyncio
import datetime
from typing import Any

import pytest

from orchid.kernel.expressions.cel import Compiler, Expression, ExpressionInput, Failed
from orchid.kernel.expressions.isolated import CHEAP, Evaluator, NotEvaluated, Overrun, Result

SAMPLE = {"dnsNames": [""]}
NOW = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
BOMB = "['aaaaaaaa']" + ".map(x, x + x)" * 26 + "[0].size() > 3"
SLOW = "request.dnsNames.all(a, a.matches('^[a-z0-9]{1,63}[.]example[.]com$'))"
QUADRATIC = "request.dnsNames.all(a, request.dnsNames.map(b, b + 'x').size() > 0)"


def given(hosts: int = 2, **more: Any) -> ExpressionInput:
    names = [f"n{number}.example.com" for number in range(hosts)]
    return ExpressionInput({"request": {"dnsNames": names}, "user": more, "now": NOW})


def condition(source: str) -> Expression:
    return Compiler().signing_condition(source, SAMPLE)


@pytest.mark.parametrize(
    ("source", "hosts", "cheap"),
    [
        ("request.dnsNames.all(n, n.endsWith('.' + user.username))", 400, True),
        ("request.dnsNames.filter(n, n != 'a').all(n, n.endsWith('.com'))", 20, True),
        ("request.dnsNames.join(',').size() < 100", 200, True),
        ("request.dnsNames.exists(n, n.matches('^n[0-9]+'))", 20, True),
        ("request.dnsNames.exists(n, n.matches('^n[0-9]+'))", 900, False),
        (QUADRATIC, 5, True),
        (QUADRATIC, 900, False),
        (BOMB, 0, False),
        ("request.dnsNames.all(a, a.replace('e', '" + "x" * 900 + "') != '')", 900, False),
        ("request.dnsNames.all(n, " + "request == request && " * 20 + "true)", 100, False),
        ("request.dnsNames.map(n, n).size() > 0 && " * 20 + "true", 300, False),
        ("request.dnsNames[0].matches('^[a-z0-9]{1,63}[.]example[.]com$')", 2, True),
        ("request.dnsNames[0].matches(r'" + r"\pL" * 30 + "')", 2, False),
        ("request.dnsNames[0].matches('((.{30}){30}){9}')", 2, False),
        ("request.dnsNames[0].matches(request.dnsNames[0])", 2, False),
    ],
)
def test_cost_follows_loops_growth_and_size(source: str, hosts: int, cheap: bool) -> None:
    """Common expressions are cheap; expressions that multiply are not."""
    assert (condition(source).cost(given(hosts)) <= CHEAP) is cheap


async def result(source: str, seen: ExpressionInput, seconds: float = 60.0) -> Result:
    """The result of one expression in a process of its own."""
    (found,) = await Evaluator(SAMPLE, seconds).elsewhere([condition(source)], seen)
    return found


@pytest.mark.parametrize(("seen", "holds"), [("n1.example.com", True), ("other", False)])
async def test_a_slow_one_gives_the_same_answer_elsewhere(seen: str, holds: bool) -> None:
    """The other process sees the same values, the time too."""
    source = f"request.dnsNames.exists(n, n.matches('^{seen}$')) && now.getFullYear() == 2026"

    assert await result(source, given(900)) is holds


async def test_a_failure_comes_back_in_the_same_words() -> None:
    """Nothing of what was given is in them."""
    source = "request.dnsNames.exists(n, n.matches('^n')) && user['secret'] == 'x'"

    found = await result(source, given(900))

    assert isinstance(found, Failed)
    assert "resulted in error: no such key" in str(found)


async def test_one_process_answers_several_expressions_in_order() -> None:
    """Also where one of them fails."""
    sources = ("request.dnsNames.size() == 2", "user['secret'] == 'x'", "1 > 2")

    answers = await Evaluator(SAMPLE).elsewhere([*map(condition, sources)], given())

    assert [type(one) for one in answers] == [bool, Failed, bool]
    assert (answers[0], answers[2]) == (True, False)


async def test_a_hostile_expression_is_ended() -> None:
    """Memory and steps have an end, and nobody else waits meanwhile."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.001)

    ticking = asyncio.create_task(tick())

    with pytest.raises(Overrun, match="processor time or 1 GiB of memory"):
        await result(BOMB, given(900))
    steps = await result(QUADRATIC, given(900))

    ticking.cancel()
    assert "too many steps" in str(steps)
    assert ticks > 10


async def test_processor_time_is_limited_for_all_expressions_together() -> None:
    """Each of them alone would be within the limit."""
    one = condition(SLOW)
    evaluator = Evaluator(SAMPLE, seconds=120.0)

    assert await evaluator.elsewhere([one], given(900)) == [True]
    with pytest.raises(Overrun, match="2 seconds of processor time"):
        await evaluator.elsewhere([one] * 400, given(900))


async def test_a_process_that_does_not_answer_in_time_is_killed() -> None:
    """That says nothing about the expression: the machine may be busy."""
    with pytest.raises(NotEvaluated, match="not evaluated within"):
        await result(BOMB, given(), seconds=0.001)


def test_compiling_never_runs_what_is_not_cheap() -> None:
    """A hostile expression does its harm neither when it is written nor when it is read."""
    assert condition(BOMB).is_condition
