"""CertificateSigningRequest: a request to a signer, which is approved and then issued.

Three endpoints write to it, each with rules of its own:

    main      create: the request; later only metadata                Rules
    approval  the decision: the conditions Approved and Denied        ApprovalRules
    status    the outcome: the certificate, or the condition Failed   SigningRules

    none --Denied--> denied
      └---Approved--> approved --certificate--> issued
                         └------Failed--------> failed

The server records the requester in the spec, and the approver in notes that no client sees, for
the inventory (features/certificates/policies/record_issued.py). A decision or an outcome is final.
The right to decide and to sign is checked by features/certificates/policies/signer_permission.py,
the limits of a signer by kernel/credentials/authorities/profiles.py, changes of conditions by
kernel/wire/request_conditions.py.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta, field

from orchid.features.approval.compiled import ACCOUNT_PREFIX
from orchid.features.approval.deciding import APPROVING_ACCOUNT, approving_policy
from orchid.features.approval.kept_approvals import KeptApproval, kept_approval
from orchid.features.certificates.requester_notes import CREATED_BY, creation_notes
from orchid.features.certificates.rules.signing_requests import (
    CERTIFICATE,
    SIGNER_NAME,
    USAGES,
    certificate_errors,
    lifetime_errors,
    request_errors,
    usage_errors,
)
from orchid.kernel.engine.kind import Column, Endpoint, Kind, Note, Scope
from orchid.kernel.engine.ledger.entries import Fact
from orchid.kernel.engine.request import Request
from orchid.kernel.engine.strategy import Strategy
from orchid.kernel.engine.tables import AGE, NAME
from orchid.kernel.wire.conditions import TRUE
from orchid.kernel.wire.fields import FieldError, forbidden, invalid, required
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.request_conditions import (
    APPROVED,
    CONDITIONS,
    DENIED,
    FAILED,
    TYPE,
    CertificateSigningRequestCondition,
    Conditions,
    addition_errors,
    condition_errors,
    removal_errors,
    timed,
    with_stored_decision,
)
from orchid.kernel.wire.rules.names import path_segment_errors
from orchid.kernel.wire.rules.signer_names import signer_name_errors
from orchid.kernel.wire.struct import Wire, always, describe, merge_key, null, proto, replace
from orchid.kernel.wire.text import human_duration, quote, timestamp

# Notes of an approval: the approver, their impersonator, and the policy that approved.
APPROVER, IMPERSONATOR, POLICY = "approver", "impersonator", "policy"
# Of an approval without a policy: its time, and the user with groups and credential ids, as JSON.
APPROVED_AT, APPROVED_BY = "approvedAt", "approvedBy"
DECISIONS: Final = {APPROVED: "request.approved", DENIED: "request.denied"}

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]


class CertificateSigningRequestSpec(Wire):
    """The request and its requester. Immutable."""

    request: Annotated[
        bytes | None, proto(1), describe("The PKCS #10 request: PEM, in base64.", required=True)
    ] = always(null)
    signer_name: Annotated[str, proto(7), describe("The signer.")] = always(str)
    expiration_seconds: Annotated[
        Int32 | None,
        proto(8, "int32"),
        describe("The requested lifetime; the signer may shorten it."),
    ] = None
    usages: Annotated[
        tuple[str, ...],
        proto(5),
        describe("The key usages. Default: chosen by the signer."),
    ] = ()
    # The requester; set by the server.
    username: Annotated[
        str, proto(2), describe("The name of the requester. Set by the server.")
    ] = ""
    uid: Annotated[str, proto(3), describe("The uid of the requester. Set by the server.")] = ""
    groups: Annotated[
        tuple[str, ...], proto(4), describe("The groups of the requester. Set by the server.")
    ] = ()
    extra: Annotated[
        dict[str, tuple[str, ...]],
        proto(6),
        describe("Extra attributes of the requester. Set by the server."),
    ] = field(default_factory=dict)


class CertificateSigningRequestStatus(Wire):
    """The decision and the outcome."""

    conditions: Annotated[
        Conditions,
        merge_key("type", appends=True),
        proto(1),
        describe("The conditions."),
    ] = ()
    certificate: Annotated[
        bytes, proto(2), describe("The issued certificate and its chain: PEM, in base64.")
    ] = b""

    def has(self, type_: str) -> bool:
        """Whether there is a condition of this type, with any status."""
        return type_ in map(TYPE, self.conditions)


class CertificateSigningRequest(Object):
    """A request for a certificate from a signer. The signer issues it after an approval."""

    spec: Annotated[
        CertificateSigningRequestSpec, proto(2), describe("The request.", required=True)
    ] = field(default_factory=CertificateSigningRequestSpec)
    status: Annotated[CertificateSigningRequestStatus, proto(3), describe("The outcome.")] = field(
        default_factory=CertificateSigningRequestStatus
    )

    def has(self, type_: str) -> bool:
        return type_ in map(TYPE, self.status.conditions)

    @property
    def is_decided(self) -> bool:
        return self.has(APPROVED) or self.has(DENIED)

    @property
    def is_approved(self) -> bool:
        types = [*map(TYPE, self.status.conditions)]
        return APPROVED in types and DENIED not in types

    @property
    def approving_policy(self) -> tuple[str, str] | None:
        """Name and revision of the policy in the approval's condition."""
        for condition in self.status.conditions:
            if condition.type == APPROVED:
                return approving_policy(condition.reason, condition.message)
        return None

    @property
    def kept_approval(self) -> KeptApproval | None:
        """The earlier approval in the approval's condition."""
        for condition in self.status.conditions:
            if condition.type == APPROVED:
                return kept_approval(condition.reason, condition.message)
        return None

    @property
    def is_issued(self) -> bool:
        return bool(self.status.certificate)

    def with_condition(
        self, type_: str, reason: str, message: str = ""
    ) -> "CertificateSigningRequest":
        """The request with this condition set to True; the server adds times.

        Stores nothing: send the result to the `approval` or `status` endpoint.
        """
        said = CertificateSigningRequestCondition(
            type=type_, status=TRUE, reason=reason, message=message
        )
        kept = [
            said if condition.type == type_ else condition for condition in self.status.conditions
        ]
        conditions = tuple(kept) if self.has(type_) else (*kept, said)
        return with_conditions(self, conditions)

    def with_certificate(self, pem: bytes) -> "CertificateSigningRequest":
        """The request with its certificate; send the result to the `status` endpoint."""
        return replace(self, status=replace(self.status, certificate=pem))


