"""ApprovalReview: evaluate policies for a certificate request, with reasons. Nothing is stored.

Start with `Explaining.create`. The request is stored (given by name) or part of the review. The
user is the one in the spec, else the creator of the stored request, else the caller. A policy in
the spec is evaluated alone, so that it can be tried before it is stored.
"""

import dataclasses
from collections.abc import Iterator
from typing import Annotated, Final

from msgspec import field

from orchid.features.approval.case import Case
from orchid.features.approval.explaining import Explainer, PolicyAnswer, RequestedTerms
from orchid.features.approval.term_errors import term_errors
from orchid.features.approval.terms import ApprovalPolicySpec
from orchid.kernel.base.scheduling.offload import ALWAYS, Offload
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509.requested_certificate import RequestedCertificate
from orchid.kernel.credentials.x509.usages import ALL_USAGES
from orchid.kernel.engine.kind import Kind, Scope
from orchid.kernel.engine.request import Request
from orchid.kernel.expressions.cel import Compiler
from orchid.kernel.wire.errors import ErrorSubject, refuse_if_any
from orchid.kernel.wire.fields import FieldError, Path, forbidden, invalid, required, unsupported
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.rules.signer_names import signer_name_errors
from orchid.kernel.wire.struct import Wire, always, describe, proto, replace
from orchid.kernel.wire.text import shortened
from orchid.kernel.wire.user import UserInfo

SPEC: Final = Path() / "spec"
MOST_CHECKS: Final = 64  # of one policy: a request may have a thousand names


class ApprovalReviewSpec(Wire):
    """The request, the requester and, optionally, the policy."""

    request_name: Annotated[str, proto(1), describe("The name of a stored request.")] = ""
    request: Annotated[bytes, proto(2), describe("Or a PKCS #10 request: PEM, in base64.")] = b""
    signer_name: Annotated[str, proto(3), describe("The signer; with `request`.")] = ""
    usages: Annotated[tuple[str, ...], proto(4), describe("The key usages; with `request`.")] = ()
    expiration_seconds: Annotated[
        int | None, proto(5), describe("The requested lifetime; with `request`.")
    ] = None
    user: Annotated[
        UserInfo | None,
        proto(6),
        describe("The requester. Default: the creator of the stored request, or the caller."),
    ] = None
    policy: Annotated[
        ApprovalPolicySpec | None,
        proto(7),
        describe("A policy to try alone, as if every requester had `use` on it."),
    ] = None
    certificate_name: Annotated[
        str, proto(8), describe("Or the name of an IssuedCertificate: would it be issued again?")
    ] = ""


class ApprovalCheck(Wire):
    """A single check of a policy."""

    field: Annotated[str, proto(1), describe("The field of the policy.")] = always(str)
    value: Annotated[str, proto(2), describe("The value that was checked.")] = ""
    allowed: Annotated[bool, proto(3), describe("Whether the policy allows it.")] = always(bool)
    message: Annotated[str, proto(4), describe("Why not.")] = ""


class PolicyVerdict(Wire):
    """The result of one policy."""

    name: Annotated[str, proto(1), describe("The name of the policy.")] = always(str)
    revision: Annotated[str, proto(2), describe("Its resourceVersion.")] = ""
    selected: Annotated[bool, proto(3), describe("Whether it selects the request.")] = always(bool)
    usable: Annotated[
        bool, proto(4), describe("Whether the requester may use it; checked if it selects.")
    ] = always(bool)
    allowed: Annotated[bool, proto(5), describe("Whether it allows the request.")] = always(bool)
    message: Annotated[str, proto(6), describe("Why not.")] = ""
    checks: Annotated[
        tuple[ApprovalCheck, ...],
        proto(7),
        describe("The checks; of more than 64, those that fail first."),
    ] = ()


class ReviewedCertificate(Wire):
    """The certificate that the signer would issue."""

    subject: Annotated[str, proto(1), describe("The subject (RFC 4514).")] = ""
    names: Annotated[
        tuple[str, ...], proto(2), describe("DNS names, addresses, email addresses and URIs.")
    ] = ()
    usages: Annotated[tuple[str, ...], proto(3), describe("The key usages.")] = ()
    key: Annotated[str, proto(4), describe("Algorithm and size of its key: ECDSA-P256.")] = ""
    seconds: Annotated[
        int | None, proto(5), describe("Its lifetime; not set if the signer decides.")
    ] = None


class ApprovalReviewStatus(Wire):
    """The outcome for the request."""

    outcome: Annotated[str, proto(1), describe("Approve, Deny or Leave.")] = always(str)
    message: Annotated[str, proto(2), describe("Why.")] = ""
    policies: Annotated[
        tuple[PolicyVerdict, ...], proto(3), describe("Every policy, by name.")
    ] = ()
    certificate: Annotated[
        ReviewedCertificate | None, proto(4), describe("The certificate that would be signed.")
    ] = None
    obstacles: Annotated[
        tuple[str, ...], proto(5), describe("Reasons why no policy can allow the request.")
    ] = ()


