"""IssuedCertificate: the inventory. One object per certificate issued by this server.

Its name is the serial number in lower-case hex. It is written in the same commit as the
certificate of the request (features/certificates/policies/record_issued.py), so that every
certificate is recorded. Clients cannot create or edit it, except that a controller records the
certificates of clusters (features/clusters/kinds/cluster.py), under names of their own.
features/revoking/controllers/mark_revoked.py writes `status`, and
features/certificates/controllers/clean_issued.py deletes it some time after the certificate has
expired. It holds no secret.
"""

from datetime import datetime
from typing import Annotated, Final

from msgspec import field

from orchid.kernel.credentials.x509.issued_facts import IssuedFacts, common_name_of
from orchid.kernel.engine.kind import Column, Endpoint, Kind, Scope
from orchid.kernel.engine.ledger.entries import Fact
from orchid.kernel.engine.request import Request
from orchid.kernel.engine.tables import AGE, NAME
from orchid.kernel.wire.meta import Object, ObjectMeta, Time
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.struct import Wire, always, describe, null, proto
from orchid.kernel.wire.text import human_duration
from orchid.kernel.wire.user import UserInfo

ISSUED: Final = "certificate.issued"


class CertificateKey(Wire):
    """The public key of a certificate."""

    algorithm: Annotated[str, proto(1), describe("Algorithm and size: ECDSA-P256, RSA-2048.")] = ""
    sha256: Annotated[str, proto(2), describe("SHA-256 of the public key (SPKI), in hex.")] = ""


OWN_CERTIFICATE: Final = "OwnCertificate"  # the reason of certificates that a server made itself


class IssuedFor(Wire):
    """The request that the certificate was issued for."""

    name: Annotated[
        str,
        proto(1),
        describe("The name of the request; of a Pod's, namespace/name."),
    ] = ""
    uid: Annotated[str, proto(2), describe("The uid of the request.")] = ""
    created: Annotated[
        Time | None, proto(3), describe("When a request in another cluster was created.")
    ] = None


class Requester(Wire):
    """The requester of the certificate."""

    username: Annotated[str, proto(1), describe("The name of the requester.")] = ""
    uid: Annotated[str, proto(2), describe("The uid of the requester.")] = ""
    groups: Annotated[tuple[str, ...], proto(3), describe("The groups of the requester.")] = ()
    node_name: Annotated[
        str, proto(4), describe("The Node of the Pod whose token the requester used, if any.")
    ] = ""

    def is_same(self, user: UserInfo) -> bool:
        """Whether it is this user, and not an earlier account of that name."""
        return (self.username, self.uid) == (user.username, user.uid)


class Approver(Wire):
    """The approver of the request."""

    username: Annotated[
        str, proto(1), describe("The name of the approver; of a controller if by policy.")
    ] = ""
    policy: Annotated[
        str,
        proto(2),
        describe("The ApprovalPolicy, as reported by the approving controller."),
    ] = ""
    impersonator: Annotated[
        str, proto(3), describe("The impersonator of the approver, if any.")
    ] = ""
    uid: Annotated[str, proto(4), describe("The uid of the approver, if a person approved.")] = ""
    groups: Annotated[
        tuple[str, ...], proto(5), describe("The groups of the approver, if a person approved.")
    ] = ()
    credential_ids: Annotated[
        tuple[str, ...],
        proto(6),
        describe("The ids of the credential with which a person approved, and of its token key."),
    ] = field(name="credentialIDs", default=())


class Approval(Wire):
    """The condition Approved of the request."""

    reason: Annotated[str, proto(1), describe("The reason in the condition.")] = ""
    message: Annotated[
        str, proto(2), describe("The message in the condition; it names the policy, if any.")
    ] = ""
    time: Annotated[Time | None, proto(3), describe("When it was approved by a person.")] = None


class IssuedPod(Wire):
    """The Pod that a certificate belongs to: it is accepted while this Pod exists."""

    namespace: Annotated[str, proto(1), describe("The namespace of the Pod.")] = ""
    name: Annotated[str, proto(2), describe("The name of the Pod.")] = ""
    uid: Annotated[str, proto(3), describe("The uid of the Pod.")] = ""
    node_name: Annotated[str, proto(4), describe("The Node of the Pod.")] = ""


