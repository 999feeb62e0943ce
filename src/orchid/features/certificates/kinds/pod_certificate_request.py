"""PodCertificateRequest: a node requests a certificate for one of its Pods.

Two endpoints write to it:

    main     create: the request; later metadata alone            Rules
    status   the outcome: Issued, Denied or Failed, once          StatusRules

There is no approval: the request names a Pod, its account and its Node, and each is checked by uid,
at the create by features/nodes/policies/node_pod_certificates.py and before signing by the signer
(features/certificates/controllers/sign_pod_requests.py for the signers of this server). Permission
to sign is checked in features/certificates/policies/signer_permission.py. The stub is an empty PKCS
#10 request: it carries the public key and proves that the requester holds the private key. Nothing
else of it gets into a certificate.
"""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated, Final

from msgspec import Meta, field

from orchid.features.certificates.requester_notes import creation_notes
from orchid.features.certificates.rules.pod_certificates import (
    CHAIN,
    NOT_AFTER,
    NOT_BEFORE,
    leaf_name_errors,
    leaf_of,
    period_errors,
    stub_errors,
)
from orchid.kernel.credentials.authorities.issuer_chain import spki_of
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import signing_request
from orchid.kernel.engine.kind import Column, Endpoint, Kind, Note, Scope
from orchid.kernel.engine.request import Request
from orchid.kernel.engine.strategy import Strategy
from orchid.kernel.engine.tables import NAME
from orchid.kernel.wire.conditions import TRUE, Condition, with_condition
from orchid.kernel.wire.fields import (
    FieldError,
    Path,
    immutable,
    invalid,
    invalid_unshown,
    required,
    too_long,
    unsupported,
)
from orchid.kernel.wire.meta import Object, Time
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.request_conditions import DENIED, FAILED
from orchid.kernel.wire.rules.names import subdomain_errors
from orchid.kernel.wire.rules.signer_names import signer_name_errors
from orchid.kernel.wire.rules.user_annotations import user_annotation_errors
from orchid.kernel.wire.struct import (
    Wire,
    always,
    at_most,
    describe,
    merge_key,
    null,
    proto,
    replace,
)

ISSUED: Final = "Issued"
REQUESTER: Final = "requester"  # note of a creation
OUTCOMES: Final = (ISSUED, DENIED, FAILED)

SPEC, STATUS = Path() / "spec", Path() / "status"
SIGNER_NAME = SPEC / "signerName"
CONDITIONS, REFRESH = STATUS / "conditions", STATUS / "beginRefreshAt"

LONGEST_UID: Final = 128
LARGEST_CHAIN: Final = 100 * 1024
MOST_ANNOTATIONS: Final = 10_000
DEFAULT_EXPIRATION: Final = 86_400
SHORTEST_EXPIRATION: Final = 3_600
LONGEST_EXPIRATION: Final = 7_862_400  # 91 days
LONGEST_PLATFORM_EXPIRATION: Final = 86_400
CLOCK_SKEW: Final = timedelta(minutes=5)
REFRESH_MARGIN: Final = timedelta(minutes=10)
LONGEST_REASON, LONGEST_MESSAGE = 1024, 32 * 1024
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]


class PodCertificateRequestSpec(Wire):
    """The Pod, its account and its Node, and the key. It never changes."""

    signer_name: Annotated[str, proto(1), describe("The signer that is to issue.")] = always(str)
    pod_name: Annotated[str, proto(2), describe("The Pod that the certificate is for.")] = always(
        str
    )
    pod_uid: Annotated[str, proto(3), describe("The uid of the Pod.")] = always(str, name="podUID")
    service_account_name: Annotated[str, proto(4), describe("The account of the Pod.")] = always(
        str
    )
    service_account_uid: Annotated[str, proto(5), describe("The uid of the account.")] = always(
        str, name="serviceAccountUID"
    )
    node_name: Annotated[str, proto(6), describe("The Node of the Pod.")] = always(str)
    node_uid: Annotated[str, proto(7), describe("The uid of the Node.")] = always(
        str, name="nodeUID"
    )
    max_expiration_seconds: Annotated[
        Int32 | None,
        proto(8, "int32"),
        describe("The longest life that the requester accepts; the signer may issue for less."),
    ] = None
    stub_pkcs10_request: Annotated[
        bytes | None,
        proto(12),
        describe(
            "An empty PKCS #10 request in DER, in base64: the public key, with a proof that the "
            "requester holds the private key.",
            required=True,
        ),
    ] = always(null, name="stubPKCS10Request")
    unverified_user_annotations: Annotated[
        dict[str, str],
        at_most(MOST_ANNOTATIONS),
        proto(11),
        describe("Hints for the signer, as the author of the Pod wrote them. Nobody checked them."),
    ] = field(default_factory=dict)