class ApprovalReview(Object):
    """Evaluates policies for a certificate request. Nothing is stored."""

    spec: Annotated[
        ApprovalReviewSpec, proto(2), describe("The request to evaluate.", required=True)
    ] = field(default_factory=ApprovalReviewSpec)
    status: Annotated[ApprovalReviewStatus, proto(3), describe("The result.")] = field(
        default_factory=ApprovalReviewStatus
    )


class Explaining:
    """Evaluate the request against every policy."""

    def __init__(self, group: str, explainer: Explainer, offload: Offload) -> None:
        self._about = ErrorSubject(group, "ApprovalReview", "")
        self._explainer = explainer
        self._offload = offload
        self._compiler = Compiler()

    async def create(self, new: ApprovalReview, request: Request) -> ApprovalReview:
        spec = new.spec
        refuse_if_any(self._about, [*self._errors(spec), *await self._policy_errors(spec)])
        try:
            asked = await self._subject(spec, request)
            explanation = await self._explainer.explain(asked, spec.policy)
        except Refusal as refusal:
            ((name, value),) = _sources(spec).items()
            refuse_if_any(self._about, [invalid(SPEC / name, value, str(refusal))])
            raise
        status = ApprovalReviewStatus(
            outcome=explanation.decision.outcome,
            message=explanation.decision.message,
            policies=tuple(map(verdict_of, explanation.answers)),
            certificate=reviewed(explanation.case.certificate),
            obstacles=explanation.case.obstacles,
        )
        return replace(new, status=status)

    async def _subject(self, spec: ApprovalReviewSpec, request: Request) -> RequestedTerms | Case:
        if spec.certificate_name:
            issued = await self._explainer.issued_certificate(spec.certificate_name, request.user)
            return dataclasses.replace(issued, user=spec.user or issued.user)
        if spec.request_name:
            stored = await self._explainer.stored_request(spec.request_name, request.user)
            return replace(stored, user=spec.user, created_by="") if spec.user else stored
        return RequestedTerms(
            spec.request,
            spec.signer_name,
            spec.usages,
            spec.expiration_seconds,
            spec.user or request.user,
        )

    def _errors(self, spec: ApprovalReviewSpec) -> Iterator[FieldError]:
        sources = list(_sources(spec))
        if not sources:
            yield required(SPEC, "requestName, request or certificateName")
        for name in sources[1:]:
            yield forbidden(SPEC / name, f"not together with {sources[0]}")
        if sources == ["request"]:
            yield from signer_name_errors(SPEC / "signerName", spec.signer_name)
            for index, usage in enumerate(spec.usages):
                if usage not in ALL_USAGES:
                    yield unsupported((SPEC / "usages")[index], usage, ALL_USAGES)

    async def _policy_errors(self, spec: ApprovalReviewSpec) -> list[FieldError]:
        if spec.policy is None:
            return []
        errors = term_errors(spec.policy, SPEC / "policy", self._compiler)
        return await self._offload(ALWAYS, lambda: list(errors))  # compiles expressions


def _sources(spec: ApprovalReviewSpec) -> dict[str, str | bytes]:
    """The given sources of the request by field name; exactly one is allowed."""
    sources: dict[str, str | bytes] = {
        "requestName": spec.request_name,
        "request": spec.request,
        "certificateName": spec.certificate_name,
    }
    return {name: value for name, value in sources.items() if value}


def declare(naming: Naming, explainer: Explainer, offload: Offload) -> Kind[ApprovalReview]:
    return Kind(
        type=ApprovalReview,
        group=naming.identity,
        version="v1alpha1",
        versions=("v1",),
        plural="approvalreviews",
        scope=Scope.CLUSTER,
        acts=Explaining(naming.identity, explainer, offload),
        writes=("metadata", "spec"),
        verbs=("create",),
    )


def reviewed(certificate: RequestedCertificate) -> ReviewedCertificate:
    lifetime = certificate.lifetime
    return ReviewedCertificate(
        subject=certificate.subject.escaped_text,
        names=(
            *certificate.dns_names,
            *map(str, certificate.ip_addresses),
            *certificate.email_addresses,
            *certificate.uris,
        ),
        usages=certificate.usages,
        key=certificate.key,
        seconds=None if lifetime is None else int(lifetime.total_seconds()),
    )


def verdict_of(answer: PolicyAnswer) -> PolicyVerdict:
    verdict = answer.verdict
    checks = (*verdict.selection, *verdict.checks)
    if len(checks) > MOST_CHECKS:
        checks = tuple(sorted(checks, key=lambda check: check.allowed)[:MOST_CHECKS])
    return PolicyVerdict(
        name=verdict.policy.name,
        revision=verdict.policy.revision,
        selected=verdict.selected,
        usable=answer.usable,
        allowed=verdict.allowed,
        message=verdict.message,
        checks=tuple(
            ApprovalCheck(
                field=check.field,
                value=shortened(check.value),
                allowed=check.allowed,
                message=shortened(check.message),
            )
            for check in checks
        ),
    )
