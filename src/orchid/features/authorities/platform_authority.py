"""PlatformAuthority: the keys of the authority `cluster` in this process.

Clients are verified against the certificates of all its keys in use, and the server's own
certificates are issued with the key that signs. Both follow the feed: `select` of
features/token_keys/kinds/signing_key.py chooses the keys whenever a SigningKey or a revocation has
changed.
"""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import msgspec
from cryptography import x509

from orchid.features.authorities.authority_keys import AuthorityKeyIndex
from orchid.features.authorities.kinds.certificate_authority import CLUSTER, CertificateAuthority
from orchid.features.objects.kinds.secret import Secret
from orchid.features.revocation.revocations import Revocations
from orchid.features.token_keys.key_selection import KeySelection, select
from orchid.features.token_keys.kinds.signing_key import (
    IMPORTED,
    PRIVATE_KEY,
    PUBLISHED,
    RETIRED,
    SigningKey,
    authority_public_key,
    key_location,
)
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.authorities.cross_certificates import cross_chain
from orchid.kernel.credentials.authorities.hsm import NO_HSM, KeysOfHsm
from orchid.kernel.credentials.authorities.issuer_chain import (
    is_issued_by,
    refuse_broken,
    subject_key_id,
)
from orchid.kernel.credentials.refusals import (
    AuthorityUnusable,
    CertificateRefused,
    KeyMismatch,
    Refusal,
)
from orchid.kernel.credentials.secret import SecretValue
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.credentials.x509.trust.certification_path import ClientVerifier
from orchid.kernel.credentials.x509.trust.verified_chain import VerifiedChain
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.text import timestamp

log = logging.getLogger(__name__)


class NoAuthorities(ClientVerifier):
    """The pool if every key is revoked: it accepts no certificate."""

    end = datetime.min.replace(tzinfo=UTC)
    authorities: tuple[x509.Certificate, ...] = ()

    def __init__(self) -> None:
        """Nothing to verify with."""

    def verify(self, leaf: object, intermediates: object, now: object) -> NoReturn:
        raise CertificateRefused("no authority of client certificates is in use")


class PlatformKeys(msgspec.Struct, frozen=True):
    """The keys of the platform's authority at one moment."""

    certificates: tuple[x509.Certificate, ...]  # that clients trust, the signer's first
    chain: str  # of the signer, in PEM
    cross: str  # the cross certificates of the signer and the chains above them, in PEM
    private: SecretValue  # empty if the key is in the HSM
    retired: frozenset[str]  # ids of keys
    label: str = ""  # of the key in the HSM
    hsm: KeysOfHsm = NO_HSM

    def signer(self, more_cross: str = "") -> Authority:
        """The key that signs; raises Refusal. Reading an RSA key, or asking an HSM, takes long."""
        private, cross = self.private.reveal().encode(), self.cross + more_cross
        if self.label:
            return Authority.of_key(self.chain.encode(), self.hsm.key(self.label), cross=cross)
        return Authority.load(self.chain.encode(), private, cross=cross)


