"""Approving, signing and attesting take a right for that signer, besides the right to write.

verb      asked when                                                        of
approve   anything is written to a request's `approval`                     the stored signer
sign      a request's `status` gets another certificate or condition        the stored signer
attest    a trust bundle of a signer is created, or more of it changes      the new signer
          than its upkeep

The right is the verb on `signers` named as the signer, or as every signer of its domain
(`example.com/*`, which is a name like any other to the authorizer). Start with
`SignerPermission.review`.
"""

from typing import Any

from orchid.engine.interfaces import AdmissionPolicy, Authorizer
from orchid.engine.kind import Kind
from orchid.engine.request import Request, Target
from orchid.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.kinds.cluster_trust_bundle import ClusterTrustBundle
from orchid.wire.errors import ErrorSubject, Forbidden
from orchid.wire.meta import Object
from orchid.wire.naming import Naming
from orchid.wire.struct import replace
from orchid.wire.text import quote

APPROVE, SIGN, ATTEST = "approve", "sign", "attest"
REFUSALS = {
    APPROVE: "user not permitted to approve requests with signerName",
    SIGN: "user not permitted to sign requests with signerName",
    ATTEST: "user not permitted to attest for signerName",
}


class SignerPermission(AdmissionPolicy):
    reviews = (CertificateSigningRequest, ClusterTrustBundle)

    def __init__(self, names: Naming, authorizer: Authorizer) -> None:
        self._group = names.certificates
        self._authorizer = authorizer

    async def review(
        self, request: Request, kind: Kind[Any], new: Object | None, old: Object | None
    ) -> None:
        match new:
            case CertificateSigningRequest() if old is not None:
                await self._review_request(request, kind, new, old)
            case ClusterTrustBundle():
                await self._review_bundle(request, kind, new, old)

    async def _review_request(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> None:
        endpoint = request.target.subresource
        if endpoint == "approval":
            await self._require(request, APPROVE, kind.about(new.name), old.spec.signer_name)
        elif endpoint == "status" and (
            new.status.certificate != old.status.certificate
            or new.status.conditions != old.status.conditions
        ):
            await self._require(request, SIGN, kind.about(new.name), old.spec.signer_name)

    async def _review_bundle(
        self, request: Request, kind: Kind[Any], new: Any, old: Object | None
    ) -> None:
        signer = new.spec.signer_name
        if signer and not (old is not None and is_upkeep(new, old)):
            await self._require(request, ATTEST, kind.about(new.name), signer)

    async def _require(self, request: Request, verb: str, about: ErrorSubject, signer: str) -> None:
        domain = signer.partition("/")[0]
        for name in (signer, f"{domain}/*"):
            target = Target(
                verb=verb,
                is_resource=True,
                group=self._group,
                version="*",
                resource="signers",
                name=name,
            )
            if (await self._authorizer.authorize(request.user, target)).allowed:
                return
        raise Forbidden(about, f"{REFUSALS[verb]} {quote(signer)}")


def is_upkeep(new: Object, old: Object) -> bool:
    """Whether a change touches only what the garbage collector must be able to touch."""
    meta = old.metadata
    return old == replace(
        new,
        metadata=replace(
            new.metadata,
            self_link=meta.self_link,
            resource_version=meta.resource_version,
            owner_references=meta.owner_references,
            finalizers=meta.finalizers,
            managed_fields=meta.managed_fields,
        ),
    )
