"""The decision on a request, from the results of policies.

Start with `judge_all`, then `decide`. A policy that allows the request, and that its requester may
use, approves it. If policies select it and none allows it, it is denied if one of them says so; but
not while one of them has no result. Whether a requester may use a policy is only checked if it
matters.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import StrEnum

import msgspec

from orchid.features.approval.case import Case
from orchid.features.approval.compiled import CompiledPolicy, JudgedPolicy
from orchid.kernel.expressions.isolated import Evaluator
from orchid.kernel.wire.text import first_few

MayUse = Callable[[str], Awaitable[bool]]  # whether the requester may use the policy of this name
LONGEST_MESSAGE = 4096
MOST_SLOW = 4  # policies with slow rules that are evaluated for one request
BY_POLICY = "ApprovalPolicy"  # the reason in the condition
APPROVING_ACCOUNT = "csrapproving"  # the service account of the deciding controller
_APPROVED = "Approved by ApprovalPolicy "
_REVISION = ", revision "


class Outcome(StrEnum):
    APPROVE = "Approve"
    DENY = "Deny"
    LEAVE = "Leave"


class PolicyDecision(msgspec.Struct, frozen=True):
    """The outcome of a request, the reason, and the approving policy if there is one."""

    outcome: Outcome
    message: str
    by: JudgedPolicy | None = None
    selected: bool = True  # whether any policy selects it
    may_change: bool = False  # the reason may disappear without a change of a policy


async def judge_all(
    case: Case, policies: Iterable[CompiledPolicy], evaluator: Evaluator, slow: int = MOST_SLOW
) -> list[JudgedPolicy]:
    """The results of policies; of those with slow rules, the first `slow` are evaluated."""
    verdicts = []
    for policy in policies:
        verdict = await policy.judge(case, evaluator, slowly=False)
        if verdict.unfinished and slow:
            verdict = await policy.judge(case, evaluator)
            slow -= 1
        verdicts.append(verdict)
    return verdicts


async def decide(verdicts: Sequence[JudgedPolicy], may_use: MayUse) -> PolicyDecision:
    selected = [verdict for verdict in verdicts if verdict.selected]
    if not selected:
        return PolicyDecision(Outcome.LEAVE, "No policy selects this request.", selected=False)
    allowing = [verdict for verdict in selected if verdict.allowed]
    for verdict in allowing:
        policy = verdict.policy
        if await may_use(policy.name):
            text = f"{_APPROVED}{policy.name}{_REVISION}{policy.revision}."
            return PolicyDecision(Outcome.APPROVE, text, verdict)
    if await _is_denied(selected, may_use):
        usable = [verdict for verdict in selected if await may_use(verdict.policy.name)]
        return PolicyDecision(Outcome.DENY, _joined(usable))
    if allowing:
        text = (
            "A policy allows this request, but its requester may not use, or wrote, that policy: "
        )
        text += ", ".join(first_few([verdict.policy.name for verdict in allowing])) + "."
        return PolicyDecision(Outcome.LEAVE, text, may_change=True)
    unsettled = any(verdict.problem for verdict in selected)
    return PolicyDecision(Outcome.LEAVE, _joined(selected), may_change=unsettled)


def approving_policy(reason: str, message: str) -> tuple[str, str] | None:
    """Name and revision of the policy in the reason and message of an approval, or None."""
    if reason != BY_POLICY or not message.startswith(_APPROVED):
        return None
    name, _, revision = message.removeprefix(_APPROVED).partition(_REVISION)
    return name, revision.removesuffix(".")


async def _is_denied(selected: Sequence[JudgedPolicy], may_use: MayUse) -> bool:
    """Whether a usable policy denies, and each usable policy has a result."""
    if not any(verdict.policy.denies for verdict in selected):
        return False
    usable = [verdict for verdict in selected if await may_use(verdict.policy.name)]
    denied = any(verdict.policy.denies for verdict in usable)
    return denied and not any(verdict.problem for verdict in usable)


def _joined(verdicts: Sequence[JudgedPolicy]) -> str:
    """The reasons of all policies, each reason once with the policies that have it."""
    policies: dict[str, list[str]] = {}
    for verdict in verdicts:
        policies.setdefault(verdict.message, []).append(verdict.policy.name)
    reasons = (f"{', '.join(first_few(names))}: {why}." for why, names in policies.items())
    text = f"No policy allows this request. {' '.join(reasons)}"
    return text if len(text) <= LONGEST_MESSAGE else text[: LONGEST_MESSAGE - 1] + "…"