class PlatformAuthority:
    """The authority of the platform, from the objects in the cache."""

    def __init__(
        self,
        naming: Naming,
        feed: Feed,
        keys: AuthorityKeyIndex,
        revocations: Revocations,
        file: Path,
        *,
        hsm: KeysOfHsm = NO_HSM,
    ) -> None:
        """`file`: certificates that are trusted as long as there is no object. `hsm`: of this
        process.
        """
        self._hsm = hsm
        self._home = naming.system_namespace
        self._keys = keys
        self._objects = feed.of(SigningKey)
        self._secrets = feed.of(Secret)
        self._revocations = revocations
        self._file = file
        # The objects that decide; a key counts only with the authority that owns it.
        self._caches = self._objects, feed.of(CertificateAuthority), revocations.cache
        self._seen: tuple[int, ...] = ()  # their generations
        self._chosen = KeySelection((), ())
        self._certificates: tuple[x509.Certificate, ...] = ()
        self._issuers: tuple[x509.Certificate, ...] = ()
        self._replaced: dict[str, str] = {}  # names of keys that no longer sign, by id
        self._pool: ClientVerifier | None = None
        self.changed: list[Callable[[], None]] = []  # called when other keys are in use
        self.checks: list[Callable[[], None]] = []  # of settings, once the objects are loaded
        for cache in self._caches:
            cache.listen(self, lambda _changes: self._catch_up(), self._catch_up)

    @property
    def is_stored(self) -> bool:
        """Whether the authority has objects; until then the files count."""
        return bool(self._keys.of(CLUSTER))

    @property
    def chosen(self) -> KeySelection:
        """The keys in use; the first one signs."""
        self._catch_up()
        return self._chosen

    @property
    def certificates(self) -> tuple[x509.Certificate, ...]:
        """The certificates of all keys in use with the chains above them, the signer's first."""
        self._catch_up()
        return self._certificates

    @property
    def issuers(self) -> tuple[x509.Certificate, ...]:
        """The issuing certificate of each key in use, the signer's first."""
        self._catch_up()
        return self._issuers

    def warning(self, chain: VerifiedChain) -> str:
        """A warning for a client whose certificate a replaced key signed; empty for any other."""
        name = self._replaced.get(subject_key_id(chain.issuer).hex())
        end = timestamp(chain.leaf.not_valid_after_utc)
        text = f"the client certificate is of the replaced key {name}; renew it, it ends at {end}"
        return text if name else ""

    def pool(self) -> ClientVerifier:
        """The authorities of client certificates."""
        self._catch_up()
        if self._pool is None:
            self._pool = self._new_pool()
        return self._pool

    def snapshot(self) -> "PlatformKeys":
        """The keys as they are now, for work in a thread; raises Refusal if none can sign."""
        key, stored = self.chosen.signer, self._keys.of(CLUSTER)
        if key is None:
            raise AuthorityUnusable(f"no key of the authority {CLUSTER} may sign")
        return PlatformKeys(
            certificates=self._certificates,
            chain=key.status.certificate,
            # Clients that trust only the root of a Retired key still connect, until that root ends.
            cross=cross_chain(
                key.certified, {signing_key.key_id: signing_key.certified for signing_key in stored}
            ),
            private=SecretValue("") if key.hsm_label else self._private(key),
            retired=frozenset(
                signing_key.key_id for signing_key in stored if signing_key.state == RETIRED
            ),
            label=key.hsm_label,
            hsm=self._hsm,
        )

    def _private(self, key: SigningKey) -> SecretValue:
        place = key_location(key, self._home)
        secret = self._secrets.get(place.namespace, place.name)
        if secret is None:
            raise AuthorityUnusable(f"there is no Secret {place} with the key of {key.name}")
        data = secret.object.data.get(PRIVATE_KEY, b"")
        return SecretValue(data.decode("ascii", "replace"))

    def _new_pool(self) -> ClientVerifier:
        fit = [certificate for certificate in self._certificates if _verifies_clients(certificate)]
        if fit:
            return ClientVerifier(fit)
        if self._keys.of(CLUSTER):
            return NoAuthorities()
        return ClientVerifier.load(self._file)

    def _catch_up(self) -> None:
        seen = tuple([cache.generation for cache in self._caches])
        if seen == self._seen:
            return
        self._seen = seen
        before = _versions(self._chosen)
        self._chosen = select(self._keys.of(CLUSTER), self._revocations.revoked_keys(), CLUSTER)
        if _versions(self._chosen) == before:
            return
        chains = []
        for key in self._chosen.verifying:
            try:
                chains.append(_own_chain(key))
            except Refusal as refusal:
                extra = {"key": key.name, "why": str(refusal)}
                log.error("authority.chain_not_trusted", extra=extra)
        self._issuers = tuple(chain[0] for chain in chains)
        signer = self._chosen.signer
        self._replaced = {
            key.key_id: key.name
            for key in self._chosen.verifying
            if key is not signer and key.state != PUBLISHED
        }
        self._certificates = tuple(
            dict.fromkeys(certificate for chain in chains for certificate in chain)
        )
        self._pool = None
        for notify in self.changed:
            notify()


def _own_chain(key: SigningKey) -> tuple[x509.Certificate, ...]:
    """The certificates of a key, which verify clients: self-signed, for that public key.

    Those of imported files may have a chain above. Raises Refusal for any other.
    """
    chain = certificates.parse_blocks(key.status.certificate)
    if authority_public_key(key.status.certificate) != key.status.public_key:
        raise KeyMismatch("the certificate is not for the public key")
    if len(chain) > 1 and key.status.source != IMPORTED:
        raise AuthorityUnusable("the certificate is not self-signed")
    refuse_broken(chain)
    if not is_issued_by(chain[-1], chain[-1]):
        raise AuthorityUnusable("the chain does not end with a self-signed certificate")
    return tuple(chain)


def _verifies_clients(authority: x509.Certificate) -> bool:
    try:
        ClientVerifier([authority])
    except Refusal:
        return False
    return True


def _versions(chosen: KeySelection) -> list[tuple[str, str]]:
    return [(key.key_id, key.status.certificate) for key in chosen.verifying]
