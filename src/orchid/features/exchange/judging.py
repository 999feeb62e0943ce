"""Evaluation of a policy for a token: claim by claim, then rule by rule.

`PolicyJudge.refusal` decides about an exchange; `PolicyJudge.judge` returns an `ExchangeVerdict`
with every check, for explanations. Rules are evaluated only if all claims are equal. All rules of a
policy together have a limit of cost for one token, so that they can run on the event loop;
compiling them runs in a thread.
"""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from orchid.features.exchange.kinds.token_exchange_policy import MOST_COST, claim_text
from orchid.features.exchange.policy_index import IndexedPolicy
from orchid.kernel.base.scheduling.offload import ALWAYS, Offload
from orchid.kernel.expressions.cel import (
    CLAIMS,
    NOW,
    Compiler,
    Expression,
    ExpressionInput,
    ExpressionUnusable,
    Failed,
    LibraryMissing,
)

MOST_COMPILED: Final = 1024  # policies
LONGEST_SHOWN: Final = 1024
NOT_READY: Final = "the policy is not Ready"
TOO_EXPENSIVE: Final = "its rules are too expensive to evaluate for this token"


class ExchangeCheck(msgspec.Struct, frozen=True):
    """A single check: the field of the policy, what it wants, what the token has."""

    field: str
    wanted: str
    seen: str
    allowed: bool
    message: str = ""


class ExchangeVerdict(msgspec.Struct, frozen=True):
    """The result of one policy."""

    policy: IndexedPolicy
    checks: tuple[ExchangeCheck, ...]


class PolicyJudge:
    """Evaluates policies; compiled rules are cached."""

    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self._compiler = Compiler()
        self._compiled: dict[tuple[str, int], tuple[Expression, ...] | str] = {}

    async def refusal(self, policy: IndexedPolicy, claims: Mapping[str, Any], now: datetime) -> str:
        """The first check that fails, for the audit record; "" if the policy allows the token."""
        for name, expected in policy.spec.claims.items():
            if not _is_equal(claims.get(name), expected):
                return f"{policy}: claims[{name}]"
        if not policy.is_ready:
            return f"{policy}: status"
        if policy.spec.rules:
            for check in await self._rules(policy, ExpressionInput({CLAIMS: claims, NOW: now})):
                if not check.allowed:
                    return f"{policy}: {check.field}"
        return ""

    async def judge(
        self, policy: IndexedPolicy, claims: Mapping[str, Any], now: datetime
    ) -> ExchangeVerdict:
        checks = [_claim_check(name, text, claims) for name, text in policy.spec.claims.items()]
        if not policy.is_ready:
            checks.append(ExchangeCheck("status", "Ready", "", False, NOT_READY))
        if policy.spec.rules and all(check.allowed for check in checks):
            checks += await self._rules(policy, ExpressionInput({CLAIMS: claims, NOW: now}))
        return ExchangeVerdict(policy, tuple(checks))

    async def _rules(
        self, policy: IndexedPolicy, variables: ExpressionInput
    ) -> list[ExchangeCheck]:
        compiled = await self._expressions(policy)
        if isinstance(compiled, str):
            return [ExchangeCheck("rules", "", "", False, compiled)]
        try:
            if sum(compiled_rule.cost(variables) for compiled_rule in compiled) > MOST_COST:
                return [ExchangeCheck("rules", "", "", False, TOO_EXPENSIVE)]
        except Failed as failed:
            return [ExchangeCheck("rules", "", "", False, str(failed))]
        checks = []
        for index, (rule, expression) in enumerate(zip(policy.spec.rules, compiled, strict=True)):
            await asyncio.sleep(0)  # a policy may have many rules
            holds, message = _evaluated(expression, variables)
            text = "" if holds else rule.message or message
            checks.append(ExchangeCheck(f"rules[{index}]", rule.expression, "", holds, text))
        return checks

    async def _expressions(self, policy: IndexedPolicy) -> tuple[Expression, ...] | str:
        """The compiled rules, or why they cannot be used."""
        key = policy.uid, policy.generation
        expressions = self._compiled.get(key)
        if expressions is None:
            expressions = await self._offload(ALWAYS, lambda: self._compile(policy))
            if len(self._compiled) >= MOST_COMPILED:
                del self._compiled[next(iter(self._compiled))]
            self._compiled[key] = expressions
        return expressions

    def _compile(self, policy: IndexedPolicy) -> tuple[Expression, ...] | str:
        try:
            return tuple(
                self._compiler.exchange_condition(rule.expression) for rule in policy.spec.rules
            )
        except (ExpressionUnusable, LibraryMissing) as unusable:
            return f"the policy cannot be used: {unusable}"


def differences(policy: IndexedPolicy, claims: Mapping[str, Any]) -> int:
    """How many claims are not as the policy wants them."""
    wanted = policy.spec.claims.items()
    return sum(not _is_equal(claims.get(name), text) for name, text in wanted)


def _claim_check(name: str, expected: str, claims: Mapping[str, Any]) -> ExchangeCheck:
    if name not in claims:
        return ExchangeCheck(f"claims[{name}]", expected, "", False, "the token has no such claim")
    seen = claim_text(claims[name])
    if seen is None:
        text = "the claim is not a text, a number or a boolean"
        return ExchangeCheck(f"claims[{name}]", expected, "", False, text)
    is_equal = _is_equal(claims[name], expected)
    text = "" if is_equal else "the claim has another value"
    return ExchangeCheck(f"claims[{name}]", expected, seen[:LONGEST_SHOWN], is_equal, text)


def _is_equal(value: Any, wanted: str) -> bool:
    """Whether a claim has a value, as text."""
    return value == wanted if isinstance(value, str) else claim_text(value) == wanted


def _evaluated(expression: Expression, given: ExpressionInput) -> tuple[bool, str]:
    try:
        return expression.holds(given) is True, "the rule does not hold"
    except Failed as failed:
        return False, str(failed)
