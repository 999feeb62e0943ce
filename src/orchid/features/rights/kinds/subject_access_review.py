"""SubjectAccessReview, Local… and Self…: ask whether a user may do something. Nothing is stored.

SubjectAccessReview       a named user, anywhere
LocalSubjectAccessReview  a named user, in one namespace
SelfSubjectAccessReview   the caller

Start with `Reviewing.create`. The authorizer of requests also answers reviews. The user need not
exist, and no groups are added to those in the spec.
"""

from collections.abc import Callable, Iterator
from typing import Annotated, Generic, Protocol, TypeVar

from msgspec import field

from orchid.kernel.engine.interfaces import Authorizer, Verdict
from orchid.kernel.engine.kind import LARGEST_REVIEW, Kind, Scope
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.wire.errors import BadRequest, ErrorSubject, refuse_if_any
from orchid.kernel.wire.fields import (
    METADATA,
    FieldError,
    Path,
    forbidden,
    invalid,
    required,
    too_long,
)
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.rules.names import label_value_errors, qualified_name_errors
from orchid.kernel.wire.selectors.requirements import (
    FieldSelectorRequirement,
    LabelSelectorRequirement,
    SelectorRequirement,
)
from orchid.kernel.wire.selectors.selection import (
    LONGEST_SELECTOR,
    MOST_CONDITIONS,
    FieldMatcher,
    LabelMatcher,
)
from orchid.kernel.wire.struct import Wire, at_most, describe, proto, replace
from orchid.kernel.wire.user import UserInfo

SPEC = Path() / "spec"
RESOURCE = SPEC / "resourceAttributes"
NON_RESOURCE = SPEC / "nonResourceAttributes"


class FieldSelectorAttributes(Wire):
    """A field selector as text or as requirements; never both."""

    raw_selector: Annotated[str, proto(1), describe("The selector as text.")] = ""
    requirements: Annotated[
        tuple[FieldSelectorRequirement, ...],
        at_most(MOST_CONDITIONS),
        proto(2),
        describe("The selector as conditions."),
    ] = ()


class LabelSelectorAttributes(Wire):
    """A label selector as text or as requirements; never both."""

    raw_selector: Annotated[str, proto(1), describe("The selector as text.")] = ""
    requirements: Annotated[
        tuple[LabelSelectorRequirement, ...],
        at_most(MOST_CONDITIONS),
        proto(2),
        describe("The selector as conditions."),
    ] = ()


class ResourceAttributes(Wire):
    """Attributes of a request for a resource. Empty values are taken literally."""

    namespace: Annotated[
        str, proto(1), describe("The namespace; empty for all of them, or for none.")
    ] = ""
    verb: Annotated[str, proto(2), describe("The verb, for example `get`.")] = ""
    group: Annotated[str, proto(3), describe("The API group.")] = ""
    version: Annotated[str, proto(4), describe("The API version.")] = ""
    resource: Annotated[str, proto(5), describe("The resource, in the plural.")] = ""
    subresource: Annotated[str, proto(6), describe("The subresource.")] = ""
    name: Annotated[str, proto(7), describe("The name of the object; empty for all.")] = ""
    field_selector: Annotated[
        FieldSelectorAttributes | None, proto(8), describe("Only objects with these field values.")
    ] = None
    label_selector: Annotated[
        LabelSelectorAttributes | None, proto(9), describe("Only objects with these labels.")
    ] = None


class NonResourceAttributes(Wire):
    """Attributes of a request for a non-resource path."""

    path: Annotated[str, proto(1), describe("The path.")] = ""
    verb: Annotated[str, proto(2), describe("The HTTP method, in lower case.")] = ""


class SubjectAccessReviewSpec(Wire):
    """A user and the attributes of a request."""

    resource_attributes: Annotated[
        ResourceAttributes | None, proto(1), describe("A request for a resource.")
    ] = None
    non_resource_attributes: Annotated[
        NonResourceAttributes | None, proto(2), describe("A request for another path.")
    ] = None
    user: Annotated[str, proto(3), describe("The name of the user.")] = ""
    groups: Annotated[tuple[str, ...], proto(4), describe("The groups of the user.")] = ()
    extra: Annotated[
        dict[str, tuple[str, ...]], proto(5), describe("Extra attributes of the user.")
    ] = field(default_factory=dict)
    uid: Annotated[str, proto(6), describe("The uid of the user.")] = ""