class PodCertificateRequestStatus(Wire):
    """The outcome of the request."""

    conditions: Annotated[
        tuple[Condition, ...],
        merge_key("type"),
        proto(1),
        describe("Issued, Denied or Failed; none of them while the request is pending."),
    ] = ()
    certificate_chain: Annotated[
        str, proto(2), describe("The certificate, then those above it, in PEM.")
    ] = ""
    not_before: Annotated[Time | None, proto(4), describe("Start of the certificate's life.")] = (
        None
    )
    begin_refresh_at: Annotated[
        Time | None, proto(5), describe("When the node should request the next certificate.")
    ] = None
    not_after: Annotated[Time | None, proto(6), describe("End of the certificate's life.")] = None

    def has(self, *types: str) -> bool:
        return any(one.type in types and one.status == TRUE for one in self.conditions)


class PodCertificateRequest(Object):
    """Requests a certificate for a Pod. The Pod's node creates it, and a signer settles it."""

    spec: Annotated[
        PodCertificateRequestSpec, proto(2), describe("The request.", required=True)
    ] = field(default_factory=PodCertificateRequestSpec)
    status: Annotated[PodCertificateRequestStatus, proto(3), describe("The outcome.")] = field(
        default_factory=PodCertificateRequestStatus
    )

    @property
    def is_settled(self) -> bool:
        return self.status.has(*OUTCOMES)

    @property
    def state(self) -> str:
        return next((one.type for one in self.status.conditions if one.type in OUTCOMES), "Pending")

    def settled(
        self, type_: str, reason: str, message: str, now: datetime
    ) -> "PodCertificateRequest":
        """The request with an outcome; send the result to the `status` endpoint."""
        outcome = Condition(type=type_, status=TRUE, reason=reason, message=message)
        conditions = with_condition(self.status.conditions, outcome, now)
        return replace(self, status=replace(self.status, conditions=conditions))


class Rules(Strategy[PodCertificateRequest]):
    """The main endpoint."""

    verifies_signature = True

    def __init__(self, naming: Naming) -> None:
        self._platform = f"{naming.domain}/"

    def validate(self, new: PodCertificateRequest) -> Iterator[FieldError]:
        spec = new.spec
        yield from signer_name_errors(SIGNER_NAME, spec.signer_name)
        if spec.unverified_user_annotations:
            path = SPEC / "unverifiedUserAnnotations"
            yield from user_annotation_errors(path, spec.unverified_user_annotations)
        for name, named, uid in (
            ("pod", spec.pod_name, spec.pod_uid),
            ("serviceAccount", spec.service_account_name, spec.service_account_uid),
            ("node", spec.node_name, spec.node_uid),
        ):
            for problem in subdomain_errors(named):
                yield invalid(SPEC / f"{name}Name", named, problem)
            yield from uid_errors(SPEC / f"{name}UID", uid)
        is_platform = spec.signer_name.startswith(self._platform)
        longest = LONGEST_PLATFORM_EXPIRATION if is_platform else LONGEST_EXPIRATION
        seconds = spec.max_expiration_seconds
        if seconds is None or not SHORTEST_EXPIRATION <= seconds <= longest:
            text = f"must be in the range [{SHORTEST_EXPIRATION}, {longest}]"
            yield invalid(SPEC / "maxExpirationSeconds", seconds, text)
        yield from stub_errors(spec.stub_pkcs10_request or b"")

    def validate_update(
        self, new: PodCertificateRequest, old: PodCertificateRequest
    ) -> Iterator[FieldError]:
        yield from immutable(SPEC, new.spec, old.spec)


