"""RevocationIndex: what the existing revocations say of a certificate on record.

For the controllers that mark the inventory. The answer depends on the existing revocations alone,
never on the order in which they were read.
"""

from orchid.kinds.credential_revocation import CredentialRevocation
from orchid.kinds.issued_certificate import IssuedCertificate, Revoked
from orchid.wire.meta import Time


class RevocationIndex:
    """The revocations of certificates and signers, by what they revoke."""

    def __init__(self) -> None:
        self._all: dict[str, CredentialRevocation] = {}
        self._certificates: dict[str, dict[str, CredentialRevocation]] = {}  # by SHA-256
        self._signers: dict[str, dict[str, CredentialRevocation]] = {}

    @property
    def serials(self) -> set[str]:
        """Serial numbers of the certificates that are revoked one by one."""
        found = (one.spec.certificate for one in self._all.values())
        return {one.serial_number for one in found if one and one.serial_number}

    @property
    def signers(self) -> set[str]:
        """The signers whose certificates are revoked together."""
        return set(self._signers)

    def put(self, revocation: CredentialRevocation) -> None:
        self.remove(revocation.name)
        self._all[revocation.name] = revocation
        spec = revocation.spec
        if spec.certificate:
            found = self._certificates.setdefault(spec.certificate.sha256, {})
            found[revocation.name] = revocation
        elif spec.authority:
            found = self._signers.setdefault(spec.authority.signer_name, {})
            found[revocation.name] = revocation

    def remove(self, name: str) -> None:
        old = self._all.pop(name, None)
        if old is None:
            return
        if old.spec.certificate:
            _drop(self._certificates, old.spec.certificate.sha256, name)
        elif old.spec.authority:
            _drop(self._signers, old.spec.authority.signer_name, name)

    def revoked(self, record: IssuedCertificate) -> Revoked | None:
        """Since when and why a certificate is revoked; None if it is not.

        A final revocation counts before a hold, and the most serious reason before others. The time
        is that of the first one.
        """
        found = [*self._certificates.get(record.spec.sha256, {}).values()]
        issued = record.metadata.creation_timestamp
        for one in self._signers.get(record.spec.signer_name, {}).values():
            until = one.spec.authority.issued_before if one.spec.authority else None
            if issued is not None and until is not None and issued <= until:
                found.append(one)
        if not found:
            return None
        final = [one for one in found if not one.is_hold] or found
        gravest = max(final, key=lambda one: one.gravity)
        return Revoked(time=min(map(_made, final)), reason=gravest.reason)


def _made(one: CredentialRevocation) -> Time:
    made = one.metadata.creation_timestamp
    assert made is not None
    return made


def _drop(index: dict[str, dict[str, CredentialRevocation]], target: str, name: str) -> None:
    found = index[target]
    del found[name]
    if not found:
        del index[target]
