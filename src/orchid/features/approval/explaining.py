"""Explanation of a decision: every policy with every check.

Start with `explain`. It uses the code of the deciding controller, but evaluates every policy, also
those that do not select the request. The review and the dry run use it through `Explainer`,
implemented in features/approving/policy_explainer.py.
"""

from collections.abc import Iterable
from typing import Protocol

import msgspec

from orchid.features.approval.case import Case
from orchid.features.approval.compiled import CompiledPolicy, JudgedPolicy
from orchid.features.approval.deciding import MayUse, PolicyDecision, decide, judge_all
from orchid.features.approval.terms import ApprovalPolicySpec
from orchid.kernel.expressions.isolated import Evaluator
from orchid.kernel.wire.user import UserInfo


class RequestedTerms(msgspec.Struct, frozen=True):
    """The attributes of a request to a signer."""

    request: bytes
    signer_name: str
    usages: tuple[str, ...]
    expiration_seconds: int | None
    user: UserInfo
    created_by: str = ""  # the impersonator of the user


class PolicyAnswer(msgspec.Struct, frozen=True):
    """The result of one policy, and whether the requester may use it; checked if it selects."""

    verdict: JudgedPolicy
    usable: bool


class Explanation(msgspec.Struct, frozen=True):
    """The evaluated case, the outcome and the result of each policy."""

    case: Case
    decision: PolicyDecision
    answers: tuple[PolicyAnswer, ...]


class Explainer(Protocol):
    async def explain(
        self, asked: RequestedTerms | Case, instead: ApprovalPolicySpec | None = None
    ) -> Explanation:
        """Explain with all stored policies, or with one given policy; raises Refusal."""

    async def stored_request(self, name: str, caller: UserInfo) -> RequestedTerms:
        """The attributes of a stored request; raises NotFound, or Forbidden for users without
        access.
        """

    async def issued_certificate(self, name: str, caller: UserInfo) -> Case:
        """The case of a certificate in the inventory; raises the same, and Refusal."""


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
    answers = (PolicyAnswer(judged, usable.get(judged.policy.name, False)) for judged in verdicts)
    return Explanation(case, decision, tuple(answers))
