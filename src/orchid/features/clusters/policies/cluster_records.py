"""Records of certificates that a cluster issued: what the server checks and fills in.

A controller creates them (features/clusters/controllers/record_cluster_certificates.py). The
certificate must be one that a client authority of the cluster issued, and the server reads all that
it says from its bytes; the request and the requester are taken as they were sent. Certificates of
our own signers are recorded by the server alone (features/certificates/policies/record_issued.py):
nobody can create such a record.

A cluster has as many certificates as it wants, with any end: its records have a limit in number and
in bytes, and none stays after the authorities of the cluster have ended.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, NoReturn

from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    cluster_record_name,
    record_of,
)
from orchid.features.clusters.kinds.cluster import (
    Cluster,
    authorities_end,
    is_of,
    record_end,
)
from orchid.kernel.credentials.refusals import CertificateRefused, Refusal, library_errors_as
from orchid.kernel.credentials.x509 import certificates, pem
from orchid.kernel.credentials.x509.issued_facts import IssuedFacts, read_issued
from orchid.kernel.credentials.x509.trust.verified_chain import has_issued, refuse_other_encodings
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.interfaces import AdmissionPolicy
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.errors import Forbidden, Invalid
from orchid.kernel.wire.fields import FieldError, Path, invalid, not_found, required
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.text import timestamp

SPEC = Path() / "spec"
CERTIFICATE = SPEC / "certificate"
MOST_RECORDS: Final = 10_000  # of one cluster
MOST_BYTES: Final = 32 << 20  # of these records, as stored


class ClusterRecords(AdmissionPolicy):
    admits = (IssuedCertificate,)
    reviews = (IssuedCertificate,)

    def __init__(self, feed: Feed, usage: Callable[[ObjectMeta], tuple[int, int]]) -> None:
        """`usage`: the number of records of a cluster, and their bytes."""
        self._feed = feed
        self._clusters = feed.of(Cluster)
        self._usage = usage

    async def admit(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> Object:
        if old is not None:
            unchanged: Object = new
            return unchanged
        await self._feed.fresh()
        sent: IssuedCertificate = new
        if not sent.spec.cluster:
            text = "only the server records certificates of its own signers"
            raise Forbidden(kind.about(sent.name), text)
        entry = self._clusters.get("", sent.spec.cluster)
        if entry is None:
            _refuse(kind, sent, not_found(SPEC / "cluster", sent.spec.cluster))
        uid = entry.meta.uid
        if sent.spec.cluster_uid not in ("", uid):
            text = f"the uid of that cluster is {uid}"
            _refuse(kind, sent, invalid(SPEC / "clusterUID", sent.spec.cluster_uid, text))
        self._refuse_too_many(kind, sent, entry.meta)
        facts = _facts(kind, sent, entry.object, request.now)
        name = cluster_record_name(sent.spec.cluster, facts.sha256)
        if sent.name != name:
            text = f"the record of this certificate is named {name}"
            _refuse(kind, sent, invalid(Path() / "metadata" / "name", sent.name, text))
        spec = sent.spec
        record = record_of(
            kind,
            facts,
            uid="",
            issued=request.now,
            signer_name=spec.signer_name,
            requester=spec.requester,
            request=spec.request,
        )
        return replace(sent, spec=replace(record.spec, cluster=spec.cluster, cluster_uid=uid))

    async def review(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> None:
        """A record stays until its certificate has expired, or the cluster is removed."""
        if new is not None or not old.spec.cluster:
            return
        entry = self._clusters.get("", old.spec.cluster)
        if entry is None or not is_of(old, entry.meta):
            return
        end = record_end(old.spec.not_after, authorities_end(entry.object))
        if end and end > request.now:
            text = f"the certificate is valid until {timestamp(end)}"
            raise Forbidden(kind.about(old.name), text)

    def _refuse_too_many(
        self, kind: Kind[Any], sent: IssuedCertificate, cluster: ObjectMeta
    ) -> None:
        count, used = self._usage(cluster)
        if count < MOST_RECORDS and used + len(sent.spec.certificate) <= MOST_BYTES:
            return
        text = (
            f"the cluster has {count} records with {used} bytes, and may have at most "
            f"{MOST_RECORDS} with {MOST_BYTES}"
        )
        raise Forbidden(kind.about(sent.name), text)


def _facts(
    kind: Kind[Any], sent: IssuedCertificate, cluster: Cluster, now: datetime
) -> IssuedFacts:
    data, authorities = sent.spec.certificate, cluster.spec.client_authorities
    if not data:
        _refuse(kind, sent, required(CERTIFICATE))
    try:
        with library_errors_as(CertificateRefused, "x509: certificate cannot be read"):
            certificate = certificates.parse(data)
            refuse_other_encodings(certificate, data)
            issuers = certificates.parse_blocks(authorities) if authorities else []
            valid = [issuer for issuer in issuers if issuer.not_valid_after_utc > now]
            if not any(has_issued(issuer, certificate) for issuer in valid):
                raise CertificateRefused("no client authority of the cluster has issued it")
            if certificate.not_valid_after_utc <= now:
                raise CertificateRefused("it has expired")
            return read_issued(pem.encode(pem.CERTIFICATE, data))
    except Refusal as refusal:
        _refuse(kind, sent, invalid(CERTIFICATE, "<certificate data>", str(refusal)))


def _refuse(kind: Kind[Any], new: Object, problem: FieldError) -> NoReturn:
    raise Invalid(kind.about_kind(new.name), [problem])