def with_conditions(
    request: CertificateSigningRequest, conditions: Conditions
) -> CertificateSigningRequest:
    return replace(request, status=replace(request.status, conditions=conditions))


class Rules(Strategy[CertificateSigningRequest]):
    """The main endpoint: create takes a request, update changes metadata only."""

    verifies_signature = True

    def __init__(self, naming: Naming) -> None:
        self._legacy_signer = naming.legacy_signer

    def name_errors(self, name: str, prefix: bool) -> Iterable[str]:
        return path_segment_errors(name, prefix)

    def prepare_for_create(
        self, new: CertificateSigningRequest, request: Request
    ) -> CertificateSigningRequest:
        user = request.user
        spec = replace(
            new.spec, username=user.username, uid=user.uid, groups=user.groups, extra=user.extra
        )
        return replace(new, spec=spec)

    def validate(self, new: CertificateSigningRequest) -> Iterator[FieldError]:
        spec = new.spec
        yield from request_errors(spec.request)
        if not (spec.request or spec.signer_name or spec.usages):
            # An empty spec also reports the missing usages.
            yield required(USAGES)
        yield from usage_errors(spec.usages)
        yield from self._signer_errors(spec.signer_name)
        yield from lifetime_errors(spec.expiration_seconds)

    def validate_update(
        self, new: CertificateSigningRequest, old: CertificateSigningRequest
    ) -> Iterator[FieldError]:
        # Spec and status are unchanged, and stored values stay writable.
        yield from ()

    def _signer_errors(self, name: str) -> Iterator[FieldError]:
        if name == self._legacy_signer:
            text = "the legacy signerName is not allowed via this API version"
            yield invalid(SIGNER_NAME, name, text)
        else:
            yield from signer_name_errors(SIGNER_NAME, name)


