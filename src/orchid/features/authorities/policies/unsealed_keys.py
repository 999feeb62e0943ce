"""Refuse generated keys of authorities in a store that does not encrypt Secrets.

The private key of a CertificateAuthority is in a Secret. On etcd nothing is encrypted without a
configured file of keys (features/sealing/sealing.py), and a copy of etcd would hold the keys of
every authority in clear text. The policy is active while no file is configured; a file with the
provider `identity` accepts clear text explicitly. Keys that users provide are not checked.
"""

from typing import Any

from orchid.features.authorities.kinds.certificate_authority import (
    UNSEALED_STORE,
    CertificateAuthority,
)
from orchid.features.objects.kinds.secret import Secret
from orchid.kernel.engine.interfaces import AdmissionPolicy
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.errors import Forbidden

REFUSAL = f"{UNSEALED_STORE}; start every server with the same --encryption-provider-config"


class UnsealedKeys(AdmissionPolicy):
    reviews = (Secret,)

    async def review(
        self, request: Request, kind: Kind[Any], new: Secret | None, old: Secret | None
    ) -> None:
        if new is None or old is not None:
            return
        for owner in new.metadata.owner_references:
            if owner.controller and owner.kind == CertificateAuthority.__name__:
                raise Forbidden(kind.about(new.name), REFUSAL)
