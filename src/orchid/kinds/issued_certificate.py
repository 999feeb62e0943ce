"""IssuedCertificate: the inventory. One object for each certificate that a signer of ours made.

Its name is the serial number in lower-case hex. The server writes it in the same commit as the
certificate goes into its request (admission/record_issued.py), so that nothing is handed out that
is not recorded. Nobody creates or edits one; `status` says whether the certificate was taken back
and is written by controllers/mark_revoked.py. It goes some time after the certificate's end
(controllers/clean_issued.py). There is no secret in it.
"""

from typing import Annotated, Final

from msgspec import field

from orchid.engine.kind import Column, Endpoint, Kind, Scope
from orchid.engine.request import Request
from orchid.engine.tables import AGE, NAME
from orchid.ledger.entries import Fact
from orchid.wire.meta import Object, Time
from orchid.wire.naming import Naming
from orchid.wire.struct import Wire, always, describe, null, proto
from orchid.wire.text import human_duration

ISSUED: Final = "certificate.issued"


class CertificateKey(Wire):
    """The public key of a certificate."""

    algorithm: Annotated[str, proto(1), describe("Sort and size: ECDSA-P256, RSA-2048.")] = ""
    sha256: Annotated[str, proto(2), describe("SHA-256 of the public key (SPKI), in hex.")] = ""


class IssuedFor(Wire):
    """The request that the certificate was issued for."""

    name: Annotated[str, proto(1), describe("The name of the request.")] = ""
    uid: Annotated[str, proto(2), describe("The uid of the request.")] = ""


class Requester(Wire):
    """Who asked for the certificate."""

    username: Annotated[str, proto(1), describe("The name of the one who asked.")] = ""
    uid: Annotated[str, proto(2), describe("The uid of the one who asked.")] = ""
    groups: Annotated[tuple[str, ...], proto(3), describe("Their groups.")] = ()


class Approver(Wire):
    """Who approved the request."""

    username: Annotated[
        str, proto(1), describe("The name of the one who approved; a controller's if a policy did.")
    ] = ""
    policy: Annotated[
        str,
        proto(2),
        describe("The ApprovalPolicy that approved, as the approving controller said."),
    ] = ""
    impersonator: Annotated[
        str, proto(3), describe("Who acted under that name, if somebody impersonated them.")
    ] = ""


class Approval(Wire):
    """Why the request was approved, as its condition says."""

    reason: Annotated[str, proto(1), describe("The reason in the condition.")] = ""
    message: Annotated[
        str, proto(2), describe("The message in the condition; it names the policy, if one did.")
    ] = ""


class IssuedCertificateSpec(Wire):
    """What was issued, to whom, and why. It never changes."""

    signer_name: Annotated[str, proto(1), describe("Who signed it.")] = always(str)
    serial_number: Annotated[str, proto(2), describe("Its number, in hex.")] = always(str)
    sha256: Annotated[str, proto(3), describe("SHA-256 of the certificate, in hex.")] = always(str)
    subject: Annotated[str, proto(4), describe("Whom it names.")] = ""
    names: Annotated[
        tuple[str, ...], proto(5), describe("Hosts, addresses and URIs that it is for.")
    ] = ()
    usages: Annotated[tuple[str, ...], proto(6), describe("What its key may do.")] = ()
    key: Annotated[CertificateKey, proto(7), describe("Its public key.")] = field(
        default_factory=CertificateKey
    )
    authority_key: Annotated[
        str, proto(8), describe("The identifier of the key that signed it, in hex.")
    ] = ""
    not_before: Annotated[Time | None, proto(9), describe("When it begins.")] = always(null)
    not_after: Annotated[Time | None, proto(10), describe("When it ends.")] = always(null)
    request: Annotated[IssuedFor, proto(11), describe("The request that led to it.")] = field(
        default_factory=IssuedFor
    )
    requester: Annotated[Requester, proto(12), describe("Who asked for it.")] = field(
        default_factory=Requester
    )
    approver: Annotated[Approver, proto(15), describe("Who approved it.")] = field(
        default_factory=Approver
    )
    approval: Annotated[Approval, proto(13), describe("Why it was approved.")] = field(
        default_factory=Approval
    )
    certificate: Annotated[
        bytes, proto(14), describe("The certificate itself, in DER, in base64.")
    ] = b""


