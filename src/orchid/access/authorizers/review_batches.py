"""ReviewBatches: a caller who may create TokenReviews may create a TokenReviewBatch.

A batch returns nothing that single reviews would not return, so existing roles are enough for it.
Every other request is no opinion. The authorizer is asked after RBAC, where that is configured.
"""

from orchid.access.authorizers.rbac import RBAC
from orchid.engine.interfaces import Authorizer, Decision, Verdict
from orchid.engine.request import Target
from orchid.kinds.self_subject_rules_review import RuleLister, SubjectRulesReviewStatus
from orchid.wire.naming import Naming
from orchid.wire.user import UserInfo

NO_OPINION = Decision(Verdict.NO_OPINION)


class ReviewBatches:
    def __init__(self, names: Naming, rbac: RBAC) -> None:
        self._rbac = rbac
        self._batch = "create", names.identity, "tokenreviewbatches", ""
        self._review = Target(
            verb="create",
            is_resource=True,
            group=names.authentication,
            version="v1",
            resource="tokenreviews",
        )

    async def authorize(self, user: UserInfo, target: Target) -> Decision:
        wanted = target.verb, target.group, target.resource, target.subresource
        if wanted != self._batch:
            return NO_OPINION
        return await self._rbac.authorize(user, self._review)

    def rules_for(self, user: UserInfo, namespace: str) -> SubjectRulesReviewStatus:
        """Nothing: the rule for TokenReviews is listed already."""
        return SubjectRulesReviewStatus()


_: type[Authorizer] = ReviewBatches
__: type[RuleLister] = ReviewBatches
