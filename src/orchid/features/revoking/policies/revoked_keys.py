"""The revocation of a signer lists the keys of the signer.

Servers use them to refuse certificates that are not in the inventory, above all after a restore
from a backup without the certificate. Keys in the request are replaced.
"""

from collections.abc import Callable, Iterable
from typing import Any

from orchid.features.revocation.kinds.credential_revocation import CredentialRevocation
from orchid.kernel.engine.interfaces import AdmissionPolicy
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.struct import replace


class RevokedKeys(AdmissionPolicy):
    admits = (CredentialRevocation,)

    def __init__(self, keys_of: Callable[[str], Iterable[str]]) -> None:
        """`keys_of`: SHA-256 of the keys of a signer, by its name."""
        self._keys_of = keys_of

    async def admit(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> Object:
        admitted: Object = new
        named = new.spec.authority
        if old is None and named is not None:
            keys = tuple(sorted(self._keys_of(named.signer_name)))
            spec = replace(new.spec, authority=replace(named, keys=keys))
            admitted = replace(new, spec=spec)
        return admitted