class StatusRules(Strategy[PodCertificateRequest]):
    """The `status` endpoint: one outcome, which is final."""

    checks_times = True

    def prepare_for_update(
        self, new: PodCertificateRequest, old: PodCertificateRequest, request: Request
    ) -> PodCertificateRequest:
        meta = old.metadata
        return new.with_meta(
            labels=meta.labels,
            annotations=meta.annotations,
            finalizers=meta.finalizers,
            owner_references=meta.owner_references,
        )

    def validate_update(
        self, new: PodCertificateRequest, old: PodCertificateRequest
    ) -> Iterator[FieldError]:
        errors = tuple(outcome_condition_errors(new.status.conditions))
        if errors:
            yield from errors
        elif old.is_settled:
            if new.status != old.status:
                text = "immutable after PodCertificateRequest is issued, denied, or failed"
                yield invalid_unshown(STATUS, text)
        elif new.status.has(DENIED, FAILED):
            if new.status != PodCertificateRequestStatus(conditions=new.status.conditions):
                text = (
                    "non-condition status fields must be empty when denying or failing the "
                    "PodCertificateRequest"
                )
                yield invalid_unshown(STATUS, text)
        elif new.status.has(ISSUED):
            yield from issued_errors(new)
        elif new.status != old.status:
            text = 'status is immutable unless transitioning to "Issued", "Denied", or "Failed"'
            yield invalid_unshown(STATUS, text)

    def validate_times(
        self, new: PodCertificateRequest, old: PodCertificateRequest, now: datetime
    ) -> Iterator[FieldError]:
        begins = new.status.not_before
        if old.is_settled or begins is None:
            return
        if not now - CLOCK_SKEW < begins < now + CLOCK_SKEW:
            text = "must be within 5 minutes of the server's current time"
            yield invalid(NOT_BEFORE, begins, text)


def declare(naming: Naming) -> Kind[PodCertificateRequest]:
    return Kind(
        type=PodCertificateRequest,
        group=naming.certificates,
        version="v1",
        known_versions=("v1alpha1", "v1beta1"),
        plural="podcertificaterequests",
        scope=Scope.NAMESPACED,
        rules=Rules(naming),
        defaults=with_defaults,
        writes=("metadata", "spec"),
        creates=("metadata", "spec"),
        may_update_unconditionally=False,
        columns=COLUMNS,
        selectable={
            "spec.signerName": lambda request: request.spec.signer_name,
            "spec.podName": lambda request: request.spec.pod_name,
            "spec.nodeName": lambda request: request.spec.node_name,
        },
        note=requester_note(naming),
        endpoints=(Endpoint("status", writes=("status",), rules=StatusRules()),),
    )


def requester_note(naming: Naming) -> Note[PodCertificateRequest]:
    """Note of a creation: its user, for the inventory, and with which credential."""

    def note(
        new: PodCertificateRequest, old: PodCertificateRequest | None, request: Request
    ) -> dict[str, str] | None:
        if old is not None:
            return None
        notes = creation_notes(request, naming.credential_id)
        return {REQUESTER: request.user.username, **notes}

    return note


def with_defaults(new: PodCertificateRequest) -> PodCertificateRequest:
    if new.spec.max_expiration_seconds is not None:
        return new
    return replace(new, spec=replace(new.spec, max_expiration_seconds=DEFAULT_EXPIRATION))


# --- the request ------------------------------------------------------------------------------


def uid_errors(path: Path, uid: str) -> Iterator[FieldError]:
    if not uid:
        yield invalid(path, uid, "must not be empty")
    elif len(uid.encode("utf-8", "surrogatepass")) > LONGEST_UID:
        yield too_long(path, LONGEST_UID)


