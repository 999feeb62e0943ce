"""Revoking a credential of a cluster needs the verb `revoke` on `clusters`, by the cluster's name.

certificate     named by its SHA-256, or found in the inventory of the cluster by number or request
token           by its id; an issuer that is named must be the cluster's
account, user   every credential, as long as the revocation exists: those who may create it may
                delete it
The right is checked before anything is looked up. Revocations of certificates and tokens stay until
these end, as ours do (features/revoking/policies/revocation_permission.py), also if the cluster is
removed: a restore may bring it back. Then one without a known end may be deleted by those who may
create it. A revocation is of one cluster, by uid: one that is created again has none. Nothing here
affects a credential of this server: no revocation with `cluster` is in its index.
"""

import asyncio
from datetime import datetime
from typing import Any, NoReturn

from cryptography import x509

from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    IssuedCertificateSpec,
    cluster_record_name,
)
from orchid.features.clusters.kinds.cluster import Cluster, authorities_end, is_of
from orchid.features.revocation.kinds.credential_revocation import (
    SPEC,
    CredentialRevocation,
    CredentialRevocationSpec,
    completed,
)
from orchid.features.revoking.policies.repeated_revocations import (
    Already,
    RepeatedRevocations,
    stays,
)
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.credentials.x509.trust.verified_chain import has_ecdsa_key, other_fingerprints
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.interfaces import AdmissionPolicy, Authorizer
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.wire.errors import Forbidden, Invalid
from orchid.kernel.wire.fields import FieldError, invalid, not_found
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.revoked_credentials import RevokedCertificate
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.text import quote

REVOKE = "revoke"
CERTIFICATE = SPEC / "certificate"