class SelfSubjectAccessReviewSpec(Wire):
    """Attributes of a request of the caller."""

    resource_attributes: Annotated[
        ResourceAttributes | None, proto(1), describe("A request for a resource.")
    ] = None
    non_resource_attributes: Annotated[
        NonResourceAttributes | None, proto(2), describe("A request for another path.")
    ] = None


class SubjectAccessReviewStatus(Wire):
    """The decision."""

    allowed: Annotated[bool, proto(1), describe("Whether it is allowed.")] = field(
        default_factory=bool
    )
    denied: Annotated[
        bool, proto(4), describe("Whether it is denied; no other authorizer can allow it.")
    ] = False
    reason: Annotated[str, proto(2), describe("Why.")] = ""
    evaluation_error: Annotated[
        str, proto(3), describe("Errors during evaluation; the decision may still be right.")
    ] = ""


class SubjectAccessReview(Object):
    """Asks whether a user may do something. Nothing is stored."""

    spec: Annotated[
        SubjectAccessReviewSpec, proto(2), describe("The user and the request.", required=True)
    ] = field(default_factory=SubjectAccessReviewSpec)
    status: Annotated[SubjectAccessReviewStatus, proto(3), describe("The decision.")] = field(
        default_factory=SubjectAccessReviewStatus
    )


class LocalSubjectAccessReview(SubjectAccessReview):
    """Asks whether a user may do something in one namespace. Nothing is stored."""


class SelfSubjectAccessReview(Object):
    """Asks whether the caller may do something. Nothing is stored."""

    spec: Annotated[
        SelfSubjectAccessReviewSpec, proto(2), describe("The request.", required=True)
    ] = field(default_factory=SelfSubjectAccessReviewSpec)
    status: Annotated[SubjectAccessReviewStatus, proto(3), describe("The decision.")] = field(
        default_factory=SubjectAccessReviewStatus
    )


class AccessQuestion(Protocol):
    """The part that all three specs share."""

    @property
    def resource_attributes(self) -> ResourceAttributes | None: ...
    @property
    def non_resource_attributes(self) -> NonResourceAttributes | None: ...


R = TypeVar("R", SubjectAccessReview, LocalSubjectAccessReview, SelfSubjectAccessReview)


class Reviewing(Generic[R]):
    """Validate the spec, ask the authorizer and return its decision."""

    def __init__(
        self,
        group: str,
        authorizer: Authorizer,
        *,
        errors: Callable[[R], Iterator[FieldError]],
        subject: Callable[[R, Request], UserInfo],
    ) -> None:
        # Kubernetes omits the kind in these errors.
        self._about = ErrorSubject(group, "")
        self._authorizer = authorizer
        self._errors: Callable[[R], Iterator[FieldError]] = errors
        self._subject: Callable[[R, Request], UserInfo] = subject

    async def create(self, new: R, request: Request) -> R:
        refuse_if_any(self._about, self._errors(new))
        target, problems = target_of(new.spec)
        decision = await self._authorizer.authorize(self._subject(new, request), target)
        if decision.error:
            problems.insert(0, decision.error)
        status = SubjectAccessReviewStatus(
            allowed=decision.allowed,
            denied=decision.verdict is Verdict.DENY,
            reason=decision.reason,
            evaluation_error="; ".join(problems),
        )
        return replace(new, status=status)