class IssuedCertificateSpec(Wire):
    """The certificate, its requester and its approval. Immutable."""

    signer_name: Annotated[str, proto(1), describe("The signer.")] = always(str)
    serial_number: Annotated[str, proto(2), describe("The serial number, in hex.")] = always(str)
    sha256: Annotated[str, proto(3), describe("SHA-256 of the certificate, in hex.")] = always(str)
    subject: Annotated[str, proto(4), describe("The subject.")] = ""
    names: Annotated[tuple[str, ...], proto(5), describe("DNS names, addresses and URIs.")] = ()
    usages: Annotated[tuple[str, ...], proto(6), describe("The key usages.")] = ()
    key: Annotated[CertificateKey, proto(7), describe("Its public key.")] = field(
        default_factory=CertificateKey
    )
    authority_key: Annotated[
        str, proto(8), describe("The identifier of the key that signed it, in hex.")
    ] = ""
    not_before: Annotated[Time | None, proto(9), describe("The start of its validity.")] = always(
        null
    )
    not_after: Annotated[Time | None, proto(10), describe("The end of its validity.")] = always(
        null
    )
    request: Annotated[IssuedFor, proto(11), describe("The request.")] = field(
        default_factory=IssuedFor
    )
    requester: Annotated[Requester, proto(12), describe("The requester.")] = field(
        default_factory=Requester
    )
    approver: Annotated[Approver, proto(15), describe("The approver.")] = field(
        default_factory=Approver
    )
    approval: Annotated[Approval, proto(13), describe("The approval.")] = field(
        default_factory=Approval
    )
    certificate: Annotated[bytes, proto(14), describe("The certificate: DER, in base64.")] = b""
    cluster: Annotated[
        str, proto(16), describe("The Cluster that issued it; empty for a signer of this server.")
    ] = ""
    cluster_uid: Annotated[
        str, proto(20), describe("The uid of the Cluster; the server fills it in.")
    ] = field(default="", name="clusterUID")
    pod: Annotated[
        IssuedPod | None,
        proto(17),
        describe("The Pod that it belongs to, if a PodCertificateRequest led to it."),
    ] = None
    intermediate: Annotated[
        str,
        proto(18),
        describe("The SigningKey that it certifies, if it is of an intermediate authority."),
    ] = ""
    username: Annotated[
        str,
        proto(19),
        describe("The user that a client certificate authenticates: the common name."),
    ] = ""


class Revoked(Wire):
    """Time and reason of a revocation."""

    time: Annotated[Time | None, proto(1), describe("The time of the revocation.")] = always(null)
    reason: Annotated[str, proto(2), describe("The reason, as named in RFC 5280.")] = ""


class IssuedCertificateStatus(Wire):
    """The revocation, if any."""

    revoked: Annotated[Revoked | None, proto(1), describe("Time and reason of the revocation.")] = (
        None
    )


class IssuedCertificate(Object):
    """A certificate issued by this server. Written only by the server."""

    spec: Annotated[IssuedCertificateSpec, proto(2), describe("The certificate.")] = field(
        default_factory=IssuedCertificateSpec
    )
    status: Annotated[IssuedCertificateStatus, proto(3), describe("The revocation, if any.")] = (
        field(default_factory=IssuedCertificateStatus)
    )

    @property
    def username(self) -> str:
        """The user that a client certificate authenticates: the common name.

        Earlier versions did not record it: it is read from the certificate. Never from the text of
        the subject, where a comma or a line of another attribute can look like a common name.
        """
        spec = self.spec
        if spec.username or "CN=" not in spec.subject or not spec.certificate:
            return spec.username
        return common_name_of(spec.certificate)


def cluster_record_name(cluster: str, sha256: str) -> str:
    """The name of the record of a certificate that a cluster issued.

    It has a dot, which no serial number has. The serial number is not used: signers of the cluster
    choose it.
    """
    return f"{cluster}.{sha256}"