class ClusterRevocation(AdmissionPolicy):
    admits = (CredentialRevocation,)
    reviews = (CredentialRevocation,)

    def __init__(
        self, naming: Naming, feed: Feed, authorizer: Authorizer, already: Already
    ) -> None:
        """`already`: the keys of the existing revocations of the same credential."""
        self._group = naming.identity
        self._feed = feed
        self._clusters = feed.of(Cluster)
        self._records = feed.of(IssuedCertificate)
        self._authorizer = authorizer
        self._repeated = RepeatedRevocations(feed.of(CredentialRevocation), already)

    async def admit(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> Object:
        if old is not None or not new.spec.cluster or len(new.spec.targets) != 1:
            unchanged: Object = new
            return unchanged
        await self._feed.fresh()
        await self._require(request, kind, new)
        entry = self._clusters.get("", new.spec.cluster)
        if entry is None:
            _refuse(kind, new, not_found(SPEC / "cluster", new.spec.cluster))
        uid = entry.meta.uid
        if new.spec.cluster_uid not in ("", uid):
            text = f"the uid of that cluster is {uid}"
            _refuse(kind, new, invalid(SPEC / "clusterUID", new.spec.cluster_uid, text))
        spec, expires = replace(completed(new.spec, request.now), cluster_uid=uid), None
        new = replace(new, spec=spec)
        if spec.certificate:
            spec, expires = await self._certificate(request, kind, new, entry.object)
        elif spec.token:
            issuer = entry.object.spec.issuer
            if spec.token.issuer not in ("", issuer):
                text = f"the issuer of that cluster is {issuer}"
                _refuse(kind, new, invalid(SPEC / "token" / "issuer", spec.token.issuer, text))
            expires = spec.token.expires
        done: CredentialRevocation = replace(
            new, spec=spec, status=replace(new.status, expires=expires)
        )
        self._repeated.refuse_repeated(request, kind, done)
        return done

    async def review(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> None:
        if new is not None or not old.spec.cluster:
            return
        await self._feed.fresh()
        if self._has_ended(old, request.now):
            return
        if old.can_be_lifted or self._is_without_end(old):
            await self._require(request, kind, old)
        elif not self._repeated.is_superseded(old):
            raise stays(kind, old)

    def _has_ended(self, old: CredentialRevocation, now: datetime) -> bool:
        expires, cluster = old.status.expires, self._cluster_of(old)
        named = old.spec.certificate
        if expires is not None and cluster is not None and named and not named.serial_number:
            # It may be of an authority that was added later and ends later.
            expires = max(expires, authorities_end(cluster) or expires)
        return expires is not None and expires <= now

    def _is_without_end(self, old: CredentialRevocation) -> bool:
        """Whether it would stay for good, of a cluster that was removed."""
        return old.status.expires is None and self._cluster_of(old) is None

    def _cluster_of(self, old: CredentialRevocation) -> Cluster | None:
        """The cluster of a revocation; None if it was removed, also if it was created again."""
        entry = self._clusters.get("", old.spec.cluster)
        return entry.object if entry is not None and is_of(old, entry.meta) else None

    # -- certificates -------------------------------------------------------------------------

    async def _certificate(
        self, request: Request, kind: Kind[Any], new: CredentialRevocation, cluster: Cluster
    ) -> tuple[CredentialRevocationSpec, datetime | None]:
        """The spec with what is recorded of the certificate, and when the certificate ends."""
        named = new.spec.certificate
        assert named is not None
        matches = await self._recorded(cluster.metadata, named)
        if not matches:
            for field in ("serial_number", "request_name"):
                if expected := getattr(named, field):
                    _refuse(kind, new, not_found(CERTIFICATE / _wire(field), expected))
            request.warn(f"the inventory of the cluster {cluster.name} has no such certificate")
            if not named.other_sha256 and _signs_with_ecdsa(cluster):
                request.warn(
                    "an authority of the cluster signs with ECDSA: the holder of the certificate "
                    "can write its signature in another way, with another fingerprint; revoke it "
                    "from its file, or revoke the user"
                )
            sent = RevokedCertificate(sha256=named.sha256, other_sha256=named.other_sha256)
            return replace(new.spec, certificate=sent), authorities_end(cluster)
        if len(matches) > 1:
            which = ", ".join(candidate.sha256 for candidate in matches[:10])
            text = f"the inventory has several such certificates, with sha256: {which}"
            _refuse(kind, new, invalid(CERTIFICATE, named.serial_number, text))
        record = matches[0]
        certificate = _known(record, cluster)
        for field in ("sha256", "signer_name", "serial_number", "request_name"):
            expected, actual = getattr(named, field), getattr(certificate, field)
            if expected and expected != actual:
                text = f"that certificate has {quote(actual)}"
                _refuse(kind, new, invalid(CERTIFICATE / _wire(field), expected, text))
        return replace(new.spec, certificate=certificate), record.not_after

    async def _recorded(
        self, cluster: ObjectMeta, named: RevokedCertificate
    ) -> list[IssuedCertificateSpec]:
        """The records of the cluster that a certificate is named by."""
        if named.sha256:
            entry = self._records.get("", cluster_record_name(cluster.name, named.sha256))
            return [entry.object.spec] if entry and is_of(entry.object, cluster) else []
        prefix = self._records.kind.key("", f"{cluster.name}.")
        needle = b'"%b"' % (named.serial_number or named.request_name).encode()
        entries = list(self._records.entries.items())

        def search() -> list[Any]:
            """Off the loop, since there may be very many."""
            return [one for key, one in entries if key.startswith(prefix) and needle in one.tail]

        records = [entry.object for entry in await asyncio.to_thread(search)]
        specs = [record.spec for record in records if is_of(record, cluster)]
        if named.serial_number:
            return [spec for spec in specs if spec.serial_number == named.serial_number]
        return [spec for spec in specs if spec.request.name == named.request_name]

    # -- who may ------------------------------------------------------------------------------

    async def _require(
        self, request: Request, kind: Kind[Any], revocation: CredentialRevocation
    ) -> None:
        cluster = revocation.spec.cluster
        target = Target(
            verb=REVOKE,
            is_resource=True,
            group=self._group,
            version="*",
            resource="clusters",
            name=cluster,
        )
        if not (await self._authorizer.authorize(request.user, target)).allowed:
            text = f"user not permitted to revoke credentials of clusters {quote(cluster)}"
            raise Forbidden(kind.about(revocation.name), text)


def _known(record: IssuedCertificateSpec, cluster: Cluster) -> RevokedCertificate:
    try:
        certificate = certificates.parse(record.certificate)
        issuers = _authorities(cluster)
        others = other_fingerprints(certificate, issuers)
    except Refusal:
        others = ()
    return RevokedCertificate(
        sha256=record.sha256,
        signer_name=record.signer_name,
        serial_number=record.serial_number,
        request_name=record.request.name,
        authority_key=record.authority_key,
        other_sha256=others,
    )


def _authorities(cluster: Cluster) -> list[x509.Certificate]:
    text = cluster.spec.client_authorities
    return certificates.parse_blocks(text) if text else []


def _signs_with_ecdsa(cluster: Cluster) -> bool:
    return any(has_ecdsa_key(one) for one in _authorities(cluster))


def _wire(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _refuse(kind: Kind[Any], new: Object, problem: FieldError) -> NoReturn:
    raise Invalid(kind.about_kind(new.name), [problem])
