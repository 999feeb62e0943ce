"""From what each policy says to what becomes of a request.

Start with `decide`. One policy that allows the request, and that its requester may use, approves
it. Selected and allowed by none, it is denied if one of them says so; but not while one of them has
no verdict. Whether a requester may use a policy is asked of others, and only where it matters.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchid.approval.compiled import Verdict

MayUse = Callable[[str], Awaitable[bool]]  # whether the requester may use the policy of this name
LONGEST_MESSAGE = 4096


class Outcome(StrEnum):
    APPROVE = "Approve"
    DENY = "Deny"
    LEAVE = "Leave"


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a request, why, and by which policy if it is approved."""

    outcome: Outcome
    message: str
    by: Verdict | None = None
    not_usable: bool = False  # a policy would allow it if its requester might use that


async def decide(verdicts: Sequence[Verdict], may_use: MayUse) -> Decision:
    selected = [verdict for verdict in verdicts if verdict.selected]
    allowing = [verdict for verdict in selected if verdict.allowed]
    for verdict in allowing:
        policy = verdict.policy
        if await may_use(policy.name):
            text = f"Approved by ApprovalPolicy {policy.name}, revision {policy.revision}."
            return Decision(Outcome.APPROVE, text, verdict)
    waits = bool(allowing)
    if not any(verdict.policy.denies or verdict.problem for verdict in selected):
        return Decision(Outcome.LEAVE, _why_left(selected, waits), not_usable=waits)
    usable = [verdict for verdict in selected if await may_use(verdict.policy.name)]
    unsettled = any(verdict.problem for verdict in usable)
    if unsettled or not any(verdict.policy.denies for verdict in usable):
        return Decision(Outcome.LEAVE, _why_left(selected, waits), not_usable=waits)
    return Decision(Outcome.DENY, _joined("No policy allows this request.", usable))


def _why_left(selected: Sequence[Verdict], waits: bool) -> str:
    if waits:
        return "A policy allows this request, but its requester may not use that policy."
    return (
        _joined("No policy allows this request.", selected)
        if selected
        else ("No policy selects this request.")
    )


def _joined(first: str, verdicts: Sequence[Verdict]) -> str:
    told = " ".join(f"{verdict.policy.name}: {verdict.message}." for verdict in verdicts)
    text = f"{first} {told}"
    return text if len(text) <= LONGEST_MESSAGE else text[: LONGEST_MESSAGE - 1] + "…"