def declare(
    naming: Naming, authorizer: Authorizer
) -> tuple[
    Kind[SubjectAccessReview], Kind[LocalSubjectAccessReview], Kind[SelfSubjectAccessReview]
]:
    def review(
        type_: type[R],
        errors: Callable[[R], Iterator[FieldError]],
        subject: Callable[[R, Request], UserInfo],
        scope: Scope = Scope.CLUSTER,
    ) -> Kind[R]:
        group = naming.authorization
        return Kind(
            type=type_,
            group=group,
            version="v1",
            known_versions=("v1beta1",),
            plural=f"{type_.__name__.lower()}s",
            scope=scope,
            acts=Reviewing[R](group, authorizer, errors=errors, subject=subject),
            writes=("metadata", "spec"),
            verbs=("create",),
            largest_body=LARGEST_REVIEW,
        )

    return (
        review(SubjectAccessReview, review_errors, named_user),
        review(LocalSubjectAccessReview, local_review_errors, named_user, Scope.NAMESPACED),
        review(SelfSubjectAccessReview, self_review_errors, lambda new, request: request.user),
    )


def named_user(new: SubjectAccessReview | LocalSubjectAccessReview, request: Request) -> UserInfo:
    spec = new.spec
    return UserInfo(username=spec.user, uid=spec.uid, groups=spec.groups, extra=spec.extra)


def review_errors(new: SubjectAccessReview) -> Iterator[FieldError]:
    yield from named_errors(new.spec)
    yield from metadata_errors(new.metadata)


def self_review_errors(new: SelfSubjectAccessReview) -> Iterator[FieldError]:
    yield from choice_errors(new.spec)
    yield from selectors_errors(new.spec.resource_attributes)
    yield from metadata_errors(new.metadata)


def local_review_errors(new: LocalSubjectAccessReview) -> Iterator[FieldError]:
    spec = new.spec
    yield from named_errors(spec)
    if replace(new.metadata, namespace="", managed_fields=()) != ObjectMeta():
        yield invalid(METADATA, new.metadata, "must be empty except for namespace")
    resource, other = spec.resource_attributes, spec.non_resource_attributes
    if resource is not None and resource.namespace != new.namespace:
        text = "must match metadata.namespace"
        yield invalid(RESOURCE / "namespace", resource.namespace, text)
    if other is not None:
        yield invalid(NON_RESOURCE, capitalised(other), "disallowed on this kind of request")


def metadata_errors(sent: ObjectMeta) -> Iterator[FieldError]:
    if replace(sent, managed_fields=()) != ObjectMeta():
        yield invalid(METADATA, sent, "must be empty")


def named_errors(spec: SubjectAccessReviewSpec) -> Iterator[FieldError]:
    """Errors in a spec that names a user."""
    yield from choice_errors(spec)
    if not spec.user and not spec.groups:
        yield invalid(SPEC / "user", spec.user, "at least one of user or group must be specified")
    yield from selectors_errors(spec.resource_attributes)


def choice_errors(spec: AccessQuestion) -> Iterator[FieldError]:
    resource, other = spec.resource_attributes, spec.non_resource_attributes
    if resource is not None and other is not None:
        text = "cannot be specified in combination with resourceAttributes"
        yield invalid(NON_RESOURCE, capitalised(other), text)
    if resource is None and other is None:
        text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        yield invalid(RESOURCE, None, text)


def selectors_errors(resource: ResourceAttributes | None) -> Iterator[FieldError]:
    if resource is None:
        return
    if resource.field_selector is not None:
        path = RESOURCE / "fieldSelector"
        yield from selector_errors(resource.field_selector, path, field_requirement_errors)
    if resource.label_selector is not None:
        path = RESOURCE / "labelSelector"
        yield from selector_errors(resource.label_selector, path, label_requirement_errors)


def selector_errors(
    selector: FieldSelectorAttributes | LabelSelectorAttributes,
    path: Path,
    requirement_errors: Callable[[SelectorRequirement, Path], Iterator[FieldError]],
) -> Iterator[FieldError]:
    if selector.raw_selector and selector.requirements:
        text = "may not specified at the same time as requirements"
        yield invalid(path / "rawSelector", selector.raw_selector, text)
    if not selector.raw_selector and not selector.requirements:
        text = f"when {path} is specified, requirements or rawSelector is required"
        yield required(path / "requirements", text)
    if len(selector.raw_selector) > LONGEST_SELECTOR:
        yield too_long(path / "rawSelector", LONGEST_SELECTOR, "character")
    for index, requirement in enumerate(selector.requirements):
        yield from requirement_errors(requirement, (path / "requirements")[index])