class ApprovalRules(Strategy[CertificateSigningRequest]):
    """The `approval` endpoint: adds and edits conditions, except Failed, which is the signer's."""

    def prepare_for_update(
        self, new: CertificateSigningRequest, old: CertificateSigningRequest, request: Request
    ) -> CertificateSigningRequest:
        return with_conditions(
            new, timed(new.status.conditions, old.status.conditions, request.now)
        )

    def validate_update(
        self, new: CertificateSigningRequest, old: CertificateSigningRequest
    ) -> Iterator[FieldError]:
        yield from condition_errors(new.status.conditions, old.status.conditions)
        yield from removal_errors(new.status.conditions, old.status.conditions)
        yield from addition_errors(new.status.conditions, old.status.conditions, FAILED)


class SigningRules(Strategy[CertificateSigningRequest]):
    """The `status` endpoint: adds an outcome, never a decision."""

    def prepare_for_update(
        self, new: CertificateSigningRequest, old: CertificateSigningRequest, request: Request
    ) -> CertificateSigningRequest:
        stored = old.status.conditions
        decided = with_stored_decision(new.status.conditions, stored)
        return with_conditions(new, timed(decided, stored, request.now))

    def validate_update(
        self, new: CertificateSigningRequest, old: CertificateSigningRequest
    ) -> Iterator[FieldError]:
        conditions, stored = new.status.conditions, old.status.conditions
        yield from condition_errors(conditions, stored)
        # A stored certificate may stay even if today's parser refuses it.
        if new.status.certificate != old.status.certificate:
            yield from certificate_errors(new.status.certificate)
        if conditions != stored:
            yield from removal_errors(conditions, stored)
            yield from addition_errors(conditions, stored, APPROVED, DENIED)
        if old.status.certificate and new.status.certificate != old.status.certificate:
            yield forbidden(CERTIFICATE, "updates may not modify existing certificate content")

    def validate_transition(
        self, new: CertificateSigningRequest, old: CertificateSigningRequest
    ) -> Iterator[FieldError]:
        yield from outcome_errors(new.status, old.status)


def declare(naming: Naming) -> Kind[CertificateSigningRequest]:
    return Kind(
        type=CertificateSigningRequest,
        group=naming.certificates,
        version="v1",
        known_versions=("v1beta1",),
        plural="certificatesigningrequests",
        scope=Scope.CLUSTER,
        rules=Rules(naming),
        short_names=("csr",),
        writes=("metadata",),
        creates=("metadata", "spec"),
        columns=COLUMNS,
        selectable={"spec.signerName": lambda csr: csr.spec.signer_name},
        records=decisions,
        note=notes(naming),
        endpoints=(
            Endpoint(
                "approval",
                writes=("metadata", "status.conditions"),
                rules=ApprovalRules(),
                has_table=False,
            ),
            Endpoint(
                "status",
                writes=("metadata", "status"),
                unowned=("status.conditions",),
                rules=SigningRules(),
            ),
        ),
    )


def decisions(
    new: CertificateSigningRequest | None, old: CertificateSigningRequest | None, request: Request
) -> Sequence[Fact]:
    """For the ledger: each approval and denial, once."""
    stored = old.status.conditions if old else ()
    if new is None or new.status.conditions == stored:
        return ()
    stored_types, spec = [*map(TYPE, stored)], new.spec
    return [
        Fact(
            entry_type,
            {
                "signer": spec.signer_name,
                "request": hashlib.sha256(spec.request or b"").hexdigest(),
            },
            {
                "name": new.name,
                "requester": spec.username,
                "decider": request.user.username,
            },
        )
        for type_, entry_type in DECISIONS.items()
        if new.has(type_) and type_ not in stored_types
    ]


