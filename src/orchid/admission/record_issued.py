"""Every certificate that a signer of ours hands out is recorded, in the same commit.

When a request gets its certificate, its IssuedCertificate is stored together with it: either both
are there, or neither. It does not matter who wrote the certificate, only for which signer it is.
Who approved the request was noted with it (`Kind.note`) by the server that took the approval. A
record stays until its certificate has ended. Start with `RecordIssued.companions`.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from orchid.credentials.issued_facts import IssuedFacts, IssuedReader
from orchid.credentials.refusals import Refusal
from orchid.engine.cache.kind_cache import KindCache
from orchid.engine.interfaces import AdmissionPolicy, Randomness
from orchid.engine.kind import Kind
from orchid.engine.request import Request
from orchid.kinds.certificate_signing_request import (
    APPROVER,
    IMPERSONATOR,
    POLICY,
    CertificateSigningRequest,
)
from orchid.kinds.issued_certificate import (
    Approval,
    Approver,
    CertificateKey,
    IssuedCertificate,
    IssuedCertificateSpec,
    IssuedFor,
    Requester,
)
from orchid.wire.errors import Forbidden, Invalid
from orchid.wire.fields import Path, invalid
from orchid.wire.meta import Object, ObjectMeta
from orchid.wire.request_conditions import APPROVED, CertificateSigningRequestCondition
from orchid.wire.text import timestamp, whole_seconds

CERTIFICATE = Path() / "status" / "certificate"


class RecordIssued(AdmissionPolicy):
    accompanies = (CertificateSigningRequest,)
    reviews = (IssuedCertificate,)

    def __init__(
        self,
        records: KindCache[IssuedCertificate],
        requests: KindCache[CertificateSigningRequest],
        is_ours: Callable[[str], bool],
        revoked_until: Callable[[str], datetime | None],
        randomness: Randomness,
    ) -> None:
        """`is_ours`: whether a signer, by its name, is one of this server's. `revoked_until`: the
        last second whose certificates of a signer are taken back.
        """
        self._records = records
        self._requests = requests
        self._is_ours = is_ours
        self._revoked_until = revoked_until
        self._random = randomness
        self._reader = IssuedReader()

    async def companions(
        self, request: Request, kind: Kind[Any], new: Any, old: Any
    ) -> tuple[Object, ...]:
        chain = new.status.certificate
        if not chain or chain == old.status.certificate or not self._is_ours(new.spec.signer_name):
            return ()
        try:
            facts = self._reader.read(chain)
        except Refusal as refusal:
            raise Invalid(
                kind.about_kind(new.name),
                [invalid(CERTIFICATE, "<certificate data>", str(refusal))],
            ) from None
        known = self._records.get("", facts.serial)
        if known is None:
            return (self._record(new, facts, request),)
        if known.object.spec.sha256 != facts.sha256:
            text = f"another certificate has the serial number {facts.serial}"
            raise Invalid(
                kind.about_kind(new.name), [invalid(CERTIFICATE, "<certificate data>", text)]
            )
        return ()

    async def review(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> None:
        if new is None and old.spec.not_after and old.spec.not_after > request.now:
            raise Forbidden(
                kind.about(old.name),
                f"the certificate is valid until {timestamp(old.spec.not_after)}",
            )

    def _issued(self, signer: str, now: datetime) -> datetime:
        """The time of issue: now, but later than what is revoked of the signer, to the second."""
        until, moment = self._revoked_until(signer), whole_seconds(now)
        return moment if until is None or moment > until else until + timedelta(seconds=1)

    def _record(
        self, csr: CertificateSigningRequest, facts: IssuedFacts, request: Request
    ) -> IssuedCertificate:
        kind = self._records.kind
        return IssuedCertificate(
            kind=kind.name,
            api_version=kind.api_version,
            metadata=ObjectMeta(
                name=facts.serial,
                uid=self._random.uid(),
                creation_timestamp=self._issued(csr.spec.signer_name, request.now),
            ),
            spec=self._spec(csr, facts),
        )

    def _spec(self, csr: CertificateSigningRequest, facts: IssuedFacts) -> IssuedCertificateSpec:
        """What the certificate itself says, and how it came about."""
        asked = csr.spec
        for approved in csr.status.conditions:
            if approved.type == APPROVED:
                break
        else:
            approved = CertificateSigningRequestCondition()
        # Should the request have changed since it was read, the commit fails and all is done anew.
        entry = self._requests.get("", csr.metadata.name)
        noted = entry.noted() if entry else {}
        return IssuedCertificateSpec(
            signer_name=asked.signer_name,
            serial_number=facts.serial,
            sha256=facts.sha256,
            subject=facts.subject,
            names=facts.names,
            usages=facts.usages,
            key=CertificateKey(algorithm=facts.key_algorithm, sha256=facts.key_sha256),
            authority_key=facts.authority_key,
            not_before=facts.not_before,
            not_after=facts.not_after,
            request=IssuedFor(name=csr.metadata.name, uid=csr.metadata.uid),
            requester=Requester(username=asked.username, uid=asked.uid, groups=asked.groups),
            approver=Approver(
                username=noted.get(APPROVER, ""),
                policy=noted.get(POLICY, ""),
                impersonator=noted.get(IMPERSONATOR, ""),
            ),
            approval=Approval(reason=approved.reason, message=approved.message),
            certificate=facts.data,
        )
