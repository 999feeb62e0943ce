"""The SigningKeys of authorities, and which of them, or of the certificates above, are revoked.

Reads   events of signingkeys and credentialrevocations: `key_changed`, `revoked`
Never   writes

Part of the controller in keep_authorities.py. Start with `selection`, the keys that are in use, and
`refuse_revoked`. Each event returns the names of the authorities that it concerns.
"""

from collections.abc import Iterator

from orchid.features.authorities.controllers.authority_conditions import CertificateRevoked
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.revocation.kinds.credential_revocation import CredentialRevocation
from orchid.features.token_keys.controllers.key_revocations import KeyRevocations, is_any_revoked
from orchid.features.token_keys.key_selection import KeySelection, select
from orchid.features.token_keys.kinds.signing_key import RETIRED, SigningKey, key_location
from orchid.kernel.client.client import DELETED, WatchedChange
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.wire.references import SecretReference, belongs_to


class StoredAuthorityKeys:
    def __init__(self, home: str) -> None:
        """`home`: the namespace of Secrets of keys that name no other."""
        self._home = home
        self._keys: dict[str, dict[str, SigningKey]] = {}  # by authority and name
        self.names: dict[str, str] = {}  # the authority of every key, by name
        self._holders: dict[SecretReference, str] = {}  # authorities by the Secret of a key
        self._revocations = KeyRevocations()
        # By the SHA-256 of a certificate: names of revocations; authorities, with names of keys.
        self._revoked_certificates: dict[str, set[str]] = {}
        self._chains: dict[str, set[tuple[str, str]]] = {}

    def members(self, authority: CertificateAuthority) -> list[SigningKey]:
        """The keys that belong to an authority, in any state."""
        keys = self._keys.get(authority.name, {}).values()
        return [key for key in keys if belongs_to(key, authority)]

    def selection(self, authority: CertificateAuthority) -> KeySelection:
        """The key that signs, and those that verify."""
        return select(self.members(authority), self._revocations.identities(), authority.name)

    def out_of_use(self, authority: CertificateAuthority) -> list[SigningKey]:
        """The keys that nobody should trust any more."""
        revoked = self._revocations.identities()
        keys = self.members(authority)
        return [key for key in keys if key.state == RETIRED or key.is_revoked(revoked)]

    def held_in(self, secret: SecretReference) -> str | None:
        """The authority of a key in a Secret."""
        return self._holders.get(secret)

    def refuse_revoked(self, authority: Authority, selection: KeySelection) -> None:
        """Refuse a chain with a revoked certificate; roots are removed from bundles instead."""
        assert selection.signer is not None
        for link in authority.chain[:-1]:
            if certificates.fingerprint(link) in self._revoked_certificates:
                raise CertificateRevoked(
                    f"a certificate in the chain of {selection.signer.name} is revoked; to have "
                    "another key sign, revoke the key, too: "
                    f"orchid revoke key/{selection.signer.name}"
                )

    # -- events ------------------------------------------------------------------------------

    def key_changed(self, event: WatchedChange[SigningKey]) -> Iterator[str]:
        key = event.object
        if event.type == DELETED:
            self.names.pop(key.name, None)
        else:
            self.names[key.name] = key.group
        if not key.spec.authority or key.is_file:
            return
        if event.type == DELETED:
            self._keys.get(key.spec.authority, {}).pop(key.name, None)
            for digest in _fingerprints(key):
                self._chains.get(digest, set()).discard((key.spec.authority, key.name))
            self._holders.pop(key_location(key, self._home), None)
        else:
            self.take(key)
        yield key.spec.authority

    def take(self, key: SigningKey) -> None:
        """Index a key of an authority."""
        self._keys.setdefault(key.spec.authority, {})[key.name] = key
        self.names[key.name] = key.spec.authority
        self._holders[key_location(key, self._home)] = key.spec.authority
        for digest in _fingerprints(key):
            self._chains.setdefault(digest, set()).add((key.spec.authority, key.name))

    def revoked(self, event: WatchedChange[CredentialRevocation]) -> Iterator[str]:
        if event.object.spec.certificate and not event.object.spec.cluster:
            yield from self._certificate_revoked(event, event.object.spec.certificate.sha256)
        named = self._revocations.take(event)
        if named is None:
            return
        for authority, keys in list(self._keys.items()):
            if is_any_revoked(keys.values(), named):
                yield authority

    def _certificate_revoked(
        self, event: WatchedChange[CredentialRevocation], digest: str
    ) -> Iterator[str]:
        names = self._revoked_certificates.setdefault(digest, set())
        if event.type == DELETED:  # a hold
            names.discard(event.object.name)
        else:
            names.add(event.object.name)
        if not names:
            del self._revoked_certificates[digest]
        for authority, _ in self._chains.get(digest, ()):
            yield authority


def _fingerprints(key: SigningKey) -> list[str]:
    """SHA-256 of each certificate in the chain of a key below its root."""
    try:
        links = certificates.parse_blocks(key.status.certificate) if key.status.certificate else []
    except Refusal:
        return []
    return [certificates.fingerprint(link) for link in links[:-1]]
