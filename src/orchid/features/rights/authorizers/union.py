"""Union: the configured authorizers in order, after the group that may do everything.

The first to allow or deny decides. If none does, the request is refused with all reasons and
errors. Members of `system:masters` are allowed first, so that a broken policy can always be fixed.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from orchid.features.rights.authorizers.metrics import Tally
from orchid.features.rights.kinds.self_subject_rules_review import (
    RuleLister,
    SubjectRulesReviewStatus,
)
from orchid.kernel.access.denial import joined
from orchid.kernel.engine.interfaces import Authorizer, Decision, Verdict
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.user import MASTERS, UserInfo

_ALLOWED = Decision(Verdict.ALLOW)
_UNDECIDED = Decision(Verdict.NO_OPINION)
_ALLOW, _NO_OPINION = (
    Verdict.ALLOW,
    Verdict.NO_OPINION,
)  # looking up an enum member costs as much as the check


class ListingAuthorizer(Authorizer, RuleLister, Protocol):
    """An authorizer that can also list its rules, or report that it cannot."""


class Member(NamedTuple):
    """An authorizer and its counters."""

    authorizer: ListingAuthorizer
    tally: Tally


class Union:
    def __init__(self, members: Iterable[Member] = ()) -> None:
        self.replace(members)

    def replace(self, members: Iterable[Member]) -> None:
        """Use other authorizers from the next request on."""
        members = tuple(members)
        self._authorizers = tuple(member.authorizer for member in members)
        self._questions = tuple((member.authorizer.authorize, member.tally) for member in members)

    async def authorize(self, user: UserInfo, target: Target) -> Decision:
        if MASTERS in user.groups:
            return _ALLOWED
        undecided = _UNDECIDED
        for authorize, tally in self._questions:
            decision = await authorize(user, target)
            verdict = decision.verdict
            if verdict is not _NO_OPINION:
                if verdict is _ALLOW:
                    tally.allowed += 1
                else:
                    tally.denied += 1
                return decision
            if decision.reason or decision.error:
                undecided = both(undecided, decision)
        return undecided

    def rules_for(self, user: UserInfo, namespace: str) -> SubjectRulesReviewStatus:
        """The rules of all authorizers; those of `system:masters` are only in RBAC."""
        lists = [authorizer.rules_for(user, namespace) for authorizer in self._authorizers]
        errors = [listed.evaluation_error for listed in lists if listed.evaluation_error]
        return SubjectRulesReviewStatus(
            resource_rules=tuple(r for listed in lists for r in listed.resource_rules),
            non_resource_rules=tuple(r for listed in lists for r in listed.non_resource_rules),
            incomplete=any(listed.incomplete for listed in lists),
            evaluation_error=joined(errors),
        )


def both(one: Decision, other: Decision) -> Decision:
    """Two undecided results as one."""
    reasons = [text for text in (one.reason, other.reason) if text]
    errors = [text for text in (one.error, other.error) if text]
    return Decision(Verdict.NO_OPINION, "\n".join(reasons), ", ".join(errors))


_: type[Authorizer] = Union