# --- the outcome ------------------------------------------------------------------------------


def outcome_condition_errors(conditions: tuple[Condition, ...]) -> Iterator[FieldError]:
    """Check that there is at most one condition, of a known type, true and complete."""
    for index, condition in enumerate(conditions):
        path = CONDITIONS[index]
        if condition.type not in OUTCOMES:
            yield unsupported(path / "type", condition.type, OUTCOMES)
        elif index:
            text = 'There may be at most one condition with type "Issued", "Denied", or "Failed"'
            yield invalid(path / "type", condition.type, text)
        if condition.status != TRUE:
            yield unsupported(path / "status", condition.status, (TRUE,))
        if condition.last_transition_time is None:
            yield required(path / "lastTransitionTime")
        if condition.observed_generation < 0:
            text = "must be greater than or equal to zero"
            yield invalid(path / "observedGeneration", condition.observed_generation, text)
        if not condition.reason:
            yield required(path / "reason")
        elif len(condition.reason) > LONGEST_REASON:
            yield too_long(path / "reason", LONGEST_REASON)
        elif not _REASON.fullmatch(condition.reason):
            text = "must be one word of letters, digits, and _ , : inside"
            yield invalid(path / "reason", condition.reason, text)
        if len(condition.message) > LONGEST_MESSAGE:
            yield too_long(path / "message", LONGEST_MESSAGE)


def issued_errors(new: PodCertificateRequest) -> Iterator[FieldError]:
    """Check that the certificate is for the key of the request, and that the times agree."""
    status = new.status
    if len(status.certificate_chain) > LARGEST_CHAIN:
        yield too_long(CHAIN, LARGEST_CHAIN)
        return
    try:
        leaf = leaf_of(status.certificate_chain)
        key = signing_request.parse_der_once(new.spec.stub_pkcs10_request or b"").spki
    except Refusal as refusal:
        yield invalid_unshown(CHAIN, str(refusal))
        return
    yield from leaf_name_errors(leaf)
    if spki_of(leaf.certificate) != key:
        text = "leaf certificate was not issued to the requested public key"
        yield invalid_unshown(CHAIN, text)
        return
    begins, refresh, ends = status.not_before, status.begin_refresh_at, status.not_after
    if begins is None or ends is None or refresh is None:
        for path, time in ((NOT_BEFORE, begins), (NOT_AFTER, ends)):
            if time is None:
                yield required(path, "must be present and consistent with the issued certificate")
        if refresh is None:
            text = "must be present and in the range [notbefore+10min, notafter-10min]"
            yield required(REFRESH, text)
        return
    yield from period_errors(leaf, begins, ends, new.spec.max_expiration_seconds or 0)
    if refresh - begins < REFRESH_MARGIN:
        yield invalid(REFRESH, refresh, "must be at least 10 minutes after status.notBefore")
    elif ends - refresh < REFRESH_MARGIN:
        yield invalid(REFRESH, refresh, "must be at least 10 minutes before status.notAfter")


# --- tables -----------------------------------------------------------------------------------


def _annotations_cell(one: PodCertificateRequest, now: datetime) -> str:
    pairs = sorted(one.spec.unverified_user_annotations.items())
    return ",".join(f"{key}={value}" for key, value in pairs) or "<none>"


COLUMNS: Final = (
    NAME,
    Column(
        "PodName",
        lambda one, now: one.spec.pod_name,
        description="The Pod that the certificate is for.",
    ),
    Column(
        "ServiceAccountName",
        lambda one, now: one.spec.service_account_name,
        description="The account of the Pod.",
    ),
    Column("NodeName", lambda one, now: one.spec.node_name, description="The Node of the Pod."),
    Column(
        "SignerName",
        lambda one, now: one.spec.signer_name,
        description="The signer that is to issue.",
    ),
    Column("State", lambda one, now: one.state, description="Pending, Issued, Denied or Failed."),
    Column(
        "UnverifiedUserAnnotations",
        _annotations_cell,
        description="Hints for the signer that nobody checked.",
        priority=1,
    ),
)