class Revoked(Wire):
    """That the certificate was taken back."""

    time: Annotated[Time | None, proto(1), describe("Since when.")] = always(null)
    reason: Annotated[str, proto(2), describe("Why, by the names of RFC 5280.")] = ""


class IssuedCertificateStatus(Wire):
    """What became of the certificate."""

    revoked: Annotated[
        Revoked | None, proto(1), describe("Since when and why it is no longer good.")
    ] = None


class IssuedCertificate(Object):
    """A certificate that a signer of this server issued. Written by the server alone."""

    spec: Annotated[IssuedCertificateSpec, proto(2), describe("What was issued.")] = field(
        default_factory=IssuedCertificateSpec
    )
    status: Annotated[IssuedCertificateStatus, proto(3), describe("What became of it.")] = field(
        default_factory=IssuedCertificateStatus
    )


def declare(names: Naming) -> Kind[IssuedCertificate]:
    return Kind(
        type=IssuedCertificate,
        group=names.identity,
        version="v1alpha1",
        plural="issuedcertificates",
        scope=Scope.CLUSTER,
        verbs=("delete", "get", "list", "watch"),
        writes=(),
        columns=COLUMNS,
        selectable={
            "spec.signerName": lambda one: one.spec.signer_name,
            "spec.sha256": lambda one: one.spec.sha256,
            "spec.requester.username": lambda one: one.spec.requester.username,
            "spec.request.name": lambda one: one.spec.request.name,
            "status.revoked": lambda one: "true" if one.status.revoked else "false",
        },
        sparse=("status.revoked",),
        records=issuance,
        endpoints=(Endpoint("status", writes=("status",), verbs=("get", "update")),),
    )


def issuance(
    new: IssuedCertificate | None, old: IssuedCertificate | None, request: Request
) -> tuple[Fact, ...]:
    """For the ledger: each certificate, once; whom it names is sealed."""
    return () if new is None or old is not None else (_fact(new),)


def restored(record: IssuedCertificate) -> Fact:
    """For the ledger: a record that a restored backup lacked, and that was kept."""
    return _fact(record, restored=True)


def _fact(record: IssuedCertificate, **more: bool) -> Fact:
    spec = record.spec
    return Fact(
        ISSUED,
        {
            "serial": spec.serial_number,
            "signer": spec.signer_name,
            "sha256": spec.sha256,
            "notAfter": spec.not_after,
            **more,
        },
        {
            "subject": spec.subject,
            "names": spec.names,
            "requester": spec.requester.username,
        },
    )


COLUMNS: Final = (
    NAME,
    Column("Signer", lambda one, now: one.spec.signer_name, description="Who signed it."),
    Column(
        "Subject",
        lambda one, now: one.spec.subject or next(iter(one.spec.names), ""),
        description="Whom it names: the subject, or the first alternative name if it has none.",
    ),
    Column(
        "Requester", lambda one, now: one.spec.requester.username, description="Who asked for it."
    ),
    Column(
        "Expires",
        lambda one, now: _until(one.spec.not_after, now),
        description="How long it is still valid.",
    ),
    Column(
        "Revoked",
        lambda one, now: one.status.revoked.reason if one.status.revoked else "",
        description="Why it was taken back, if it was.",
    ),
    AGE,
)


def _until(end: Time | None, now: Time) -> str:
    if end is None:
        return "<unknown>"
    left = (end - now).total_seconds()
    return human_duration(left) if left > 0 else "ended"