def declare(naming: Naming) -> Kind[IssuedCertificate]:
    return Kind(
        type=IssuedCertificate,
        group=naming.identity,
        version="v1alpha1",
        versions=("v1",),
        plural="issuedcertificates",
        short_names=("ic",),
        scope=Scope.CLUSTER,
        verbs=("create", "delete", "get", "list", "watch"),
        refuses_owners=lambda _: True,
        writes=(),
        # Of clusters only: see features/clusters/policies/cluster_records.py.
        creates=("metadata", "spec"),
        columns=COLUMNS,
        selectable={
            "spec.signerName": lambda record: record.spec.signer_name,
            "spec.sha256": lambda record: record.spec.sha256,
            "spec.authorityKey": lambda record: record.spec.authority_key,
            "spec.requester.username": lambda record: record.spec.requester.username,
            "spec.requester.nodeName": lambda record: record.spec.requester.node_name,
            "spec.request.name": lambda record: record.spec.request.name,
            "spec.cluster": lambda record: record.spec.cluster,
            "status.revoked": lambda record: "true" if record.status.revoked else "false",
        },
        sparse=("status.revoked",),
        records=issuance,
        endpoints=(Endpoint("status", writes=("status",), verbs=("get", "update")),),
    )


def record_of(
    kind: Kind[IssuedCertificate],
    facts: IssuedFacts,
    *,
    uid: str,
    issued: datetime,
    signer_name: str,
    requester: Requester,
    approval: Approval | None = None,
    approver: Approver | None = None,
    request: IssuedFor | None = None,
    pod: IssuedPod | None = None,
    intermediate: str = "",
) -> IssuedCertificate:
    """The record of a certificate: its contents, and the request and approval that led to it."""
    return IssuedCertificate(
        kind=kind.name,
        api_version=kind.api_version,
        metadata=ObjectMeta(name=facts.serial, uid=uid, creation_timestamp=issued),
        spec=IssuedCertificateSpec(
            signer_name=signer_name,
            serial_number=facts.serial,
            sha256=facts.sha256,
            subject=facts.subject,
            username=facts.username,
            names=facts.names,
            usages=facts.usages,
            key=CertificateKey(algorithm=facts.key_algorithm, sha256=facts.key_sha256),
            authority_key=facts.authority_key,
            not_before=facts.not_before,
            not_after=facts.not_after,
            request=request or IssuedFor(),
            requester=requester,
            approver=approver or Approver(),
            approval=approval or Approval(),
            certificate=facts.data,
            pod=pod,
            intermediate=intermediate,
        ),
    )


def issuance(
    new: IssuedCertificate | None, old: IssuedCertificate | None, request: Request
) -> tuple[Fact, ...]:
    """For the ledger: each certificate once; its subject is sealed."""
    return () if new is None or old is not None else (_fact(new),)


def restored(record: IssuedCertificate) -> Fact:
    """For the ledger: a record that was missing in a restored backup and was added again."""
    return _fact(record, restored=True)


def _fact(record: IssuedCertificate, **more: bool | str) -> Fact:
    spec = record.spec
    return Fact(
        ISSUED,
        {
            "serial": spec.serial_number,
            "signer": spec.signer_name,
            "sha256": spec.sha256,
            "notAfter": spec.not_after,
            **({"cluster": spec.cluster} if spec.cluster else {}),
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
    Column("Signer", lambda one, now: one.spec.signer_name, description="The signer."),
    Column(
        "Subject",
        lambda one, now: one.spec.subject or next(iter(one.spec.names), ""),
        description="The subject, or the first alternative name if it is empty.",
    ),
    Column("Requester", lambda one, now: one.spec.requester.username, description="The requester."),
    Column(
        "Expires",
        lambda one, now: _until(one.spec.not_after, now),
        description="The time until it expires.",
    ),
    Column(
        "Revoked",
        lambda one, now: one.status.revoked.reason if one.status.revoked else "",
        description="The reason of the revocation.",
    ),
    AGE,
)


def _until(end: Time | None, now: Time) -> str:
    if end is None:
        return "<unknown>"
    left = (end - now).total_seconds()
    return human_duration(left) if left > 0 else "ended"
