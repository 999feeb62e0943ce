"""AlwaysAllow: no authorization at all. For experiments; never for a server that others can
reach.
"""

from orchid.engine.interfaces import Authorizer, Decision, Verdict
from orchid.engine.request import Target
from orchid.kinds.self_subject_rules_review import (
    NonResourceRule,
    ResourceRule,
    RuleLister,
    SubjectRulesReviewStatus,
)
from orchid.wire.user import UserInfo

_ALLOWED = Decision(Verdict.ALLOW)
_EVERYTHING = SubjectRulesReviewStatus(
    resource_rules=(ResourceRule(verbs=("*",), api_groups=("*",), resources=("*",)),),
    non_resource_rules=(NonResourceRule(verbs=("*",), non_resource_urls=("*",)),),
)


class AlwaysAllow:
    async def authorize(self, user: UserInfo, target: Target) -> Decision:
        return _ALLOWED

    def rules_for(self, user: UserInfo, namespace: str) -> SubjectRulesReviewStatus:
        return _EVERYTHING


_: type[Authorizer] = AlwaysAllow
__: type[RuleLister] = AlwaysAllow
