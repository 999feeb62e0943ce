"""Certificate requests, their signing, and the inventory of issued certificates.

Kinds      CertificateSearch, CertificateSigningRequest, IssuedCertificate, PodCertificateRequest
Pages      /renewal-info/
Uses       objects, revocation, sign_in, token_keys, approval, accounts, trust_bundles,
           authorities, approving, clusters
Read first controllers/sign_requests.py
"""

from orchid.features.certificates import parts
from orchid.features.certificates.controllers import (
    clean_issued,
    clean_pod_requests,
    clean_requests,
    sign_pod_requests,
    sign_requests,
)
from orchid.features.certificates.kinds import (
    certificate_signing_request,
    issued_certificate,
    pod_certificate_request,
)
from orchid.features.certificates.roles import roles
from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="certificates",
    kinds=(
        certificate_signing_request.declare,
        issued_certificate.declare,
        pod_certificate_request.declare,
    ),
    controllers=(
        clean_issued.CONTROLLER,
        clean_pod_requests.CONTROLLER,
        clean_requests.CONTROLLER,
        sign_pod_requests.CONTROLLER,
        sign_requests.CONTROLLER,
    ),
    roles=roles,
    served_kinds=parts.served_kinds,
    provides=parts.PARTS,
    authenticators=parts.authenticators,
    policies=parts.policies,
    pages=parts.pages,
    metrics=parts.metrics,
    prepare=parts.prepare,
    background=parts.background,
    documentation="mtls.md",
)
