"""Warnings of a dry run: the decision, and each policy that selects the request."""

from types import SimpleNamespace
from typing import Any

import pytest

from orchid.features.approval.deciding import Outcome
from orchid.features.approving.policies.policy_forecast import MOST_WARNINGS, PolicyForecast
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
)
from orchid.kernel.credentials.refusals import MalformedRequest
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import UserInfo
from tests.unit.features.asking import EVE, SIGNING_REQUESTS, a_request
from tests.unit.features.certificates.test_record_issued import TARGET

SPEC = CertificateSigningRequestSpec(request=b"pem", signer_name="a.com/b", username="forged")
NEW = CertificateSigningRequest(metadata=ObjectMeta(name="r"), spec=SPEC)


class Policies:
    """An explainer that gives one answer, and records what it was asked."""

    def __init__(self, *answers: Any, outcome: Outcome = Outcome.LEAVE) -> None:
        decision = SimpleNamespace(outcome=outcome, message="because")
        self._found: Any = SimpleNamespace(decision=decision, answers=answers)
        self.asked: list[Any] = []

    async def explain(self, asked: Any, instead: Any = None) -> Any:
        self.asked.append(asked)
        return self._found


def answer(
    name: str, *, selected: bool = True, allowed: bool = True, usable: bool = True
) -> SimpleNamespace:
    policy = SimpleNamespace(name=name)
    verdict = SimpleNamespace(policy=policy, selected=selected, allowed=allowed, message="no DNS")
    return SimpleNamespace(verdict=verdict, usable=usable)


async def forecast(policies: Any, old: Any = None, *, dry_run: bool = True) -> list[str]:
    request = a_request(TARGET, dry_run=dry_run)
    await PolicyForecast(policies).review(request, SIGNING_REQUESTS, NEW, old)
    return request.warnings


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (Outcome.APPROVE, "policies would approve this request: because"),
        (Outcome.DENY, "policies would deny this request: because"),
        (Outcome.LEAVE, "policies would leave this request undecided: because"),
    ],
)
async def test_the_decision_is_the_first_warning(outcome: Outcome, text: str) -> None:
    assert await forecast(Policies(outcome=outcome)) == [text]


async def test_each_policy_that_objects_is_named() -> None:
    """A policy that allows the request says nothing, and one that does not select it neither."""
    policies = Policies(
        answer("fine"),
        answer("strict", allowed=False),
        answer("theirs", usable=False),
        answer("other", selected=False, allowed=False, usable=False),
    )

    assert (await forecast(policies))[1:] == [
        "policy strict: no DNS",
        "policy theirs: allows it, but you may not use it",
    ]


async def test_a_response_has_a_limited_number_of_warnings() -> None:
    policies = Policies(*(answer(f"p{i}", allowed=False) for i in range(MOST_WARNINGS + 1)))

    assert len(await forecast(policies)) == MOST_WARNINGS + 1


async def test_requests_that_are_stored_get_none() -> None:
    """Also updates and deletions, of which nothing is decided."""
    policies = Policies()
    deleted = a_request(TARGET, dry_run=True)

    assert await forecast(policies, dry_run=False) == []
    assert await forecast(policies, NEW) == []
    await PolicyForecast(policies).review(deleted, SIGNING_REQUESTS, None, NEW)
    assert deleted.warnings == []
    assert policies.asked == []


async def test_the_requester_is_the_caller_whatever_the_request_says() -> None:
    policies: Any = Policies()
    impersonated = replace(a_request(TARGET, dry_run=True), real_user=UserInfo(username="root"))

    await forecast(policies)
    await PolicyForecast(policies).review(impersonated, SIGNING_REQUESTS, NEW, None)

    assert [one.user for one in policies.asked] == [EVE, EVE]
    assert [one.created_by for one in policies.asked] == ["", "root"]


async def test_a_request_that_cannot_be_read_is_refused_elsewhere() -> None:
    class Refusing:
        async def explain(self, asked: Any, instead: Any = None) -> Any:
            raise MalformedRequest("no PEM")

    assert await forecast(Refusing()) == []
