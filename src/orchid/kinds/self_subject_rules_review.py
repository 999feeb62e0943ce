"""SelfSubjectRulesReview: asks for everything the caller may do in a namespace. Nothing is stored.

The list is for showing, not for deciding: an authorizer that cannot list its rules says so through
`incomplete`. To decide, ask a SelfSubjectAccessReview.
"""

from typing import Annotated, Protocol

from msgspec import field

from orchid.engine.kind import LARGEST_REVIEW, Kind, Scope
from orchid.engine.request import Request
from orchid.wire.errors import BadRequest
from orchid.wire.meta import Object
from orchid.wire.naming import Naming
from orchid.wire.struct import Wire, always, describe, proto
from orchid.wire.user import UserInfo


class ResourceRule(Wire):
    """Verbs on resources."""

    verbs: Annotated[
        tuple[str, ...], proto(1), describe("What may be done; `*` is everything.")
    ] = always(lambda: ())
    api_groups: Annotated[tuple[str, ...], proto(2), describe("The groups of the resources.")] = ()
    resources: Annotated[tuple[str, ...], proto(3), describe("The resources.")] = ()
    resource_names: Annotated[
        tuple[str, ...], proto(4), describe("Only objects of these names; if empty, any.")
    ] = ()


class NonResourceRule(Wire):
    """Verbs on paths that are no resources."""

    verbs: Annotated[
        tuple[str, ...], proto(1), describe("What may be done; `*` is everything.")
    ] = always(lambda: ())
    non_resource_urls: Annotated[
        tuple[str, ...], proto(2), describe("The paths; `*` at the end stands for the rest.")
    ] = field(default=(), name="nonResourceURLs")


class SelfSubjectRulesReviewSpec(Wire):
    """The namespace in question."""

    namespace: Annotated[str, proto(1), describe("The namespace.")] = ""


class SubjectRulesReviewStatus(Wire):
    """What one may do."""

    resource_rules: Annotated[
        tuple[ResourceRule, ...], proto(1), describe("What may be done to resources, in no order.")
    ] = always(lambda: ())
    non_resource_rules: Annotated[
        tuple[NonResourceRule, ...],
        proto(2),
        describe("What may be done to other paths, in no order."),
    ] = always(lambda: ())
    incomplete: Annotated[
        bool, proto(3), describe("Whether there may be more that is not listed.")
    ] = always(bool)
    evaluation_error: Annotated[str, proto(4), describe("What went wrong on the way.")] = ""


class SelfSubjectRulesReview(Object):
    """Asks for everything the caller may do in a namespace. Nothing is stored."""

    spec: Annotated[
        SelfSubjectRulesReviewSpec, proto(2), describe("The namespace in question.", required=True)
    ] = field(default_factory=SelfSubjectRulesReviewSpec)
    status: Annotated[SubjectRulesReviewStatus, proto(3), describe("The answer.")] = field(
        default_factory=SubjectRulesReviewStatus
    )


class RuleLister(Protocol):
    """An authorizer that can say what somebody may do, or that it cannot."""

    def rules_for(self, user: UserInfo, namespace: str) -> SubjectRulesReviewStatus: ...


class ListRules:
    """Answer with the caller's rules; what was sent does not come back."""

    def __init__(self, rules: RuleLister) -> None:
        self._rules = rules

    async def create(self, new: SelfSubjectRulesReview, request: Request) -> SelfSubjectRulesReview:
        if not new.spec.namespace:
            raise BadRequest("no namespace on request")
        return SelfSubjectRulesReview(
            kind=new.kind,
            api_version=new.api_version,
            status=self._rules.rules_for(request.user, new.spec.namespace),
        )


def declare(names: Naming, rules: RuleLister) -> Kind[SelfSubjectRulesReview]:
    return Kind(
        type=SelfSubjectRulesReview,
        group=names.authorization,
        version="v1",
        known_versions=("v1beta1",),
        plural="selfsubjectrulesreviews",
        scope=Scope.CLUSTER,
        acts=ListRules(rules),
        creates=("metadata", "spec"),
        verbs=("create",),
        largest_body=LARGEST_REVIEW,
    )
