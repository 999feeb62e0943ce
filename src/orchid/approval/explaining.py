"""Why a request would be approved, denied or left: every policy with every check.

Start with `explain`. It judges by the same code as the controller that decides, but asks every
policy, also those that do not select the request. `Explainer` is what the review and the dry run
are handed; issuance/policy_explainer.py is it.
"""

from collections.abc import Iterable
from typing import Protocol

import msgspec

from orchid.approval.case import Case
from orchid.approval.compiled import CompiledPolicy, JudgedPolicy
from orchid.approval.deciding import MayUse, PolicyDecision, decide, judge_all
from orchid.approval.terms import ApprovalPolicySpec
from orchid.expressions.isolated import Evaluator
from orchid.wire.user import UserInfo


class RequestedTerms(msgspec.Struct, frozen=True):
    """What somebody asks a signer for."""

    request: bytes
    signer_name: str
    usages: tuple[str, ...]
    expiration_seconds: int | None
    user: UserInfo
    created_by: str = ""  # the impersonator of the user


class PolicyAnswer(msgspec.Struct, frozen=True):
    """What one policy says, and whether the requester may use it; asked if it selects the case."""

    verdict: JudgedPolicy
    usable: bool


class Explanation(msgspec.Struct, frozen=True):
    """What would become of a request, and what each policy says of it."""

    decision: PolicyDecision
    answers: tuple[PolicyAnswer, ...]


class Explainer(Protocol):
    async def explain(
        self, asked: RequestedTerms | Case, instead: ApprovalPolicySpec | None = None
    ) -> Explanation:
        """Explain by all stored policies, or by one that is given instead; raises Refusal."""

    async def stored_request(self, name: str, caller: UserInfo) -> RequestedTerms:
        """What a stored request asks for; raises NotFound, or Forbidden if one may not see it."""

    async def issued_certificate(self, name: str, caller: UserInfo) -> Case:
        """What a certificate of the inventory was issued for; raises likewise, and Refusal."""


async def explain(
    case: Case, policies: Iterable[CompiledPolicy], may_use: MayUse, evaluator: Evaluator
) -> Explanation:
    verdicts = await judge_all(case, policies, evaluator)
    usable = {
        verdict.policy.name: await may_use(verdict.policy.name)
        for verdict in verdicts
        if verdict.selected
    }

    async def asked(name: str) -> bool:
        return usable[name]

    decision = await decide(verdicts, asked)
    answers = (PolicyAnswer(one, usable.get(one.policy.name, False)) for one in verdicts)
    return Explanation(decision, tuple(answers))
