"""Approving, signing and attesting need a permission for the signer, besides the right to write.

verb      checked for                                              signer
approve   every write to a request's `approval`                    the stored one
sign      a new certificate or condition in a request's `status`   the stored one
sign      a changed status of a PodCertificateRequest              the stored one
attest    a new trust bundle of a signer, or changes beyond        the new one
          its maintenance
approve   a new or changed spec of an approval policy              every pattern in it

Otherwise a policy could approve requests that its writer may not approve. A pattern is checked as
it is written; a policy for every signer as `*`.

The permission is the verb on `signers` named as the signer, or as every signer of its domain
(`example.com/*`, which is a plain name to the authorizer). If a CertificateAuthority has the
signer, the verbs sign and attest on that `certificateauthorities` object suffice: so our own
controllers serve every authority, but no external signer. Start with `SignerPermission.review`.
"""

import functools
from collections.abc import Iterator
from typing import Any

from orchid.features.approving.kinds.approval_policy import ApprovalPolicy
from orchid.features.authorities.policies.own_signers import AuthoritiesOf
from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.features.certificates.kinds.pod_certificate_request import (
    SIGNER_NAME,
    PodCertificateRequest,
)
from orchid.features.trust_bundles.kinds.cluster_trust_bundle import ClusterTrustBundle
from orchid.kernel.access.rights import (
    APPROVE,
    ATTEST,
    REFUSALS,
    SIGN,
    CallerRights,
    signer_targets,
)
from orchid.kernel.engine.interfaces import AdmissionPolicy, Authorizer
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.wire.errors import Forbidden, Invalid
from orchid.kernel.wire.fields import forbidden
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.text import quote


class SignerPermission(AdmissionPolicy):
    reviews = (
        ApprovalPolicy,
        CertificateSigningRequest,
        ClusterTrustBundle,
        PodCertificateRequest,
    )

    def __init__(
        self,
        naming: Naming,
        authorizer: Authorizer,
        authorities_of: AuthoritiesOf,
    ) -> None:
        self._naming = naming
        self._targets = functools.lru_cache(maxsize=256)(functools.partial(signer_targets, naming))
        self._rights = CallerRights(naming, authorizer)
        self._authorities_of = authorities_of

    async def review(
        self, request: Request, kind: Kind[Any], new: Object | None, old: Object | None
    ) -> None:
        match new:
            case CertificateSigningRequest() if old is not None:
                await self._review_request(request, kind, new, old)
            case PodCertificateRequest() if isinstance(old, PodCertificateRequest):
                if new.status != old.status:
                    await self._require(request, SIGN, kind, new, old.spec.signer_name)
            case ClusterTrustBundle():
                await self._review_bundle(request, kind, new, old)
            case ApprovalPolicy():
                await self._review_policy(request, kind, new, old)

    async def _review_request(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> None:
        endpoint = request.target.subresource
        if endpoint == "approval":
            await self._require(request, APPROVE, kind, new, old.spec.signer_name)
        elif endpoint == "status" and (
            new.status.certificate != old.status.certificate
            or new.status.conditions != old.status.conditions
        ):
            await self._require(request, SIGN, kind, new, old.spec.signer_name)

    async def _review_bundle(
        self, request: Request, kind: Kind[Any], new: Any, old: Object | None
    ) -> None:
        signer = new.spec.signer_name
        if signer and not (old is not None and is_upkeep(new, old)):
            await self._require(request, ATTEST, kind, new, signer)

    async def _review_policy(
        self, request: Request, kind: Kind[Any], new: ApprovalPolicy, old: Any
    ) -> None:
        if old is None or new.spec != old.spec:
            for pattern in new.spec.signer_names or ("*",):
                await self._require(request, APPROVE, kind, new, pattern)

    async def _require(
        self, request: Request, verb: str, kind: Kind[Any], new: Object, signer: str
    ) -> None:
        if not await self._rights.include_any(request, self._ways(verb, signer)):
            raise _refusal(request, verb, kind, new, signer)

    def _ways(self, verb: str, signer: str) -> Iterator[Target]:
        """The permissions of which any one suffices."""
        yield from self._targets(verb, signer)
        if verb in (SIGN, ATTEST):
            for authority in self._authorities_of(signer):
                yield Target(
                    verb=verb,
                    is_resource=True,
                    group=self._naming.identity,
                    version="*",
                    resource="certificateauthorities",
                    name=authority.name,
                )


def _refusal(
    request: Request, verb: str, kind: Kind[Any], new: Object, signer: str
) -> Forbidden | Invalid:
    if not isinstance(new, PodCertificateRequest):
        return Forbidden(kind.about(new.name), f"{REFUSALS[verb]} {quote(signer)}")
    # Kubernetes checks this right as part of validation, so the answer is 422.
    user = quote(request.user.username)
    text = f"User {user} is not permitted to {quote(verb)} for signer {quote(signer)}"
    return Invalid(kind.about_kind(new.name), [forbidden(SIGNER_NAME, text)])


def is_upkeep(new: Object, old: Object) -> bool:
    """Whether a change affects only metadata that the garbage collector must be able to change."""
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
