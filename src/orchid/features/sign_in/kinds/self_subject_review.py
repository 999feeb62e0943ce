"""SelfSubjectReview: returns the caller's identity, after impersonation. The body is ignored."""

from typing import Annotated

from msgspec import field

from orchid.kernel.base.clock import whole_seconds
from orchid.kernel.engine.kind import LARGEST_REVIEW, Kind, Scope
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.struct import Wire, describe, proto
from orchid.kernel.wire.user import UserInfo


class SelfSubjectReviewStatus(Wire):
    """The identity of the caller."""

    user_info: Annotated[UserInfo, proto(1), describe("The caller as authenticated.")] = field(
        default_factory=UserInfo
    )


class SelfSubjectReview(Object):
    """Returns the caller's identity. Nothing is stored."""

    status: Annotated[SelfSubjectReviewStatus, proto(2), describe("The result.")] = field(
        default_factory=SelfSubjectReviewStatus
    )


class AnswerCaller:
    """Answer with the caller."""

    async def create(self, new: SelfSubjectReview, request: Request) -> SelfSubjectReview:
        return SelfSubjectReview(
            kind=new.kind,
            api_version=new.api_version,
            metadata=ObjectMeta(creation_timestamp=whole_seconds(request.now)),
            status=SelfSubjectReviewStatus(user_info=request.user),
        )


def declare(naming: Naming) -> Kind[SelfSubjectReview]:
    return Kind(
        type=SelfSubjectReview,
        group=naming.authentication,
        version="v1",
        known_versions=("v1alpha1", "v1beta1"),
        plural="selfsubjectreviews",
        scope=Scope.CLUSTER,
        acts=AnswerCaller(),
        answers_what_was_sent=False,
        writes=("metadata",),
        verbs=("create",),
        largest_body=LARGEST_REVIEW,
    )
