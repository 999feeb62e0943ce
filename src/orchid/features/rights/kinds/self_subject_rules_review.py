"""SelfSubjectRulesReview: lists the caller's permissions in a namespace. Nothing is stored.

The list is for display, not for decisions: `incomplete` is set if an authorizer cannot list its
rules. For a decision use a SelfSubjectAccessReview.
"""

from typing import Annotated, Protocol

from msgspec import field

from orchid.kernel.engine.kind import LARGEST_REVIEW, Kind, Scope
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.errors import BadRequest
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.struct import Wire, always, describe, proto
from orchid.kernel.wire.user import UserInfo


class ResourceRule(Wire):
    """Verbs on resources."""

    verbs: Annotated[tuple[str, ...], proto(1), describe("The verbs; `*` means all.")] = always(
        lambda: ()
    )
    api_groups: Annotated[tuple[str, ...], proto(2), describe("The groups of the resources.")] = ()
    resources: Annotated[tuple[str, ...], proto(3), describe("The resources.")] = ()
    resource_names: Annotated[
        tuple[str, ...], proto(4), describe("Only objects of these names; if empty, any.")
    ] = ()


class NonResourceRule(Wire):
    """Verbs on non-resource paths."""

    verbs: Annotated[tuple[str, ...], proto(1), describe("The verbs; `*` means all.")] = always(
        lambda: ()
    )
    non_resource_urls: Annotated[
        tuple[str, ...], proto(2), describe("The paths; a final `*` matches any suffix.")
    ] = field(default=(), name="nonResourceURLs")


class SelfSubjectRulesReviewSpec(Wire):
    """The namespace to evaluate."""

    namespace: Annotated[str, proto(1), describe("The namespace.")] = ""


class SubjectRulesReviewStatus(Wire):
    """The permissions."""

    resource_rules: Annotated[
        tuple[ResourceRule, ...], proto(1), describe("Rules for resources, unordered.")
    ] = always(lambda: ())
    non_resource_rules: Annotated[
        tuple[NonResourceRule, ...],
        proto(2),
        describe("Rules for other paths, unordered."),
    ] = always(lambda: ())
    incomplete: Annotated[bool, proto(3), describe("Whether rules may be missing.")] = always(bool)
    evaluation_error: Annotated[str, proto(4), describe("Errors during evaluation.")] = ""


class SelfSubjectRulesReview(Object):
    """Lists the caller's permissions in a namespace. Nothing is stored."""

    spec: Annotated[
        SelfSubjectRulesReviewSpec, proto(2), describe("The namespace to evaluate.", required=True)
    ] = field(default_factory=SelfSubjectRulesReviewSpec)
    status: Annotated[SubjectRulesReviewStatus, proto(3), describe("The result.")] = field(
        default_factory=SubjectRulesReviewStatus
    )


class RuleLister(Protocol):
    """An authorizer that lists a user's rules, or reports that it cannot."""

    def rules_for(self, user: UserInfo, namespace: str) -> SubjectRulesReviewStatus: ...


class ListRules:
    """Answer with the caller's rules; the sent spec is dropped."""

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


def declare(naming: Naming, rules: RuleLister) -> Kind[SelfSubjectRulesReview]:
    return Kind(
        type=SelfSubjectRulesReview,
        group=naming.authorization,
        version="v1",
        known_versions=("v1beta1",),
        plural="selfsubjectrulesreviews",
        scope=Scope.CLUSTER,
        acts=ListRules(rules),
        writes=("metadata", "spec"),
        verbs=("create",),
        largest_body=LARGEST_REVIEW,
    )
