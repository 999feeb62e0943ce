"""From what policies say to what becomes of a request."""

from typing import Any

import pytest

from orchid.features.approval.case import REQUEST_SAMPLE
from orchid.features.approval.compiled import JudgedPolicy
from orchid.features.approval.deciding import (
    BY_POLICY,
    LONGEST_MESSAGE,
    Outcome,
    PolicyDecision,
    approving_policy,
    decide,
)
from orchid.kernel.expressions.isolated import Evaluator
from orchid.kernel.wire.text import MOST_SENTENCES
from tests.unit.features.approval.cases import case, policy

GOOD, BAD = "a.web.example.com", "evil.com"


async def verdict(name: str, host: str, **given: Any) -> JudgedPolicy:
    return await policy(name, **given).judge(case(host), Evaluator(REQUEST_SAMPLE))


async def decided(
    *verdicts: JudgedPolicy, usable: tuple[str, ...] = ("a", "b", "c")
) -> PolicyDecision:
    async def may_use(name: str) -> bool:
        return name in usable

    return await decide(verdicts, may_use)


async def test_one_policy_that_allows_is_enough() -> None:
    """The message names it and its revision, whatever others say."""
    decision = await decided(
        await verdict("a", GOOD, allows={}, otherwise="deny"), await verdict("b", GOOD)
    )

    assert decision.outcome is Outcome.APPROVE
    assert decision.message == "Approved by ApprovalPolicy b, revision 7."


async def test_an_approval_names_its_policy() -> None:
    """The name is found again in what was said, and in nothing else."""
    decision = await decided(await verdict("b", GOOD))

    assert approving_policy(BY_POLICY, decision.message) == ("b", "7")
    assert approving_policy("ByTest", decision.message) is None
    assert approving_policy(BY_POLICY, "looks good") is None


async def test_allowed_by_none_it_is_left() -> None:
    """A person may still decide."""
    decision = await decided(await verdict("a", BAD))

    assert decision.outcome is Outcome.LEAVE
    assert 'a: dnsNames does not allow "evil.com"' in decision.message


async def test_allowed_by_none_it_is_denied_if_one_says_so() -> None:
    """With what each of them has against it."""
    decision = await decided(
        await verdict("a", BAD), await verdict("b", BAD, otherwise="deny", allows={})
    )

    assert decision.outcome is Outcome.DENY
    assert decision.message.startswith("No policy allows this request. a: dnsNames does not")
    assert "b: dnsNames does not allow" in decision.message


async def test_selected_by_none_it_is_left() -> None:
    """A policy for others denies nothing."""
    decision = await decided(await verdict("a", BAD, signerNames=["other.com/*"], otherwise="deny"))

    assert decision.outcome is Outcome.LEAVE
    assert not decision.selected


async def test_a_policy_that_may_not_be_used_neither_approves_nor_denies() -> None:
    """It can be written before anybody may use it."""
    allows = await decided(await verdict("a", GOOD), usable=())
    denies = await decided(await verdict("a", BAD, otherwise="deny"), usable=())

    assert (allows.outcome, allows.may_change) == (Outcome.LEAVE, True)
    assert denies.outcome is Outcome.LEAVE


@pytest.mark.parametrize(
    ("usable", "outcome"), [(("a", "b"), Outcome.LEAVE), (("b",), Outcome.DENY)]
)
async def test_nothing_is_denied_while_a_policy_is_not_ready(
    usable: tuple[str, ...], outcome: Outcome
) -> None:
    """It might allow the request, if its requester may use it."""
    decision = await decided(
        await verdict("a", BAD, problem="the policy is not Ready"),
        await verdict("b", BAD, otherwise="deny"),
        usable=usable,
    )

    assert decision.outcome is outcome


async def test_a_policy_that_is_not_ready_does_not_keep_others_from_approving() -> None:
    """One that allows is enough."""
    decision = await decided(
        await verdict("a", GOOD, problem="the policy is not Ready"), await verdict("b", GOOD)
    )

    assert decision.outcome is Outcome.APPROVE


async def test_policies_with_one_reason_share_one_text() -> None:
    """The reason once, and the first policies that have it."""
    many = [await verdict(f"p{number}", BAD) for number in range(20)]

    decision = await decided(*many, await verdict("other", "evil.org"), usable=())

    assert decision.message.count('dnsNames does not allow "evil.com"') == 1
    assert "p6, p7, and 12 more: dnsNames" in decision.message
    assert 'other: dnsNames does not allow "evil.org".' in decision.message


async def test_a_policy_names_its_first_reasons_and_counts_the_others() -> None:
    """A request may have a thousand names."""
    judged = await policy().judge(
        case(*(f"{number}.evil.com" for number in range(100))), Evaluator(REQUEST_SAMPLE)
    )

    assert judged.message.count("dnsNames does not allow") == MOST_SENTENCES
    assert judged.message.endswith("; and 92 more")


async def test_a_message_does_not_grow_without_end() -> None:
    """A condition is no place for a thousand reasons."""
    many = [
        await verdict(f"p{number}", f"evil-{number}.com", otherwise="deny") for number in range(200)
    ]

    decision = await decided(*many, usable=tuple(f"p{number}" for number in range(200)))

    assert decision.outcome is Outcome.DENY
    assert len(decision.message) == LONGEST_MESSAGE
