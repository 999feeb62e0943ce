"""The revocation of an authority's key revokes every certificate for that key, in the same commit.

A key that succeeded another one has a cross certificate by it, and the key of an intermediate
authority one by its parent. Verifiers that trust only the issuer accept, by that certificate, what
a thief of the key signs. As revocations of certificates they are on the lists of their issuers,
and stay there when the SigningKey is deleted.
"""

from collections.abc import Callable, Iterator

from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
    CredentialRevocationStatus,
)
from orchid.features.revoking.policies.repeated_revocations import Already, RepeatedRevocations
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.kernel.base.clock import whole_seconds
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509.issued_facts import IssuedFacts, read_issued
from orchid.kernel.credentials.x509.trust.verified_chain import has_issued
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.interfaces import Randomness
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.revoked_credentials import RevokedCertificate


class CertifiedKeys:
    """The certificates of authorities' keys by other keys, and their revocations."""

    def __init__(
        self, feed: Feed, randomness: Randomness, signer_of: Callable[[str], str], already: Already
    ) -> None:
        """`signer_of`: the signer that records the cross certificates of an authority. `already`:
        the keys of all revocations of the same credential.
        """
        self._keys = feed.of(SigningKey)
        self._records = feed.of(IssuedCertificate)
        self._kind = feed.of(CredentialRevocation).kind
        self._random = randomness
        self._signer_of = signer_of
        self._repeated = RepeatedRevocations(feed.of(CredentialRevocation), already)

    def revocations(
        self, request: Request, new: CredentialRevocation, key: str
    ) -> tuple[Object, ...]:
        """The revocations that accompany the one of a key, by its name."""
        entry = self._keys.get("", key)
        if entry is None or not entry.object.spec.authority:
            return ()
        candidates = [
            self._revocation(request, new, certificate)
            for certificate in self._certificates(entry.object)
        ]
        return tuple(certificate for certificate in candidates if not self._is_covered(certificate))

    def _certificates(self, key: SigningKey) -> Iterator[tuple[IssuedFacts, str]]:
        """The certificates of a key by other keys, each with its signer; "" if it is not ours."""
        for chain in (key.status.certificate, key.status.cross_certificate):
            try:
                facts = read_issued(chain.encode())
            except Refusal:
                continue  # there is none
            if has_issued(facts.certificate, facts.certificate):
                continue  # a root is removed from the bundles
            record = self._records.get("", facts.serial)
            if record is not None and record.object.spec.sha256 == facts.sha256:
                yield facts, record.object.spec.signer_name
            elif chain == key.status.cross_certificate:
                yield facts, self._signer_of(key.spec.authority)  # of an earlier version
            else:
                yield facts, ""

    def _revocation(
        self, request: Request, of_key: CredentialRevocation, pair: tuple[IssuedFacts, str]
    ) -> CredentialRevocation:
        facts, signer = pair
        certificate = RevokedCertificate(sha256=facts.sha256)
        if signer:  # a certificate by an authority elsewhere is on none of our lists
            certificate = RevokedCertificate(
                sha256=facts.sha256,
                signer_name=signer,
                serial_number=facts.serial,
                authority_key=facts.authority_key,
            )
        uid = self._random.uid()
        return CredentialRevocation(
            kind=self._kind.name,
            api_version=self._kind.api_version,
            metadata=ObjectMeta(
                name=f"certified-{uid}",  # a name that nobody can take before
                uid=uid,
                creation_timestamp=whole_seconds(request.now),
                generation=1,
            ),
            spec=CredentialRevocationSpec(
                certificate=certificate,
                reason=of_key.spec.reason,
                message=f"A certificate of the key that {of_key.name} revokes.",
            ),
            status=CredentialRevocationStatus(
                expires=facts.not_after, author=request.user.username
            ),
        )

    def _is_covered(self, new: CredentialRevocation) -> bool:
        return any(other.covers(new) for other in self._repeated.others(new))
