"""The client signer issues no certificate with the group `system:masters`.

Such a certificate could do everything, and no change of policy could stop it before it expires. The
group is refused in every form that could be mistaken for it: in any string type, among several,
with a trailing NUL, in full-width letters. The signer checks it again
(kernel/credentials/authorities/profiles.py).
"""

from typing import Any

from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import signing_request
from orchid.kernel.credentials.x509.names import reserved_among
from orchid.kernel.engine.interfaces import AdmissionPolicy
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.user import MASTERS


class SubjectRestriction(AdmissionPolicy):
    reviews = (CertificateSigningRequest,)

    def __init__(self, naming: Naming) -> None:
        self._signer = naming.client_signer

    async def review(self, request: Request, kind: Kind[Any], new: Any, old: Object | None) -> None:
        if new is None or old is not None or new.spec.signer_name != self._signer:
            return
        try:
            requested = signing_request.parse_once(new.spec.request or b"")
        except Refusal as refusal:
            raise Forbidden(kind.about(new.name), f"failed to parse CSR: {refusal}") from None
        if reserved_among(requested.subject.organizations, (MASTERS,)):
            text = f"use of {self._signer} signer with {MASTERS} group is not allowed"
            raise Forbidden(kind.about(new.name), text)