def creators_in(csr: CertificateSigningRequest, notes: Mapping[str, str]) -> frozenset[str]:
    """Users who created a request: the requester and, if any, their impersonator."""
    return frozenset(filter(None, (csr.spec.username, notes.get(CREATED_BY))))


def notes(naming: Naming) -> Note[CertificateSigningRequest]:
    """Notes for four eyes and for the inventory; no client sees or writes them."""
    account = f"{ACCOUNT_PREFIX}{naming.system_namespace}:{APPROVING_ACCOUNT}"
    controllers = (account, naming.controller_manager_user)

    def note(
        new: CertificateSigningRequest, old: CertificateSigningRequest | None, request: Request
    ) -> dict[str, str] | None:
        caller, behind = request.user.username, request.real_user
        if old is None:
            return creation_notes(request, naming.credential_id)
        if old.has(APPROVED) or not new.has(APPROVED):
            return None  # an approval is final: a later edit of its condition approves nothing
        moment = timestamp(request.now)
        if behind:
            return {APPROVER: caller, IMPERSONATOR: behind.username, APPROVED_AT: moment}
        policy = new.approving_policy if caller in controllers else None
        if policy:
            return {APPROVER: caller, POLICY: policy[0]}
        ids = request.credential_ids(naming.credential_id)
        user = replace(request.user, extra={naming.credential_id: ids} if ids else {})
        return {
            APPROVER: caller,
            APPROVED_AT: moment,
            APPROVED_BY: msgspec.json.encode(user).decode(),
        }

    return note


# --- the outcome ------------------------------------------------------------------------------


def outcome_errors(
    new: CertificateSigningRequestStatus, old: CertificateSigningRequestStatus
) -> Iterator[FieldError]:
    """Only an approved request has an outcome, and only one: a certificate or Failed."""
    if new.certificate and not old.certificate:
        if not new.has(APPROVED):
            yield forbidden(CERTIFICATE, "a request without approval may not have a certificate")
        for type_ in (DENIED, FAILED):
            if new.has(type_):
                text = (
                    f"a request with a condition of type {quote(type_)} may not have a certificate"
                )
                yield forbidden(CERTIFICATE, text)
    if new.has(FAILED) and not old.has(FAILED):
        text = f"a condition of type {quote(FAILED)} may not be added to a request"
        if not new.has(APPROVED):
            yield forbidden(CONDITIONS, f"{text} without approval")
        if old.certificate:
            yield forbidden(CONDITIONS, f"{text} with a certificate")


# --- tables -----------------------------------------------------------------------------------


def state_text(csr: CertificateSigningRequest) -> str:
    """The state of a request for a table cell: `Approved,Issued`."""
    state = DENIED if csr.has(DENIED) else APPROVED if csr.has(APPROVED) else "Pending"
    if csr.has(FAILED):
        state += ",Failed"
    return f"{state},Issued" if csr.is_issued else state


def lifetime_text(seconds: int | None) -> str:
    return "<none>" if seconds is None else human_duration(seconds)


COLUMNS: Final = (
    NAME,
    AGE,
    Column(
        "SignerName",
        lambda csr, now: csr.spec.signer_name or "<none>",
        description="The signer.",
    ),
    Column("Requestor", lambda csr, now: csr.spec.username, description="The requester."),
    Column(
        "RequestedDuration",
        lambda csr, now: lifetime_text(csr.spec.expiration_seconds),
        description="The requested lifetime.",
    ),
    Column(
        "Condition",
        lambda csr, now: state_text(csr),
        description="The decision and the outcome.",
    ),
)
