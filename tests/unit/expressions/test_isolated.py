"""Expressions that may be slow run in a process of their own, within limits."""

import asyncio
import datetime
from typing import Any

import pytest

from orchid.expressions import isolated
from orchid.expressions.cel import Compiler, Expression, ExpressionInput, Failed
from orchid.expressions.isolated import CHEAP, Evaluator, Overrun
from tests.extras import needs_cel

SAMPLE = {"dnsNames": [""]}
NOW = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
BOMB = "['aaaaaaaa']" + ".map(x, x + x)" * 26 + "[0].size() > 3"
QUADRATIC = "request.dnsNames.all(a, request.dnsNames.map(b, b + 'x').size() > 0)"


def given(hosts: int = 2, **more: Any) -> ExpressionInput:
    names = [f"n{number}.example.com" for number in range(hosts)]
    return ExpressionInput({"request": {"dnsNames": names}, "user": more, "now": NOW})


def condition(source: str) -> Expression:
    needs_cel()
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
    """What is usual is cheap; what multiplies is not."""
    assert (condition(source).cost(given(hosts)) <= CHEAP) is cheap


async def test_a_cheap_expression_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is evaluated where it is."""
    monkeypatch.setattr(isolated, "_ask", lambda *_: pytest.fail("a process was started"))

    assert await Evaluator(SAMPLE).holds(condition("request.dnsNames.size() == 2"), given())


@pytest.mark.parametrize(("seen", "holds"), [("n1.example.com", True), ("other", False)])
async def test_a_slow_one_gives_the_same_answer_elsewhere(seen: str, holds: bool) -> None:
    """The other process sees the same values, the time too."""
    source = f"request.dnsNames.exists(n, n.matches('^{seen}$')) && now.getFullYear() == 2026"
    evaluator = Evaluator(SAMPLE, seconds=60.0)

    assert await evaluator.holds(condition(source), given(900)) is holds


async def test_a_failure_comes_back_in_the_same_words() -> None:
    """Nothing of what was given is in them."""
    source = "request.dnsNames.exists(n, n.matches('^n')) && user['secret'] == 'x'"

    with pytest.raises(Failed, match=r"resulted in error: no such key"):
        await Evaluator(SAMPLE, seconds=60.0).holds(condition(source), given(900))


@pytest.mark.parametrize(("source", "text"), [(BOMB, "memory"), (QUADRATIC, "too many steps")])
async def test_a_hostile_expression_is_ended(source: str, text: str) -> None:
    """Memory and steps have an end, and nobody else waits meanwhile."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.001)

    expression = condition(source)
    ticking = asyncio.create_task(tick())

    with pytest.raises(Failed, match=text):
        await Evaluator(SAMPLE, seconds=60.0).holds(expression, given(900))

    ticking.cancel()
    assert ticks > 10


async def test_time_has_an_end() -> None:
    """A process that does not answer in time is killed."""
    with pytest.raises(Overrun, match="took too much time or memory"):
        await Evaluator(SAMPLE, seconds=0.001).holds(condition(BOMB), given())


def test_compiling_never_runs_what_is_not_cheap() -> None:
    """A hostile expression does its harm neither when it is written nor when it is read."""
    assert condition(BOMB).is_condition
