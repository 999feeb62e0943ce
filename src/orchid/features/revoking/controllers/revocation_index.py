"""RevocationIndex: the revocation of a certificate on record, from all revocations.

For the controllers that mark the inventory. The result depends on the existing revocations alone,
never on the order in which they were read.
"""

from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    Revoked,
    cluster_record_name,
)
from orchid.features.revocation.kinds.credential_revocation import CredentialRevocation
from orchid.kernel.wire.meta import Time

Target = tuple[str, str, str]  # cluster ("" for our own), type, and name
CERTIFICATE, SIGNER, USER = "certificate", "signer", "user"


class RevocationIndex:
    """The revocations of certificates, signers, users and accounts, by target."""

    def __init__(self) -> None:
        self._all: dict[str, CredentialRevocation] = {}
        self._targets: dict[Target, dict[str, CredentialRevocation]] = {}

    @property
    def records(self) -> set[str]:
        """Names of the records of certificates with a revocation of their own."""
        return {name for one in self._all.values() if (name := record_name(one))}

    @property
    def signers(self) -> set[str]:
        """The signers whose certificates are revoked together."""
        return {name for cluster, what, name in self._targets if what == SIGNER and not cluster}

    @property
    def clusters(self) -> set[str]:
        """The clusters ("" is this server) with a user whose certificates are revoked together."""
        return {cluster for cluster, what, _ in self._targets if what == USER}

    def put(self, revocation: CredentialRevocation) -> None:
        self.remove(revocation.name)
        self._all[revocation.name] = revocation
        if target := _target(revocation):
            self._targets.setdefault(target, {})[revocation.name] = revocation

    def remove(self, name: str) -> None:
        old = self._all.pop(name, None)
        target = _target(old) if old else None
        if target is None:
            return
        del self._targets[target][name]
        if not self._targets[target]:
            del self._targets[target]

    def revoked(self, record: IssuedCertificate) -> Revoked | None:
        """Time and reason of a certificate's revocation, or None.

        A final revocation takes precedence over a hold, and the most serious reason over others.
        The time is that of the first one.
        """
        spec, recorded = record.spec, record.metadata.creation_timestamp
        requested = spec.request.created if spec.cluster else recorded
        revocations = [*self._targets.get((spec.cluster, CERTIFICATE, spec.sha256), {}).values()]
        for what, name, issued in (
            (SIGNER, spec.signer_name, recorded),
            (USER, record.username, requested),
        ):
            for revocation in self._targets.get((spec.cluster, what, name), {}).values():
                until = _until(revocation)
                if issued is not None and until is not None and issued <= until:
                    revocations.append(revocation)
        revocations = [
            revocation
            for revocation in revocations
            if _is_same_cluster(revocation.spec.cluster_uid, spec.cluster_uid)
        ]
        if not revocations:
            return None
        final = [revocation for revocation in revocations if not revocation.is_hold] or revocations
        gravest = max(final, key=lambda revocation: revocation.gravity)
        return Revoked(time=min(map(_made, final)), reason=gravest.reason)


def record_name(revocation: CredentialRevocation) -> str:
    """The name of the record of a certificate with a revocation of its own, or ""."""
    spec = revocation.spec
    if spec.certificate is None:
        return ""
    if spec.cluster:
        return cluster_record_name(spec.cluster, spec.certificate.sha256)
    return spec.certificate.serial_number


def _target(revocation: CredentialRevocation) -> Target | None:
    spec = revocation.spec
    if spec.certificate:
        return spec.cluster, CERTIFICATE, spec.certificate.sha256
    if spec.authority:
        return spec.cluster, SIGNER, spec.authority.signer_name
    return (spec.cluster, USER, spec.username) if spec.username else None


def _is_same_cluster(uid: str, other: str) -> bool:
    """Of two clusters of a name. Earlier versions stored no uid, and the name decides."""
    return uid == other or not uid or not other


def _until(one: CredentialRevocation) -> Time | None:
    named = one.spec.authority or one.spec.user or one.spec.account
    return named.issued_before if named else None


def _made(one: CredentialRevocation) -> Time:
    made = one.metadata.creation_timestamp
    assert made is not None
    return made
