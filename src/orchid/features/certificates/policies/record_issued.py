"""Every certificate of a signer of this server is recorded, in the same commit.

When a request gets its certificate, its IssuedCertificate is stored in the same transaction. It
does not matter which client writes the certificate, only that the signer's authority issued it, for
the key of the request: users who may revoke by the record may revoke the certificate, so a record
of another party's certificate would give them power over that party.

A certificate that the authority did not issue is refused if a CertificateAuthority has the signer.
For a platform signer it is accepted without a record, with a warning: Kubernetes lets another
program sign for those. Signers that are not ours have no records.

A certificate for a key that is revoked as compromised is refused, with the cause `KeyCompromised`:
its thief, or its owner by mistake, would go on with the key. The signing controllers let such a
request fail.

The approver is in a note of the request (`Kind.note`), written by the server that processed the
approval. A record stays until its certificate has expired. Start with `RecordIssued.companions`.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import msgspec
from cryptography import x509

from orchid.features.certificates.kinds.certificate_signing_request import (
    APPROVED_AT,
    APPROVED_BY,
    APPROVER,
    IMPERSONATOR,
    POLICY,
    CertificateSigningRequest,
)
from orchid.features.certificates.kinds.issued_certificate import (
    Approval,
    Approver,
    IssuedCertificate,
    IssuedFor,
    IssuedPod,
    Requester,
    record_of,
)
from orchid.features.certificates.kinds.pod_certificate_request import (
    REQUESTER,
    PodCertificateRequest,
)
from orchid.features.certificates.rules.pod_certificates import CHAIN
from orchid.kernel.base.clock import until_reached, whole_seconds
from orchid.kernel.base.scheduling.batched_work import BatchedWork
from orchid.kernel.credentials.authorities.issuer_chain import is_issued_by, spki_of
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import signing_request
from orchid.kernel.credentials.x509.issued_facts import IssuedFacts, read_issued
from orchid.kernel.engine.cache.kind_cache import KindCache
from orchid.kernel.engine.interfaces import AdmissionPolicy, Randomness
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.errors import Forbidden, Invalid, Unavailable
from orchid.kernel.wire.fields import Path, invalid
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.request_conditions import (
    APPROVED,
    KEY_COMPROMISED,
    CertificateSigningRequestCondition,
)
from orchid.kernel.wire.status import StatusCause
from orchid.kernel.wire.text import timestamp
from orchid.kernel.wire.user import UserInfo

CERTIFICATE = Path() / "status" / "certificate"


class Issuers(NamedTuple):
    """The issuing certificates for a signer of ours."""

    certificates: Sequence[x509.Certificate]
    is_platform: bool  # another program may sign for it


class RecordIssued(AdmissionPolicy):
    accompanies = (CertificateSigningRequest, PodCertificateRequest)
    reviews = (IssuedCertificate,)

    def __init__(
        self,
        records: KindCache[IssuedCertificate],
        requests: KindCache[CertificateSigningRequest],
        issuers_of: Callable[[str], Issuers | None],
        revoked_until: Callable[[str, str], tuple[datetime | None, int]],
        randomness: Randomness,
        *,
        pod_requests: KindCache[PodCertificateRequest],
        account_until: Callable[[tuple[str, str]], int],
        key_problem: Callable[[str], str],
        naming: Naming,
    ) -> None:
        """`issuers_of`: the issuers of a signer, None if the signer is not ours. `revoked_until`:
        the last second whose certificates of a signer are revoked, and whose credentials of a user.
        `account_until`: the last second whose credentials of an account are revoked. `key_problem`:
        why nothing is issued for a public key (SHA-256), or "".
        """
        self._records = records
        self._requests = requests
        self._issuers_of = issuers_of
        self._revoked_until = revoked_until
        self._random = randomness
        self._pod_requests = pod_requests
        self._account_until = account_until
        self._key_problem = key_problem
        self._node_name, self._credential_id = naming.node_name_extra, naming.credential_id
        self._verifications = BatchedWork()

    async def companions(
        self, request: Request, kind: Kind[Any], new: Any, old: Any
    ) -> tuple[Object, ...]:
        if isinstance(new, PodCertificateRequest):
            chain = new.status.certificate_chain.encode()
            is_new = new.status.certificate_chain != old.status.certificate_chain
        else:
            chain = new.status.certificate
            is_new = chain != old.status.certificate
        if not chain or not is_new:
            return ()
        issuers = self._issuers_of(new.spec.signer_name)
        if issuers is None:
            return ()
        try:
            facts = read_issued(chain)
        except Refusal as refusal:
            raise _refused(kind, new, str(refusal)) from None
        recorded = self._records.get("", facts.serial)
        if recorded is not None and recorded.object.spec.sha256 != facts.sha256:
            text = f"another certificate has the serial number {facts.serial}"
            raise _refused(kind, new, text)
        problem = await self._verifications.run(partial(_foreign, new, facts, issuers))
        if problem and not issuers.is_platform:
            raise _refused(kind, new, problem)
        if problem:
            request.warn(f"the certificate is not recorded: {problem}")
        if problem or recorded:
            return ()
        self._refuse_ended_key(kind, new, facts.key_sha256)
        if isinstance(new, PodCertificateRequest):
            record = self._pod_record(new, facts, request)
        else:
            record = self._record(new, facts, request)
        # Not stored before its time of issue: a revocation until then would not apply to it.
        issued = record.metadata.creation_timestamp
        if issued and issued > request.now and not await until_reached(issued, request.now):
            raise Unavailable("certificates were revoked just now; try again")
        return (record,)

    def _refuse_ended_key(self, kind: Kind[Any], new: Object, sha256: str) -> None:
        if problem := self._key_problem(sha256):
            cause = StatusCause(reason=KEY_COMPROMISED, message=problem)
            raise Forbidden(kind.about(new.name), problem, cause)

    async def review(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> None:
        if old is None or old.spec.cluster:
            return  # see features/clusters/policies/cluster_records.py
        if new is None and old.spec.not_after and old.spec.not_after > request.now:
            raise Forbidden(
                kind.about(old.name),
                f"the certificate is valid until {timestamp(old.spec.not_after)}",
            )

    def _issued(self, signer: str, username: str, now: datetime) -> tuple[datetime, int]:
        """The time of issue: now, but after the revoked certificates of the signer, in seconds.

        And the last second whose credentials of the user are revoked.
        """
        moment = whole_seconds(now)
        until, user_until = self._revoked_until(signer, username)
        if until is not None and moment <= until:
            moment = until + timedelta(seconds=1)
        return moment, user_until

    def _issued_to_user(
        self, csr: CertificateSigningRequest, facts: IssuedFacts, now: datetime
    ) -> datetime:
        """The time of issue, in view of the revocations of the user that the certificate names.

        What a user requested before a revocation for the same user was requested with a revoked
        credential: it is among the revoked. What others requested in that second is not.
        """
        issued, until = self._issued(csr.spec.signer_name, facts.username, now)
        created = csr.metadata.creation_timestamp
        if until < 0:
            return issued
        if csr.spec.username != facts.username:
            return issued + timedelta(seconds=1) if issued.timestamp() == until else issued
        if created is not None and created.timestamp() < until + 1:
            return min(issued, datetime.fromtimestamp(until, UTC))
        return issued

    def _record(
        self, csr: CertificateSigningRequest, facts: IssuedFacts, request: Request
    ) -> IssuedCertificate:
        """The record: contents of the certificate, its request and its approval."""
        asked = csr.spec
        for approved in csr.status.conditions:
            if approved.type == APPROVED:
                break
        else:
            approved = CertificateSigningRequestCondition()
        # If the request changes after this read, the commit fails and the update is repeated.
        entry = self._requests.get("", csr.metadata.name)
        notes = entry.notes() if entry else {}
        return record_of(
            self._records.kind,
            facts,
            uid=self._random.uid(),
            issued=self._issued_to_user(csr, facts, request.now),
            signer_name=asked.signer_name,
            request=IssuedFor(name=csr.metadata.name, uid=csr.metadata.uid),
            requester=Requester(
                username=asked.username,
                uid=asked.uid,
                groups=asked.groups,
                node_name=next(iter(asked.extra.get(self._node_name, ())), ""),
            ),
            approver=self._approver(notes),
            approval=Approval(
                reason=approved.reason,
                message=approved.message,
                time=datetime.fromisoformat(notes[APPROVED_AT]) if APPROVED_AT in notes else None,
            ),
        )

    def _approver(self, notes: Mapping[str, str]) -> Approver:
        """The approver, with all that decides later whether the approval still counts."""
        user = msgspec.json.decode(notes.get(APPROVED_BY, "{}"), type=UserInfo)
        return Approver(
            username=notes.get(APPROVER, ""),
            policy=notes.get(POLICY, ""),
            impersonator=notes.get(IMPERSONATOR, ""),
            uid=user.uid,
            groups=user.groups,
            credential_ids=user.extra.get(self._credential_id, ()),
        )

    def _pod_record(
        self, new: PodCertificateRequest, facts: IssuedFacts, request: Request
    ) -> IssuedCertificate:
        """The record of a Pod's certificate. Its requester is the creator of the request."""
        spec, namespace = new.spec, new.namespace
        entry = self._pod_requests.get(namespace, new.name)
        notes = entry.notes() if entry else {}
        issued, _ = self._issued(spec.signer_name, facts.username, request.now)
        until = self._account_until((namespace, spec.service_account_name))
        return record_of(
            self._records.kind,
            facts,
            uid=self._random.uid(),
            issued=max(issued, datetime.fromtimestamp(until + 1, UTC)),
            signer_name=spec.signer_name,
            # The name of a CertificateSigningRequest has no slash: they cannot be confused.
            request=IssuedFor(name=f"{namespace}/{new.name}", uid=new.metadata.uid),
            requester=Requester(username=notes.get(REQUESTER, "")),
            pod=IssuedPod(
                namespace=namespace,
                name=spec.pod_name,
                uid=spec.pod_uid,
                node_name=spec.node_name,
            ),
        )


def _foreign(
    csr: CertificateSigningRequest | PodCertificateRequest, facts: IssuedFacts, issuers: Issuers
) -> str:
    """Why a certificate is not one that the signer issued for the request; "" if it is."""
    signer = csr.spec.signer_name
    if not issuers.certificates:
        return f"the authority of {signer} has no certificate"
    try:
        if isinstance(csr, PodCertificateRequest):
            key = signing_request.parse_der_once(csr.spec.stub_pkcs10_request or b"").spki
        else:
            key = signing_request.parse_once(csr.spec.request or b"").spki
    except Refusal as refusal:
        return str(refusal)
    # Equal bytes are the same key, and need not be parsed.
    if facts.key != key and spki_of(facts.certificate) != key:
        return "it is for another key than the request"
    if not any(is_issued_by(facts.certificate, each) for each in issuers.certificates):
        return f"the authority of {signer} did not issue it"
    return ""


def _refused(kind: Kind[Any], new: Object, text: str) -> Invalid:
    path = CHAIN if isinstance(new, PodCertificateRequest) else CERTIFICATE
    return Invalid(kind.about_kind(new.name), [invalid(path, "<certificate data>", text)])
