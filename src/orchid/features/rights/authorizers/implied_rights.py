"""ImpliedRights: rights that follow from others, so that existing roles are enough.

A caller who may create TokenReviews may create a TokenReviewBatch, and one who may list the
inventory may search it: neither returns anything that the other right would not. Every other
request is no opinion. The authorizer is asked after RBAC, where that is configured.
"""

from orchid.features.rights.authorizers.rbac import RBAC
from orchid.features.rights.kinds.self_subject_rules_review import (
    RuleLister,
    SubjectRulesReviewStatus,
)
from orchid.kernel.engine.interfaces import Authorizer, Decision, Verdict
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.user import UserInfo

NO_OPINION = Decision(Verdict.NO_OPINION)


class ImpliedRights:
    def __init__(self, naming: Naming, rbac: RBAC) -> None:
        self._rbac = rbac
        self._group = naming.identity
        self._implied_by = {  # creating one of these resources, by a request that is allowed
            "tokenreviewbatches": Target(
                verb="create",
                is_resource=True,
                group=naming.authentication,
                version="v1",
                resource="tokenreviews",
            ),
            "certificatesearches": Target(
                verb="list",
                is_resource=True,
                group=naming.identity,
                version="v1alpha1",
                resource="issuedcertificates",
            ),
        }

    async def authorize(self, user: UserInfo, target: Target) -> Decision:
        if (target.verb, target.group, target.subresource) != ("create", self._group, ""):
            return NO_OPINION
        other = self._implied_by.get(target.resource)
        return NO_OPINION if other is None else await self._rbac.authorize(user, other)

    def rules_for(self, user: UserInfo, namespace: str) -> SubjectRulesReviewStatus:
        """Nothing: the rule that implies it is listed already."""
        return SubjectRulesReviewStatus()


_: type[Authorizer] = ImpliedRights
__: type[RuleLister] = ImpliedRights