def field_requirement_errors(requirement: SelectorRequirement, path: Path) -> Iterator[FieldError]:
    if not requirement.key:
        yield required(path / "key", "must be specified")
    yield from presence_errors(requirement, path)


def label_requirement_errors(requirement: SelectorRequirement, path: Path) -> Iterator[FieldError]:
    yield from presence_errors(requirement, path)
    for text in qualified_name_errors(requirement.key):
        yield invalid(path / "key", requirement.key, text)
    for index, value in enumerate(requirement.values):
        for text in label_value_errors(value):
            yield invalid((path / "values")[index], value, text)


def presence_errors(requirement: SelectorRequirement, path: Path) -> Iterator[FieldError]:
    """Values for an operator that takes none, or missing values."""
    if requirement.operator in ("In", "NotIn") and not requirement.values:
        text = "must be specified when `operator` is 'In' or 'NotIn'"
        yield required(path / "values", text)
    if requirement.operator in ("Exists", "DoesNotExist") and requirement.values:
        text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        yield forbidden(path / "values", text)


def capitalised(other: NonResourceAttributes) -> dict[str, str]:
    """The attributes as Kubernetes prints them in an error."""
    return {"Path": other.path, "Verb": other.verb}


def target_of(spec: AccessQuestion) -> tuple[Target, list[str]]:
    """The target for authorizers, and parse errors."""
    other, resource = spec.non_resource_attributes, spec.resource_attributes
    if resource is None:
        assert other is not None
        return Target(verb=other.verb, path=other.path), []
    problems: list[str] = []
    target = Target(
        verb=resource.verb,
        is_resource=True,
        group=resource.group,
        version=resource.version or "*",
        resource=resource.resource,
        subresource=resource.subresource,
        namespace=resource.namespace,
        name=resource.name,
        field_selector=selector_text(
            resource.field_selector, FieldMatcher.parse, field_condition, "fieldSelector", problems
        ),
        label_selector=selector_text(
            resource.label_selector, LabelMatcher.parse, label_condition, "labelSelector", problems
        ),
    )
    return target, problems


def selector_text(
    selector: FieldSelectorAttributes | LabelSelectorAttributes | None,
    parse: Callable[[str], object],
    condition: Callable[[SelectorRequirement], str | None],
    member: str,
    problems: list[str],
) -> str:
    """Write a selector as text without the invalid parts.

    This is safe: the question then covers more objects, which fewer callers may access.
    """
    if selector is None:
        return ""
    if selector.raw_selector:
        try:
            parse(selector.raw_selector)
        except BadRequest:
            problems.append(f"{RESOURCE / member} ignored due to parse error")
            return ""
        return selector.raw_selector
    conditions = [condition(requirement) for requirement in selector.requirements]
    texts = [text for text in conditions if text is not None]
    if len(texts) < len(conditions):
        partially = "partially " if texts else ""
        problems.append(f"{RESOURCE / member} {partially}ignored due to parse error")
    return ",".join(texts)


def field_condition(requirement: SelectorRequirement) -> str | None:
    sign = {"In": "=", "NotIn": "!="}.get(requirement.operator)
    if sign is None or len(requirement.values) != 1:
        return None
    escaped = requirement.values[0]
    for character in "\\,=":
        escaped = escaped.replace(character, f"\\{character}")
    return f"{requirement.key}{sign}{escaped}"


def label_condition(requirement: SelectorRequirement) -> str | None:
    match requirement.operator:
        case "In":
            return f"{requirement.key} in ({','.join(requirement.values)})"
        case "NotIn":
            return f"{requirement.key} notin ({','.join(requirement.values)})"
        case "Exists":
            return requirement.key
        case "DoesNotExist":
            return f"!{requirement.key}"
        case _:
            return None
